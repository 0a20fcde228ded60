#pragma once

#include <cstdint>

#include "emu/tensor.hpp"

namespace bitreplay {

enum class Binary : std::uint8_t { add, mul };

/// a op b, element by element: both widened to FP32, one operation, rounded to `result` (nearest even). b or a may be a
/// single element (a Python scalar used as FP32); otherwise the shapes are equal. Formats fp32, bf16, fp16.
Tensor binary(Binary op, const Tensor& a, const Tensor& b, const Format& result);

}  // namespace bitreplay
