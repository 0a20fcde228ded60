#pragma once

#include "emu/gemm_epilogue.hpp"
#include "emu/ops/op.hpp"

namespace bitreplay {

/// The operands of a product as the op was given them: x [.., M, K] and w [N, K], or [B, M, K] and [B, N, K].
struct GemmOperands {
    Tensor x, w;
    std::int64_t batch = 1;
    bool batched = false;  ///< the output is [B, M, N]
};

/// The matrix with every element rounded to the nearest code of `format` (even on a tie): how a kernel reads operands of
/// another format, FP32 as TF32 (operand_format()).
Tensor rounded_to(const Format& format, const Tensor& x);

/// x·wᵀ in the order of the recorded kernel, then the epilogue and one rounding to `out_format` (nearest even): the
/// whole of every matrix product op. Only the rows, columns and entries that the request selects. `is_bias`: the addend
/// is added by the kernel's bias epilogue, not as alpha·acc + beta·c; the recipe says how (the orders of `epilogue` are
/// filled in here). Reads the recipe's parameters and finishes request.params. InputError and NotModelled name the op.
OpResult gemm_product(const OpRequest& request,
                      const GemmOperands& operands,
                      const Format& out_format,
                      GemmEpilogue epilogue,
                      bool is_bias);

}  // namespace bitreplay
