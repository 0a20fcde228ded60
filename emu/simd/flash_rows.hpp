#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace bitreplay::simd {

/// Query rows that a flash-attention kernel below works on together, one per lane; arrays are [..][flash_rows].
inline constexpr int flash_rows = 64;

/// The interpolation table of ex2 (Mufu::ex2_curve): value = constant + linear·x + square·S(x), exact in double, x the
/// `low_bits` low bits of the fraction; a value is 2^fraction in [1, 2) times a power of two.
struct Ex2Table {
    const double *constant, *linear, *square;
    int low_bits;
};

/// The FP32 loops of flash attention over a tile of scores, [keys][flash_rows]. No input is NaN or +inf; −inf stands for a
/// masked score. Every operation is the scalar one of arch/fp32.hpp.
struct FlashRowKernels {
    std::string_view name;
    /// max[r] = the larger of itself and of all s[j][r].
    void (*column_max)(const float* s, std::int64_t keys, float* max);
    /// out[r] = (old_max[r] − m)·scale, m = max[r], or 0 if that is −inf.
    void (*rescale_arguments)(const float* old_max, const float* max, float scale, float* out);
    /// s[j][r] = s[j][r]·scale − m, m = max[r]·scale, or 0 if max[r] is −inf.
    void (*arguments)(float* s, std::int64_t keys, const float* max, float scale);
    /// x[i][r] = ex2.approx.f32(x[i][r]) for numbers that are not positive, and −inf.
    void (*exp2)(float* x, std::int64_t count, const Ex2Table& table);
    /// sums[t][r]: adds p[j][r] for the keys j of lane t (j mod 8 / 2 = t) in order; the first by fma(sums, rescale, p), or,
    /// without rescale, as the start. keys is a multiple of 8.
    void (*add_sums)(const float* p, std::int64_t keys, const float* rescale, float* sums);
    /// x[i][r] = x[i][r]·factor[r].
    void (*multiply)(float* x, std::int64_t count, const float* factor);
    /// p[j][r], not negative, rounded to nearest even, in place; scale = its exponent (not below min_exponent), zero and
    /// everything below −63: −64.
    void (*round_bf16)(float* p, std::int64_t count, std::int8_t* scale);
    void (*round_fp16)(float* p, std::int64_t count, std::int8_t* scale);
};

/// The rows of flash_rows.inc that this CPU supports, fastest first; may be empty.
std::vector<const FlashRowKernels*> flash_row_kernels();

}  // namespace bitreplay::simd
