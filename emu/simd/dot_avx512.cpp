#if defined(__x86_64__)
#include <immintrin.h>
#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own _mm512_undefined_ps (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BITREPLAY_ISA avx512
namespace bitreplay::avx512 {
namespace {

constexpr int toward_zero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

/// 16 fp32 or int32 lanes. Directed rounding is part of the instruction, so MXCSR stays as it is.
struct Simd {
    using F = __m512;
    using I = __m512i;
    static constexpr int lanes = 16, columns = 64;

    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
    static I load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
    static void store(std::int32_t* p, I x) { _mm512_storeu_si512(p, x); }
    static F broadcast(float x) { return _mm512_set1_ps(x); }
    static I broadcast(std::int32_t x) { return _mm512_set1_epi32(x); }
    static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
    static F mul_toward_zero(F x, F y) { return _mm512_mul_round_ps(x, y, toward_zero); }
    /// Keeps a sum in its register from one step to the next.
    static void pin(I& x) { asm volatile("" : "+v"(x)); }
    static F add_nearest(F x, F y) { return _mm512_add_round_ps(x, y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static I truncate(F x) { return _mm512_cvttps_epi32(x); }
    static F to_float(I x) { return _mm512_cvt_roundepi32_ps(x, toward_zero); }
    static I bits(F x) { return _mm512_castps_si512(x); }
    static F real(I x) { return _mm512_castsi512_ps(x); }
    static I add(I x, I y) { return _mm512_add_epi32(x, y); }
    static I sub(I x, I y) { return _mm512_sub_epi32(x, y); }
    static I max(I x, I y) { return _mm512_max_epi32(x, y); }
    static I min(I x, I y) { return _mm512_min_epi32(x, y); }
    static I band(I x, I y) { return _mm512_and_si512(x, y); }
    static I bor(I x, I y) { return _mm512_or_si512(x, y); }
    static I bxor(I x, I y) { return _mm512_xor_si512(x, y); }
    static I absolute(I x) { return _mm512_abs_epi32(x); }
    template <int n>
    static I shift_left(I x) {
        return _mm512_slli_epi32(x, n);
    }
    template <int n>
    static I shift_right(I x) {
        return _mm512_srli_epi32(x, n);
    }
    template <int n>
    static I shift_right_signed(I x) {
        return _mm512_srai_epi32(x, n);
    }
    static I shift_left_by(I x, I n) { return _mm512_sllv_epi32(x, n); }
    /// One bit per lane.
    static unsigned greater(I x, I y) { return _mm512_cmpgt_epi32_mask(x, y); }
    static unsigned equal(I x, I y) { return _mm512_cmpeq_epi32_mask(x, y); }
    static unsigned zero(F x) { return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ); }
    /// mask ? x : y
    static F select(unsigned mask, F x, F y) { return _mm512_mask_mov_ps(y, static_cast<__mmask16>(mask), x); }
    static I select(unsigned mask, I x, I y) { return _mm512_mask_mov_epi32(y, static_cast<__mmask16>(mask), x); }
    /// Rounded to fp16 and back.
    static F through_fp16(F x) {
        return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }

    /// One byte per column of a panel.
    using B = __m512i;
    static B load_bytes(const std::int8_t* p) { return _mm512_loadu_si512(p); }
    static B broadcast_bytes(std::uint32_t four) { return _mm512_set1_epi32(static_cast<int>(four)); }
    static B add_bytes(B x, B y) { return _mm512_add_epi8(x, y); }
    static B max_bytes(B x, B y) { return _mm512_max_epi8(x, y); }
    template <int part>
    static I widen(B x) {
        return _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(x, part));
    }
};

/// Nothing to set.
struct TowardZero {};
struct Nearest {};

}  // namespace
}  // namespace bitreplay::avx512
#include "emu/simd/dot.ipp"
#include "emu/simd/filter_exact.ipp"
#include "emu/simd/pack.ipp"
#include "emu/simd/filter_tables.ipp"
#include "emu/simd/filter.ipp"
#endif
