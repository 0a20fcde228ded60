#if defined(__x86_64__)
#include <cstdint>
#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own _mm512_undefined_ps (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "emu/simd/exp.hpp"

#define BITREPLAY_ISA avx512
namespace bitreplay::avx512 {
namespace {

struct Vector {
    using F = __m512;
    using I = __m512i;
    using M = __mmask16;
    static constexpr decltype(sizeof 0) lanes = 16;

    /// Both tables in registers.
    struct Table {
        I constant[4], slopes[4], offset;
        explicit Table(const simd::Ex2Table& table) : offset(_mm512_set1_epi32(static_cast<int>(table.offset))) {
            for (int i = 0; i < 4; ++i) {
                constant[i] = _mm512_loadu_si512(table.constant + 16 * i);
                slopes[i] = _mm512_loadu_si512(table.slopes + 16 * i);
            }
        }
    };
    static I lookup(const I* rows, I index) {
        const I low = _mm512_permutex2var_epi32(rows[0], index, rows[1]), high = _mm512_permutex2var_epi32(rows[2], index, rows[3]);
        return _mm512_mask_mov_epi32(low, _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)), high);
    }
    static I constants(const Table& table, I row) { return lookup(table.constant, row); }
    static I slopes(const Table& table, I row) { return lookup(table.slopes, row); }

    static F load(const std::uint32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
    static void store(std::uint32_t* p, F x) { _mm512_storeu_si512(p, _mm512_castps_si512(x)); }
    static I broadcast(int x) { return _mm512_set1_epi32(x); }
    static F real(I x) { return _mm512_castsi512_ps(x); }
    static I bits(F x) { return _mm512_castps_si512(x); }

    static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
    static F sub(F x, F y) { return _mm512_sub_ps(x, y); }
    static F fma(F x, F y, F z) { return _mm512_fmadd_ps(x, y, z); }
    static F absolute(F x) { return _mm512_abs_ps(x); }
    static F negate(F x) { return real(bxor(bits(x), broadcast(INT32_MIN))); }
    static F floor(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
    /// To [+0, 1]; NaN gives +0.
    static F saturate(F x) { return _mm512_min_ps(_mm512_max_ps(x, _mm512_setzero_ps()), _mm512_set1_ps(1.0F)); }
    static I truncate(F x) { return _mm512_cvttps_epi32(x); }

    static I add(I x, I y) { return _mm512_add_epi32(x, y); }
    static I sub(I x, I y) { return _mm512_sub_epi32(x, y); }
    static I multiply(I x, I y) { return _mm512_mullo_epi32(x, y); }
    static I multiply_16(I x, I y) { return _mm512_mullo_epi16(x, y); }  // products below 2^16
    static I band(I x, I y) { return _mm512_and_si512(x, y); }
    static I bxor(I x, I y) { return _mm512_xor_si512(x, y); }
    template <int n> static I shift_left(I x) { return _mm512_slli_epi32(x, n); }
    template <int n> static I shift_right(I x) { return _mm512_srli_epi32(x, n); }
    template <int n> static I shift_right_signed(I x) { return _mm512_srai_epi32(x, n); }
    /// All ones where equal.
    static I equal(I x, I y) { return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(x, y)); }
    /// sum + y where bit n of x is set.
    template <int n> static I add_if_bit(I x, I sum, I y) {
        return _mm512_mask_add_epi32(sum, _mm512_test_epi32_mask(x, _mm512_set1_epi32(1 << n)), sum, y);
    }

    static M less(F x, F y) { return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ); }
    static M same(F x, F y) { return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ); }
    static M both(M x, M y) { return static_cast<M>(x & y); }
    static F select(M mask, F x, F y) { return _mm512_mask_mov_ps(y, mask, x); }
    /// The value of ex2 where it is normal; 0 for x < −126, infinity for x ≥ 128, NaN for NaN.
    static F specials(F x, F value) {
        value = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ), value);
        value = select(_mm512_cmp_ps_mask(x, _mm512_set1_ps(128.0F), _CMP_GE_OQ), real(broadcast(0x7F800000)), value);
        return select(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), real(broadcast(0x7FFFFFFF)), value);
    }
};

}  // namespace
}  // namespace bitreplay::avx512
#include "emu/simd/exp.ipp"
#endif
