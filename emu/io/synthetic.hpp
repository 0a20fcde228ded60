#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emu/tensor.hpp"

namespace bitreplay {

/// How the last dimension (k = 0 … K−1) of a synthetic tensor is mirrored, so that the dot product of an even and an
/// odd one is exactly 0. With v the plain tensor of the same shape and j = min(k, K−1−k):
enum class Mirror : std::uint8_t {
    none,
    even,  ///< v[…, j]
    odd,   ///< s·v[…, j], s = 1, 0, −1 for k <, =, > K−1−k
};

/// What is made of z = splitmix64(seed + (i+1)·0x9E3779B97F4A7C15) for element i (row-major).
enum class Generator : std::uint8_t {
    ih4,  ///< "splitmix64-ih4": n·2^(exp2−15), n the sum of z's four signed 16-bit fields
    u53,  ///< "splitmix64-u53": n·2^(exp2−52), n the upper 53 bits of z, signed: for FP64, whose sums of ih4 values are exact
};

/// The counter-based inputs of the captures. `plus` (an fp32 code; ih4 only) is added in fp32; the result is rounded to
/// `format` (nearest even; beyond the largest finite value: infinity, or NaN for e4m3).
struct SyntheticSpec {
    Generator generator = Generator::ih4;
    std::uint64_t seed = 0;
    int exp2 = 0;  ///< from −134 to 125: every value is exact in fp32
    std::optional<std::uint32_t> plus = {};
    Mirror mirror = Mirror::none;
    Format format = fp32;
    std::vector<std::int64_t> shape = {};
};

/// The whole tensor. Throws InputError for an exp2 out of range or an impossible shape.
Tensor synthetic(const SyntheticSpec& spec);

/// Only the listed rows (of the tensor seen as [product of the leading dimensions, last dimension]), as [rows, cols].
/// Throws InputError for a row that does not exist.
Tensor synthetic_rows(const SyntheticSpec& spec, std::span<const std::int64_t> rows);

}  // namespace bitreplay
