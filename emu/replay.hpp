#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emu/compare.hpp"
#include "emu/io/manifest.hpp"

namespace bitreplay {

struct ReplayOptions {
    std::vector<std::string> stages;  ///< only these checks (op id, or output or stage name); empty: all
    bool recorded = false;            ///< feed ops with recorded tensors where the manifest has them
    std::size_t max_first = 5;        ///< differences listed per check
    /// Called before each op: its id, position and the number of ops.
    std::function<void(const std::string&, std::size_t, std::size_t)> progress;
};

/// One output compared with what was recorded.
struct Check {
    std::string id;      ///< of the op
    std::string output;  ///< "" for the only one
    Format format;
    Comparison comparison;
    /// For an expected SHA-256: both digests. comparison.different is then 0 or 1, meaning none or at least one.
    std::string expected_sha256, actual_sha256;
};

/// An op that was not computed, and why.
struct Skipped {
    std::string id, reason;
};

struct ReplayReport {
    std::vector<Check> checks;
    std::vector<Skipped> not_modelled;
    std::vector<std::string> warnings;
    bool different() const noexcept;
    /// "equal", "different" or "not_modelled"; a difference outweighs an op without a model.
    std::string result() const;
    /// 0, 1 or 3, as the CLI exits.
    int exit_code() const noexcept;
};

/// Runs the ops of a manifest in order and compares. An op without a model, and those fed by it, are listed and left out.
/// Throws InputError (with the manifest's path) for inconsistent input: shapes, types, missing tensors, unknown keys, an
/// unknown stage, nothing to compare.
ReplayReport replay(const Manifest& manifest, const ReplayOptions& options);

}  // namespace bitreplay
