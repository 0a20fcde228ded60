#pragma once

#include "emu/gemm.hpp"

namespace bitreplay {

/// Whether a rule is a chain of FP64 multiply-adds in the order of k.
bool is_fp64_chain(const DotRule& rule) noexcept;

/// gemm_accumulators for such a rule, several columns at a time: the bits of the scalar definition for every plan, operand
/// and thread count.
Tensor gemm_fp64(const GemmTask& task);

}  // namespace bitreplay
