#if defined(__x86_64__)
#include <immintrin.h>
#include <cstdint>

#define BITREPLAY_ISA avx2
namespace bitreplay::avx2 {
namespace {

/// 8 fp32 or int32 lanes. Instructions round as MXCSR says: towards zero inside the kernels (TowardZero).
struct Simd {
    using F = __m256;
    using I = __m256i;
    static constexpr int lanes = 8, columns = 32;

    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
    static I load(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static void store(std::int32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
    static F broadcast(float x) { return _mm256_set1_ps(x); }
    static I broadcast(std::int32_t x) { return _mm256_set1_epi32(x); }
    static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
    static F mul_toward_zero(F x, F y) { return _mm256_mul_ps(x, y); }
    static void pin(I& x) { asm volatile("" : "+x"(x)); }
    static F add_nearest(F x, F y) { return _mm256_add_ps(x, y); }
    static I truncate(F x) { return _mm256_cvttps_epi32(x); }
    static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
    static I bits(F x) { return _mm256_castps_si256(x); }
    static F real(I x) { return _mm256_castsi256_ps(x); }
    static I add(I x, I y) { return _mm256_add_epi32(x, y); }
    static I sub(I x, I y) { return _mm256_sub_epi32(x, y); }
    static I max(I x, I y) { return _mm256_max_epi32(x, y); }
    static I min(I x, I y) { return _mm256_min_epi32(x, y); }
    static I band(I x, I y) { return _mm256_and_si256(x, y); }
    static I bor(I x, I y) { return _mm256_or_si256(x, y); }
    static I bxor(I x, I y) { return _mm256_xor_si256(x, y); }
    static I absolute(I x) { return _mm256_abs_epi32(x); }
    template <int n>
    static I shift_left(I x) {
        return _mm256_slli_epi32(x, n);
    }
    template <int n>
    static I shift_right(I x) {
        return _mm256_srli_epi32(x, n);
    }
    template <int n>
    static I shift_right_signed(I x) {
        return _mm256_srai_epi32(x, n);
    }
    static unsigned lanes_of(I mask) { return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask))); }
    static I shift_left_by(I x, I n) { return _mm256_sllv_epi32(x, n); }
    static unsigned greater(I x, I y) { return lanes_of(_mm256_cmpgt_epi32(x, y)); }
    static unsigned equal(I x, I y) { return lanes_of(_mm256_cmpeq_epi32(x, y)); }
    static unsigned zero(F x) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ)));
    }
    static I mask_of(unsigned mask) {
        const I lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), lane_bits), lane_bits);
    }
    static F select(unsigned mask, F x, F y) { return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(mask_of(mask))); }
    static I select(unsigned mask, I x, I y) { return _mm256_blendv_epi8(y, x, mask_of(mask)); }
    static F through_fp16(F x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }

    using B = __m256i;
    static B load_bytes(const std::int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static B broadcast_bytes(std::uint32_t four) { return _mm256_set1_epi32(static_cast<int>(four)); }
    static B add_bytes(B x, B y) { return _mm256_add_epi8(x, y); }
    static B max_bytes(B x, B y) { return _mm256_max_epi8(x, y); }
    template <int part>
    static I widen(B x) {
        const __m128i half = part < 2 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
        return _mm256_cvtepi8_epi32(part % 2 == 0 ? half : _mm_srli_si128(half, 8));
    }
};

/// MXCSR rounding for a scope. What rounds lies in functions that are not inlined into the scope, so that the compiler
/// cannot move it across the change.
template <unsigned mode>
struct RoundingScope {
    unsigned before = _mm_getcsr();
    RoundingScope() noexcept { _mm_setcsr((before & ~0x6000U) | mode); }
    ~RoundingScope() { _mm_setcsr(before); }
    RoundingScope(const RoundingScope&) = delete;
    RoundingScope& operator=(const RoundingScope&) = delete;
};
using TowardZero = RoundingScope<0x6000U>;
using Nearest = RoundingScope<0U>;

}  // namespace
}  // namespace bitreplay::avx2
#include "emu/simd/dot.ipp"
#endif
