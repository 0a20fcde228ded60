#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emu/compare.hpp"
#include "emu/io/manifest.hpp"
#include "emu/ops/op.hpp"

namespace bitreplay {

struct ReplayOptions {
    std::vector<std::string> stages;  ///< only these checks (op id, or output or stage name); empty: all
    bool recorded = false;            ///< feed ops with recorded tensors where the manifest has them
    std::size_t max_first = 5;        ///< differences listed per check
    /// Called before each op: its id, position and the number of ops.
    std::function<void(const std::string&, std::size_t, std::size_t)> progress;
    /// Called after each op, and each stage of a layer, with its name ("op" or "layer.stage"), what it was asked and its
    /// outputs. Outputs are then computed whole, whatever was sampled.
    std::function<void(const std::string&, const OpRequest&, const std::map<std::string, Tensor>&)> ran = {};
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

/// whole[rows][..., cols], or with a batch whole[batch][:, rows][:, :, cols]: the part of an output that was sampled; absent
/// means all. Throws InputError for an index outside.
Tensor sampled(const Tensor& whole,
               const std::optional<std::vector<std::int64_t>>& rows,
               const std::optional<std::vector<std::int64_t>>& cols,
               const std::optional<std::vector<std::int64_t>>& batch = {});

/// The shape of sampled(whole, rows, cols) for an output that need not be there yet; the same errors.
std::vector<std::int64_t> sampled_shape(const Outline& whole,
                                        const std::optional<std::vector<std::int64_t>>& rows,
                                        const std::optional<std::vector<std::int64_t>>& cols);

/// What a manifest expects of one output.
struct RecordedOutput {
    std::string name;        ///< "" for the only one
    Tensor values;           ///< whole or sampled; has no elements where only a digest was recorded
    std::string sha256;      ///< of the whole output; "" where values were recorded
    bool exact_nan = true;   ///< false: any NaN equals any NaN
    std::optional<std::vector<std::int64_t>> rows, cols;  ///< what was sampled of the first and the last dimension
};

/// One op of a manifest, or one stage of a layer, ready to run.
struct RecordedOp {
    std::string name;                     ///< "q_proj", or "layer.down" for a stage
    std::string stage;                    ///< "down", or ""
    OpRequest request;                    ///< its inputs are whole; rows and cols say what was sampled
    std::vector<RecordedOutput> outputs;  ///< what was recorded of its outputs, the main one first
};

/// A tensor of a manifest, read or generated.
Tensor load_tensor(const Manifest& manifest, const std::string& name);

/// The names that recorded_op knows: every op with an "expect", and for a layer its stages.
std::vector<std::string> recorded_op_names(const Manifest& manifest);

/// The op (or LAYER.STAGE) of that name; "" means the only one that has an "expect". Its inputs are recorded tensors where
/// the manifest has them, and otherwise computed by the ops before it. `element`: only this row and column of the output
/// are needed. Throws InputError for a name that is not there, NotModelled if an op before it is not modelled.
RecordedOp recorded_op(const Manifest& manifest,
                       const std::string& name,
                       const std::optional<std::pair<std::int64_t, std::int64_t>>& element = {});

}  // namespace bitreplay
