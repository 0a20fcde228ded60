#pragma once

#include <cstdint>
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

}  // namespace bitreplay::torch_cpu
