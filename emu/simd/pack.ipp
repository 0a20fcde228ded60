// Packing of bf16 operands for the exact walk, sixteen columns at a time (AVX-512).
#include "emu/simd/pack.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

/// The largest of 32 unsigned words.
BITREPLAY_INLINE inline int largest_word(I words) {
    return _mm512_reduce_max_epi32(
        _mm512_max_epu16(Simd::template shift_right<16>(words), Simd::band(words, constant(0xFFFF))));
}

std::uint16_t largest_magnitude(const std::uint16_t* codes, std::int64_t count) noexcept {
    const I magnitude = _mm512_set1_epi16(0x7FFF);
    I most = constant(0);
    for (std::int64_t k = 0; k < count; k += 32) {
        const __mmask32 valid = count - k < 32 ? (1U << (count - k)) - 1 : ~0U;
        most = _mm512_max_epu16(most, Simd::band(_mm512_maskz_loadu_epi16(valid, codes + k), magnitude));
    }
    return static_cast<std::uint16_t>(largest_word(most));
}

/// Exponents, relative to the largest, of bf16 codes in the upper halves of words; bias: 127 + the largest.
BITREPLAY_INLINE inline I relative_exponents(I codes, I bias) {
    const I magnitude = Simd::band(codes, constant(0x7FFFFFFF));
    // Subnormals count with the smallest normal exponent.
    const I field = Simd::max(Simd::template shift_right<23>(magnitude), constant(1));
    return Simd::select(Simd::equal(magnitude, constant(0)),
                        constant(simd::exponent_floor),
                        Simd::max(Simd::sub(field, bias), constant(simd::exponent_floor)));
}

void pack_row(
    const std::uint16_t* codes, std::int64_t depth, std::int32_t top, float* values, std::uint32_t* scale) noexcept {
    const I bias = constant(top + 127);
    // The lowest byte of each word four times over.
    const I replicated = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C));
    for (std::int64_t k = 0; k < depth; k += 16) {
        const __mmask16 valid = static_cast<__mmask16>(depth - k < 16 ? (1U << (depth - k)) - 1 : all_lanes);
        const I words =
            Simd::template shift_left<16>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(valid, codes + k)));
        _mm512_mask_storeu_epi32(values + k, valid, words);
        _mm512_mask_storeu_epi32(scale + k, valid, _mm512_shuffle_epi8(relative_exponents(words, bias), replicated));
    }
}

void pack_columns(const std::uint16_t* const* codes,
                  std::int64_t depth,
                  std::int32_t top,
                  float* values,
                  std::int8_t* scale) noexcept {
    const I bias = constant(top + 127), upper = constant(static_cast<std::int32_t>(0xFFFF0000));
    const std::uint32_t* pairs[16];
    for (int j = 0; j < 16; ++j) pairs[j] = reinterpret_cast<const std::uint32_t*>(codes[j]);
    std::int64_t k = 0;
    const auto row = [&](std::int64_t at, I x) BITREPLAY_INLINE {
        _mm512_storeu_si512(values + at * simd::panel_columns, x);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(scale + at * simd::panel_columns),
                         _mm512_cvtepi32_epi8(relative_exponents(x, bias)));
    };
    for (; k + 32 <= depth; k += 32) {
        I words[16];
        transpose(pairs, k / 2, words);
        unrolled<16>([&](auto u) BITREPLAY_INLINE {
            row(k + 2 * u.number, Simd::template shift_left<16>(words[u.value]));
            row(k + 2 * u.number + 1, Simd::band(words[u.value], upper));
        });
    }
    for (; k < depth; ++k) {
        alignas(64) std::int32_t column[16];
        for (int j = 0; j < 16; ++j) column[j] = static_cast<std::int32_t>(std::uint32_t{codes[j][k]} << 16);
        row(k, Simd::load(column));
    }
}

constexpr simd::PackKernels pack_table{largest_magnitude, pack_row, pack_columns};

}  // namespace

const simd::PackKernels* pack_kernels() noexcept { return &pack_table; }

}  // namespace bitreplay::BITREPLAY_ISA
