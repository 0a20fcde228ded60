#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/dot.hpp"
#include "emu/replay.hpp"

namespace bitreplay {

/// A code and its format.
struct TraceValue {
    Format format;
    std::uint64_t bits;
    bool operator==(const TraceValue&) const = default;
};

/// One step of a tensor-core instruction, see DotEvent.
struct TraceStep {
    DotStep rule;
    std::int64_t first, last;
    TraceValue c, addend, d;
    bool special;
    int top;
    std::vector<DotTerm> terms;
    std::int64_t sum;
};

/// A value that was computed beside the sums, by name ("maximum").
struct TraceFact {
    std::string name;
    TraceValue value;
};

/// A partial sum and how it came about: steps of a walk, or a list of summands, or parts that were added in order.
struct TraceNode {
    std::string title;
    TraceValue value;
    std::vector<TraceStep> steps;
    std::vector<TraceFact> summands;  ///< added one by one, from +0; named by their index
    std::vector<TraceNode> parts;
    std::vector<std::pair<TraceValue, TraceValue>> sums;  ///< per part: the part as it was added, the sum after it
    std::vector<TraceFact> facts;                         ///< in the order in which they were computed
};

/// How one element of an op's output was computed. A by-product of the definitions (arch/dot.cpp, emu/gemm.cpp,
/// emu/attention/flash_scalar.cpp, emu/lane_sum.cpp), which report what they do to an observer.
struct Trace {
    std::string op, gpu, kernel;
    std::string arithmetic;  ///< of the instruction, "" if there is none
    std::string order;       ///< of the whole sum, in one line
    std::vector<std::int64_t> element;
    TraceNode root;
    TraceValue result;                   ///< the op's output: the root rounded, after its epilogue if it has one
    std::optional<TraceValue> expected;  ///< what was recorded there
};

/// Something to trace instead of what the manifest says; empty: as recorded.
struct TraceVariant {
    std::string gpu = {}, kernel = {}, params = {};  ///< params: JSON object
    bool empty() const noexcept { return gpu.empty() && kernel.empty() && params.empty(); }
};

/// Traces one output element of an op of a manifest (LAYER.STAGE for a stage). `element`: one index per dimension, or
/// row and column with the leading dimensions folded. Matrix products, flash attention, reductions and Hugging Face's
/// RMSNorm (its mean of squares). Throws NotModelled for other ops, InputError for an element outside.
Trace explain(const Manifest& manifest,
              const std::string& op,
              const std::vector<std::int64_t>& element,
              const TraceVariant& variant = {});

/// Where two traces of the same sum part for the first time.
struct Parting {
    bool apart = false;
    std::string where, why;                                         ///< for people
    std::optional<std::pair<std::int64_t, std::int64_t>> summands;  ///< [first, last) of the step, where it is one
    std::optional<TraceValue> a, b;                                 ///< the running values after it
};
Parting first_difference(const Trace& a, const Trace& b);

/// "2^-12 (0.000244140625)" of a value significand * 2^exponent; "0".
std::string exact_value(std::int64_t significand, int exponent);
/// "0x3f80 (1)"
std::string show(const TraceValue& value);

}  // namespace bitreplay
