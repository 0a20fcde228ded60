#pragma once

#include <cstdint>
#include <span>

#include "arch/gpu.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

/// Hugging Face's apply_rotary_pos_emb: x [M, heads, d], cos and sin [M, d], all of one format (bf16 or fp32).
/// out = round(round(x*cos) + round(rotated*sin)), rotated = (-second half, first half).
Tensor rope_hf(const Tensor& x, const Tensor& cos, const Tensor& sin);

struct RopeTable {
    Tensor cos, sin;  ///< [positions, d], the second half repeats the first
};
/// Hugging Face's rotary embedding on the GPU: angle = inv_freq*float(position), one FP32 rounding; CUDA's cosf and
/// sinf; rounded to `result`. inv_freq: fp32 [d/2], as computed on the CPU (it is not recomputed here).
RopeTable rope_table(const Gpu& gpu,
                     const Tensor& inv_freq,
                     std::span<const std::int64_t> positions,
                     const Format& result);

}  // namespace bitreplay
