#pragma once

#include "emu/gemm.hpp"

namespace bitreplay {

/// gemm_accumulators for a rule of FP32 multiply-adds (is_fp32_chain), with vector kernels: the bits of the scalar
/// definition for every plan, operand and thread count. task.kernel restricts it to one row of simd/fp32_kernels.inc.
Tensor gemm_fma(const GemmTask& task);

}  // namespace bitreplay
