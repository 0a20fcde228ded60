#pragma once

#include "arch/gpu.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

struct SoftmaxTask {
    const Gpu& gpu;
    const Tensor& x;   ///< fp32 or bf16, contiguous, on a 16-byte boundary; softmax over the last dimension
    Format result;     ///< of x; otherwise the fp32 kernel, x converted before it or the result after it
    bool log = false;  ///< log_softmax
};

/// softmax(x, -1) or log_softmax(x, -1) as torch 2.11 computes it. Throws NotModelled for other formats.
Tensor softmax(const SoftmaxTask& task);

}  // namespace bitreplay
