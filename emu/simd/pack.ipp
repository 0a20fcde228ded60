// Packing of bf16 operands for the exact walk, sixteen columns at a time (AVX-512).
#include "emu/simd/pack.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

std::uint16_t largest_magnitude(const std::uint16_t* codes, std::int64_t count) noexcept {
    const I magnitude = _mm512_set1_epi16(0x7FFF);
    I most = constant(0);
    for (std::int64_t k = 0; k < count; k += 32) {
        const __mmask32 valid = count - k < 32 ? (1U << (count - k)) - 1 : ~0U;
        most = _mm512_max_epu16(most, Simd::band(_mm512_maskz_loadu_epi16(valid, codes + k), magnitude));
    }
    const I both = _mm512_max_epu16(Simd::template shift_right<16>(most), Simd::band(most, constant(0xFFFF)));
    return static_cast<std::uint16_t>(_mm512_reduce_max_epi32(both));
}

/// One row of sixteen columns: bf16 codes in the upper halves, the lower ones zero.
BITREPLAY_INLINE inline void pack_row_of(I codes, I bias, float* values, std::int8_t* scale) {
    const I magnitude = Simd::band(codes, constant(0x7FFFFFFF));
    // Subnormals count with the smallest normal exponent.
    const I field = Simd::max(Simd::template shift_right<23>(magnitude), constant(1));
    const I relative = Simd::select(Simd::equal(magnitude, constant(0)),
                                    constant(simd::exponent_floor),
                                    Simd::max(Simd::sub(field, bias), constant(simd::exponent_floor)));
    _mm512_storeu_si512(values, codes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scale), _mm512_cvtepi32_epi8(relative));
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
        pack_row_of(x, bias, values + at * simd::panel_columns, scale + at * simd::panel_columns);
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

constexpr simd::PackKernels pack_table{largest_magnitude, pack_columns};

}  // namespace

const simd::PackKernels* pack_row() noexcept { return &pack_table; }

}  // namespace bitreplay::BITREPLAY_ISA
