#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/gpu.hpp"
#include "emu/params.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/cublaslt_log.hpp"

namespace bitreplay {

/// The rows of a matrix that an input holds: row i is row index[i] of `of` rows.
struct InputPart {
    std::vector<std::int64_t> index;
    std::int64_t of;
};

/// One op of a manifest, its tensors resolved. Batch dimensions are as recorded; FORMAT's shapes are checked by the op.
struct OpRequest {
    std::string id;      ///< for messages
    std::string op;      ///< "linear"
    const Gpu& gpu;
    std::string kernel;  ///< the manifest's "kernel", "" if absent
    std::vector<std::string> kernel_names;  ///< recorded CUDA kernel names, in launch order
    Params params;
    std::map<std::string, Tensor> in;
    std::optional<Format> out_format;
    /// config.json of the checkpoint that the input `weights` comes from.
    std::optional<Params> config = {};
    /// With --inputs recorded: whole recorded outputs of this op by output name. An op of several stages feeds each
    /// stage with the recorded tensors of the stages before it.
    std::map<std::string, Tensor> recorded;
    /// Which part of the (single) output is needed: first dimension and last dimension; absent means all.
    std::optional<std::vector<std::int64_t>> rows, cols;
    /// What cuBLASLt logged of a matrix product.
    std::optional<CublasLtFields> cublaslt = std::nullopt;
    /// Entries of the first dimension of an output [B, M, N]; rows then select from M.
    std::optional<std::vector<std::int64_t>> batch = std::nullopt;
    /// Where x or w holds only some rows of the recorded tensor: which.
    std::optional<InputPart> x_part = std::nullopt, w_part = std::nullopt;
    /// An op made of others (a layer) calls it with each of them before it runs, and the stage's name.
    std::function<void(const std::string& stage, const OpRequest&)> observe = {};

    /// Takes over what a stage of this op recorded of its kernel: "kernel", "kernel_names", "cublaslt", and "params", which
    /// join those that are there. Rejects other keys.
    void take_kernel(const Params& spec);
    /// The input of that name; InputError "id: missing input" otherwise.
    const Tensor& input(const std::string& name) const;
    /// InputError about this op: "op id: reason".
    [[noreturn]] void fail(const std::string& reason) const;
    /// NotModelled about this op: "op id: reason".
    [[noreturn]] void not_modelled(const std::string& reason) const;
    /// Rejects inputs other than these (names ending in '?' are optional) and missing ones.
    void check_inputs(std::span<const std::string_view> names) const;
};

/// What an op computed: outputs by name ("" for the only one; "o" and "lse", "cos" and "sin", or stage names).
struct OpResult {
    std::map<std::string, Tensor> out;
    std::string main;                    ///< the output that a manifest means when it names none ("o" of an attention)
    bool selected = false;               ///< true: the only output is out[rows][:, cols] of the request, not the whole
    /// Outputs that could not be computed, and why ("" for all that are not in `out`): an op of many stages still returns
    /// those that came out.
    std::map<std::string, std::string> not_modelled;
    std::vector<std::string> warnings;  ///< for the report: faults of the recorded kernel that were reproduced
};

using OpFunction = OpResult (*)(const OpRequest&);

/// The function behind an op name, or nullptr. The list is ops.inc: one line per op.
OpFunction find_op(std::string_view name) noexcept;
/// All op names of the list.
std::vector<std::string_view> op_names();

}  // namespace bitreplay
