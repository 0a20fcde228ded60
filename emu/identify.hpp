#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emu/replay.hpp"

namespace bitreplay {

struct IdentifyOptions {
    std::string gpu = {};     ///< only this GPU; "": one of each kind of arithmetic, all of that kind being named
    std::string kernel = {};  ///< only this recipe
    std::map<std::string, std::string> fixed = {};  ///< parameters with a known value, as JSON text
    std::int64_t max_parts = 32;                    ///< largest number of parts (split_k, slices, splits) that is tried
    /// Outputs on which survivors and the closest rejected candidates are compared; 0: as many as take about a second
    /// each; negative: all that were recorded.
    std::int64_t max_compared = 0;
    /// SHA-256 of the whole output, if it is known beside a sample: what reproduces the sample is then computed in
    /// full.
    std::string sha256 = {};
    std::function<void(const std::string&)> progress = {};
};

/// One way to name a computation.
struct CandidateName {
    std::vector<std::string> gpus;
    std::string kernel;
    std::string params;  ///< JSON object
};

/// Candidates with the same arithmetic in the same order: no data can tell them apart.
struct CandidateGroup {
    std::string effect;                ///< the arithmetic and the order in one line, for people
    std::vector<CandidateName> names;  ///< the plainest first
    std::int64_t compared = 0, different = 0;
    std::optional<bool> digest = {};  ///< whether the whole output has the recorded SHA-256, where that was checked
};

/// The outcome of a search.
struct IdentifyReport {
    std::string op;
    std::int64_t recorded = 0;          ///< outputs that were recorded
    std::int64_t compared = 0;          ///< of them, those on which every survivor was compared
    std::int64_t candidates = 0;        ///< names tried
    std::int64_t distinct = 0;          ///< different in arithmetic or order
    std::vector<CandidateGroup> found;  ///< those that reproduce every compared output, and the digest if there is one
    std::vector<CandidateGroup> runners_up;  ///< the closest of the others, on the same outputs, closest first
    /// How many of the compared outputs the closest rejected candidate gets wrong. Each of them alone rejects it. 0 if
    /// there is no other candidate, or if only the digest rejects it.
    std::int64_t separation = 0;
    /// 0 one or more found, 1 none, as the CLI exits.
    int exit_code() const noexcept { return found.empty() ? 1 : 0; }
};

/// Searches for what computed an op's recorded outputs: every kind of GPU arithmetic x kernel recipe x parameters, for
/// matrix products, flash attention and row reductions. A parameter with few values takes all of them, numbers of parts
/// 1 to max_parts, sizes the powers of two from 16 to 256. Candidates run through the op itself. Wrong ones die after a
/// few outputs: the first ones compared are those whose unrounded value lies closest to where the rounding tips over.
/// Throws NotModelled for other ops, InputError where only a digest was recorded and too many candidates are left.
IdentifyReport identify(const RecordedOp& op, const IdentifyOptions& options);

}  // namespace bitreplay
