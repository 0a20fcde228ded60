#pragma once

#include "emu/attention.hpp"
#include "emu/ops/op.hpp"

namespace bitreplay {

/// Attention as Hugging Face writes it out in PyTorch ("eager"): scores = q·kᵀ, scaled, plus a mask, softmax in FP32, times v,
/// every step rounded to the format of q. Output "o" only.
///
/// params: causal, scale, and for the two matrix products `scores` and `context` {"kernel" or "kernel_names", "params"} as
/// of a linear op. A product left out is cuBLAS's nvjet in one walk where cuBLAS is known to choose it (dimensions that are
/// multiples of 8); otherwise the op is not modelled.
OpResult run_eager_attention(const OpRequest& request);

/// Whether a list of recorded CUDA kernel names is eager attention: two matrix products around a softmax.
bool is_eager_attention(const std::vector<std::string>& kernel_names);

/// The flash-attention call of a request whose kernel is one of the builds in reduction_trees/attention. Throws NotModelled
/// if it is not, InputError for parameters or a recorded kernel that do not fit.
FlashCall flash_call(const OpRequest& request);

/// FP32 code of the scale: the parameter, or 1/sqrt(head dimension).
std::uint32_t attention_scale(const OpRequest& request);

}  // namespace bitreplay
