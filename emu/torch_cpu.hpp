#pragma once

#include <cstdint>
#include <span>
#include <vector>

// What PyTorch 2.11 computes on the host before a GPU kernel runs, FP32 bit patterns.
namespace bitreplay::torch_cpu {

/// pow of PyTorch's vectorised CPU kernels (the algorithm of SLEEF's powf with 1.0 ulp: logarithm in two floats, product,
/// exponential; it is not correctly rounded). Only for positive normal x and results from 2^-100 to 2^100: NotModelled
/// otherwise. Source: the published algorithm; equal on 1,248 captured values, of which 8 differ from correct rounding.
std::uint32_t powf(std::uint32_t x, std::uint32_t y);

/// Rotary frequencies as models compute them on the host, i = 0 … dim/2 − 1: 1 / pow(theta, float(2i) / float(dim)).
/// InputError for a dim that is not even and positive; NotModelled as powf.
std::vector<std::uint32_t> inverse_frequencies(std::uint32_t theta, std::int64_t dim);

/// rope_type "llama3" of transformers, the numbers of its config.
struct Llama3Scaling {
    double factor, low_factor, high_factor, original_length;
};

/// Scales rotary frequencies as transformers' llama3 type does, operation by operation in FP32 (a Python number over a tensor
/// is PyTorch's reciprocal times the number; a tensor over a number is a true division). Source: the code of
/// transformers and PyTorch; equal on the captured table of Llama-3.1 (64 frequencies, 6 of them interpolated).
void scale_llama3(std::span<std::uint32_t> frequencies, const Llama3Scaling& scaling);

}  // namespace bitreplay::torch_cpu
