#if defined(__x86_64__)
#include <cstdint>
#include <immintrin.h>

#include "emu/simd/exp.hpp"

#define BITREPLAY_ISA avx2
namespace bitreplay::avx2 {
namespace {

struct Vector {
    using F = __m256;
    using I = __m256i;
    using M = __m256;
    static constexpr decltype(sizeof 0) lanes = 8;

    /// Both tables in memory, read by gathers.
    struct Table {
        const int* constant;
        const int* slopes;
        I offset;
        explicit Table(const simd::Ex2Table& table)
            : constant(reinterpret_cast<const int*>(table.constant)),
              slopes(reinterpret_cast<const int*>(table.slopes)),
              offset(_mm256_set1_epi32(static_cast<int>(table.offset))) {}
    };
    static I constants(const Table& table, I row) { return _mm256_i32gather_epi32(table.constant, row, 4); }
    static I slopes(const Table& table, I row) { return _mm256_i32gather_epi32(table.slopes, row, 4); }

    static F load(const std::uint32_t* p) { return real(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
    static void store(std::uint32_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits(x)); }
    static I broadcast(int x) { return _mm256_set1_epi32(x); }
    static F real(I x) { return _mm256_castsi256_ps(x); }
    static I bits(F x) { return _mm256_castps_si256(x); }

    static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
    static F sub(F x, F y) { return _mm256_sub_ps(x, y); }
    static F fma(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
    static F absolute(F x) { return real(band(bits(x), broadcast(INT32_MAX))); }
    static F negate(F x) { return real(bxor(bits(x), broadcast(INT32_MIN))); }
    static F floor(F x) { return _mm256_floor_ps(x); }
    /// To [+0, 1]; NaN gives +0.
    static F saturate(F x) { return _mm256_min_ps(_mm256_max_ps(x, _mm256_setzero_ps()), _mm256_set1_ps(1.0F)); }
    static I truncate(F x) { return _mm256_cvttps_epi32(x); }

    static I add(I x, I y) { return _mm256_add_epi32(x, y); }
    static I sub(I x, I y) { return _mm256_sub_epi32(x, y); }
    static I multiply(I x, I y) { return _mm256_mullo_epi32(x, y); }
    static I multiply_16(I x, I y) { return _mm256_mullo_epi16(x, y); }  // products below 2^16
    static I band(I x, I y) { return _mm256_and_si256(x, y); }
    static I bxor(I x, I y) { return _mm256_xor_si256(x, y); }
    template <int n> static I shift_left(I x) { return _mm256_slli_epi32(x, n); }
    template <int n> static I shift_right(I x) { return _mm256_srli_epi32(x, n); }
    template <int n> static I shift_right_signed(I x) { return _mm256_srai_epi32(x, n); }
    /// All ones where equal.
    static I equal(I x, I y) { return _mm256_cmpeq_epi32(x, y); }
    /// sum + y where bit n of x is set.
    template <int n> static I add_if_bit(I x, I sum, I y) {
        return add(sum, band(_mm256_srai_epi32(_mm256_slli_epi32(x, 31 - n), 31), y));
    }

    static M less(F x, F y) { return _mm256_cmp_ps(x, y, _CMP_LT_OQ); }
    static M same(F x, F y) { return _mm256_cmp_ps(x, y, _CMP_EQ_OQ); }
    static M both(M x, M y) { return _mm256_and_ps(x, y); }
    static F select(M mask, F x, F y) { return _mm256_blendv_ps(y, x, mask); }
    /// The value of ex2 where it is normal; 0 for x < −126, infinity for x ≥ 128, NaN for NaN.
    static F specials(F x, F value) {
        value = _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0F), _CMP_NLT_UQ), value);
        value = select(_mm256_cmp_ps(x, _mm256_set1_ps(128.0F), _CMP_GE_OQ), real(broadcast(0x7F800000)), value);
        return select(_mm256_cmp_ps(x, x, _CMP_UNORD_Q), real(broadcast(0x7FFFFFFF)), value);
    }
};

}  // namespace
}  // namespace bitreplay::avx2
#include "emu/simd/exp.ipp"
#endif
