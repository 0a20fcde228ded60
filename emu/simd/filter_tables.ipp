// What the filter's bound needs to know about a stretch of operands (simd::FilterSegment), 32 codes at a time.
#include "emu/simd/filter.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::FilterSegment;

/// Number of set bits of words below 256.
BITREPLAY_INLINE inline I bits_set(I x) {
    const I nibble = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const I low = _mm512_set1_epi16(0x0F);
    return _mm512_add_epi16(_mm512_shuffle_epi8(nibble, Simd::band(x, low)),
                            _mm512_shuffle_epi8(nibble, Simd::band(_mm512_srli_epi16(x, 4), low)));
}

/// Weights of the even and the odd products of 32: filter_roundings, by pairs.
struct Weights {
    alignas(64) float even[16], odd[16];

    explicit Weights(int block) {
        for (int u = 0; u < 16; ++u) {
            even[u] = static_cast<float>(simd::filter_roundings(block, 2 * u % block));
            odd[u] = static_cast<float>(simd::filter_roundings(block, (2 * u + 1) % block));
        }
    }
};
const Weights& weights(int block) {
    static const Weights four(4), eight(8), sixteen(16);
    return block == 4 ? four : block == 8 ? eight : sixteen;
}

void describe(const std::uint16_t* codes, std::int64_t size, int block, FilterSegment& out) noexcept {
    const auto words = [](int x) { return _mm512_set1_epi16(static_cast<short>(x)); };
    const F weight_even = Simd::load(weights(block).even), weight_odd = Simd::load(weights(block).odd);
    alignas(64) std::uint16_t places[simd::segment_products + 32];  // of the lowest bit, 8 up; 0xFFFF for zeros
    I largest = constant(0);
    F even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    std::uint32_t subnormal = 0;
    int count = 0;
    for (std::int64_t k = 0; k < size; k += 32) {
        const __mmask32 valid = size - k < 32 ? (1U << (size - k)) - 1 : ~0U;
        const I magnitude = Simd::band(_mm512_maskz_loadu_epi16(valid, codes + k), words(0x7FFF));
        const I field = _mm512_srli_epi16(magnitude, 7);
        const __mmask32 some = _mm512_test_epi16_mask(magnitude, magnitude);
        subnormal |= some & ~_mm512_test_epi16_mask(field, field);
        count += __builtin_popcount(some);
        largest = _mm512_max_epu16(largest, field);
        const I fraction = Simd::bor(Simd::band(magnitude, words(0x7F)), words(0x80));
        const I below =
            _mm512_andnot_si512(fraction, _mm512_sub_epi16(fraction, words(1)));  // the bits under the lowest
        const I place = _mm512_add_epi16(_mm512_add_epi16(field, bits_set(below)), words(1));
        Simd::store(reinterpret_cast<std::int32_t*>(places + k), _mm512_mask_mov_epi16(words(-1), some, place));
        const F x = Simd::real(Simd::template shift_left<16>(magnitude));
        const F y = Simd::real(Simd::band(magnitude, constant(static_cast<std::int32_t>(0xFFFF0000))));
        even = _mm512_fmadd_ps(Simd::mul(x, x), weight_even, even);
        odd = _mm512_fmadd_ps(Simd::mul(y, y), weight_odd, odd);
    }
    const int fields = largest_word(largest), top = fields > 1 ? fields : 1;
    out.top_field = top;
    out.count = count;
    out.unfit = subnormal != 0 || top > 127 + simd::filter_exponent;
    // r = top + 8 - place; entry i counts r >= i, that is depth r + 1 > i.
    alignas(64) std::uint8_t depths[simd::segment_products + 64];  // zeros: 0
    std::int64_t filled = 0;
    for (std::int64_t k = 0; k < size; k += 32, filled += 32) {
        const I place = _mm512_loadu_si512(places + k);
        const I depth = _mm512_subs_epu16(words(top + 9), place);
        _mm256_store_si256(reinterpret_cast<__m256i*>(depths + k), _mm512_cvtusepi16_epi8(depth));
    }
    if (filled % 64 != 0) _mm256_store_si256(reinterpret_cast<__m256i*>(depths + filled), _mm256_setzero_si256());
    std::int64_t deeper = 1;
    for (int i = 0; i < simd::depth_levels; ++i) {
        out.deeper[i] = 0;
        if (deeper == 0) continue;  // nothing lies deeper still
        const I level = _mm512_set1_epi8(static_cast<char>(i));
        deeper = 0;
        for (std::int64_t k = 0; k < filled; k += 64)
            deeper += __builtin_popcountll(_mm512_cmpgt_epu8_mask(_mm512_load_si512(depths + k), level));
        out.deeper[i] = static_cast<std::uint16_t>(deeper);
    }
    // Rounded up: 40 roundings at most on the way of each square, squares below 2^-149 lost (2^9 of them, r <= 8).
    const float sum = _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
    out.norm = out.unfit
                   ? 0.0F
                   : _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum * (1.0F + 0x1p-17F) + 0x1p-130F))) * (1.0F + 0x1p-22F);
}

}  // namespace
}  // namespace bitreplay::BITREPLAY_ISA
