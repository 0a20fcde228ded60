#pragma once

#include "emu/cuda_math.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

/// fn(x), element by element, as a PyTorch elementwise kernel: x (fp32, bf16 or fp16) widened to FP32, the function, one
/// rounding to `result` (nearest even). NotModelled for other formats.
Tensor unary(const Mufu& unit, const cuda::Unary& fn, const Tensor& x, const Format& result);

/// A special-function instruction on every element: x holds codes of the form's format (the packed forms act on each
/// element alone); InputError otherwise.
Tensor mufu(const Mufu& unit, const MufuForm& form, const Tensor& x);

}  // namespace bitreplay
