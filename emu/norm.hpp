#pragma once

#include <cstdint>

#include "arch/gpu.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

/// Hugging Face's RMSNorm over the last dimension, the ops that its Python code launches (x to fp32, pow(2), mean,
/// +eps, rsqrt, two multiplications): h = fp32(x); y = round(h * rsqrt(mean(h*h) + eps)); out = round(weight * y), both
/// rounded to x's format, the second to `result`.
struct RmsNormTask {
    const Gpu& gpu;
    const Tensor& x;       ///< fp32 or bf16, [..., H]
    const Tensor& weight;  ///< [H]
    double eps;            ///< used as FP32
    Format result;
};
Tensor rms_norm_hf(const RmsNormTask& task);

/// torch 2.11's layer_norm, or its fused rms_norm. One format, fp32 or bf16, for x, weight, bias and result.
/// Throws NotModelled for mixed formats, a bias without weight, and rows of more than 2^24 elements.
struct LayerNormTask {
    const Gpu& gpu;
    const Tensor& x;                 ///< [..., H], contiguous, on a 16-byte boundary
    const Tensor* weight = nullptr;  ///< [H], or none
    const Tensor* bias = nullptr;    ///< [H], or none
    double eps;                      ///< used as FP32
    Format result;
    bool rms = false;  ///< rms_norm: no mean, no bias
};
struct LayerNormResult {
    Tensor y;     ///< shape of x
    Tensor mean;  ///< fp32, shape of x without H; all zero for rms
    Tensor rstd;  ///< fp32, the same shape
};
LayerNormResult layer_norm(const LayerNormTask& task);

}  // namespace bitreplay
