#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emu/explain.hpp"

namespace bitreplay {

/// Elements that both sides have, and how many of them differ.
struct Overlap {
    std::int64_t compared = 0, different = 0;
};

/// Two manifests of one computation, op by op (layers stage by stage). Elements are matched by their indices: row i of
/// one side is row i of the other, so the first tokens of a larger batch are compared with those of a smaller one.
struct ManifestDiff {
    std::vector<std::string> equal;                    ///< ops and stages before the first difference
    std::string first;                                 ///< the first that differs; "" if none does
    std::string op;                                    ///< its kind
    Overlap computed, recorded;                        ///< at the first that differs
    std::optional<std::vector<std::int64_t>> element;  ///< of its output: the first that differs, computed if any
    std::optional<TraceValue> a, b;                    ///< there
    std::vector<std::string> inputs;                   ///< inputs of it that differ already (then nothing more is said)
    std::vector<std::string> changes;  ///< what differs in GPU, kernel, parameters, order, shape: "split_k 5 -> 3"
    /// What of the second side, put into the first, gives the second side's output there: "gpu", "kernel and
    /// parameters", or both together. Empty: nothing does (or nothing could be computed).
    std::string explained_by;
    std::vector<std::string> not_modelled;  ///< ops that could not be computed on a side, and why
};

/// Runs both manifests, each op fed by those before it, and compares. Throws InputError if they have no op in common.
ManifestDiff diff(const Manifest& a, const Manifest& b);

}  // namespace bitreplay
