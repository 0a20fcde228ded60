// The loops of FlashRowKernels, once, on vector types of BITREPLAY_LANES floats; included by one .cpp per instruction set.
// Everything but the table has internal linkage, so no copy compiled for a newer CPU can be the one the linker keeps.

#include <immintrin.h>

#include <cstring>

#include "emu/simd/flash_rows.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

constexpr int lanes = BITREPLAY_LANES, columns = simd::flash_rows;
using Floats = float __attribute__((vector_size(lanes * 4)));
using Words = std::int32_t __attribute__((vector_size(lanes * 4)));

Floats load(const float* x) {
    Floats out;
    std::memcpy(&out, x, sizeof out);
    return out;
}
void store(float* x, Floats value) { std::memcpy(x, &value, sizeof value); }

Floats fused(Floats x, Floats y, Floats z) {
#if BITREPLAY_LANES == 16
    return _mm512_fmadd_ps(x, y, z);
#else
    return _mm256_fmadd_ps(x, y, z);
#endif
}

Floats larger(Floats x, Floats y) { return x > y ? x : y; }

Floats through_fp16(Floats x) {
#if BITREPLAY_LANES == 16
    return _mm512_maskz_cvtph_ps(0xFFFF, _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
}

Floats fill(float x) { return Floats{} + x; }

/// 0 where x is −inf, x elsewhere.
Floats without_infinity(Floats x) {
    const Words finite = x >= fill(-3.40282347e38F);
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(x) & finite);
}

void column_max(const float* s, std::int64_t keys, float* max) {
    for (int r = 0; r < columns; r += lanes) {
        Floats best = load(max + r);
        for (std::int64_t j = 0; j < keys; ++j) best = larger(best, load(s + j * columns + r));
        store(max + r, best);
    }
}

void rescale_arguments(const float* old_max, const float* max, float scale, float* out) {
    for (int r = 0; r < columns; r += lanes)
        store(out + r, (load(old_max + r) - without_infinity(load(max + r))) * fill(scale));
}

void arguments(float* s, std::int64_t keys, const float* max, float scale) {
    const Floats factor = fill(scale);
    for (int r = 0; r < columns; r += lanes) {
        const Floats reference = without_infinity(load(max + r)) * factor;
        for (std::int64_t j = 0; j < keys; ++j) {
            const Floats product = load(s + j * columns + r) * factor;
            store(s + j * columns + r, product - reference);
        }
    }
}

using Half = std::int32_t __attribute__((vector_size(lanes * 2)));
using HalfFloats = float __attribute__((vector_size(lanes * 2)));
using Doubles = double __attribute__((vector_size(lanes * 4)));
using Longs = std::int64_t __attribute__((vector_size(lanes * 4)));

Doubles gather(const double* table, Half index) {
#if BITREPLAY_LANES == 16
    return _mm512_mask_i32gather_pd(__m512d{}, 0xFF, reinterpret_cast<__m256i>(index), table, 8);
#else
    return _mm256_mask_i32gather_pd(__m256d{}, table, reinterpret_cast<__m128i>(index), reinterpret_cast<__m256d>(Longs{} - 1), 8);
#endif
}

/// ex2.approx.ftz of x in [−127, 0], as the scalar Mufu::ex2_ftz.
Half ex2_ftz(HalfFloats x, const simd::Ex2Table& table) {
    const Half size = __builtin_convertvector(x * -8388608.0F, Half);
    const Half argument = (size & 0x7FFFFF) == 0 ? -size : ~size;
    const Half fraction = argument & 0x7FFFFF, exponent = argument >> 23;
    const std::int32_t low_mask = (1 << table.low_bits) - 1;
    const Half row = fraction >> table.low_bits, low_part = fraction & low_mask;
    // mufu_square() of arch/mufu.hpp.
    const int half = table.low_bits - 8;
    const std::int32_t half_mask = (1 << half) - 1;
    const Half low = low_part & half_mask, high = low_part >> half;
    Half square = (high * high) >> 1;
    for (int j = 1; j < 8; ++j) square += -((high >> j) & 1) & (low >> (half - j));
    const Doubles value = gather(table.constant, row) +
                          gather(table.linear, row) * __builtin_convertvector(low_part, Doubles) +
                          gather(table.square, row) * __builtin_convertvector(square, Doubles);
    const Longs bits = reinterpret_cast<Longs>(value) >> 29;  // truncates to 24 significant bits
    const Half out = (__builtin_convertvector(bits, Half) & 0x7FFFFF) | ((exponent + 127) << 23);
    return exponent < -126 ? Half{} : out;
}

void exp2(float* x, std::int64_t count, const simd::Ex2Table& table) {
    constexpr int half = lanes / 2;
    for (std::int64_t i = 0; i < count * columns; i += half) {
        HalfFloats value;
        std::memcpy(&value, x + i, sizeof value);
        // Below −126: the square of ex2 of half the argument.
        const Half small = value < -126.0F;
        const HalfFloats halved = value * 0.5F;
        const HalfFloats reduced = small ? halved : value;
        const HalfFloats limit = HalfFloats{} - 127.0F;
        const Half result = ex2_ftz(reduced < limit ? limit : reduced, table);
        const HalfFloats power = reinterpret_cast<HalfFloats>(result);
        const HalfFloats squared = power * power;
        const HalfFloats out = small ? squared : power;
        std::memcpy(x + i, &out, sizeof out);
    }
}

void add_sums(const float* p, std::int64_t keys, const float* rescale, float* sums) {
    for (int r = 0; r < columns; r += lanes) {
        Floats sum[4];
        for (int t = 0; t < 4; ++t) {
            const Floats first = load(p + 2 * t * columns + r);
            sum[t] = rescale == nullptr ? first : fused(load(sums + t * columns + r), load(rescale + r), first);
            sum[t] = sum[t] + load(p + (2 * t + 1) * columns + r);
        }
        for (std::int64_t j = 8; j < keys; j += 8)
            for (int t = 0; t < 4; ++t) {
                sum[t] = sum[t] + load(p + (j + 2 * t) * columns + r);
                sum[t] = sum[t] + load(p + (j + 2 * t + 1) * columns + r);
            }
        for (int t = 0; t < 4; ++t) store(sums + t * columns + r, sum[t]);
    }
}

void multiply(float* x, std::int64_t count, const float* factor) {
    for (int r = 0; r < columns; r += lanes) {
        const Floats f = load(factor + r);
        for (std::int64_t i = 0; i < count; ++i) store(x + i * columns + r, load(x + i * columns + r) * f);
    }
}

/// Exponents as int8 of non-negative values: relative to 0, at least `lowest`; zero and everything below −63: −64.
void exponents(Words bits, int lowest, std::int8_t* out) {
    const Words field = bits >> 23;
    Words e = field - 127;
    e = e < lowest ? Words{} + lowest : e;
    e = e < -63 ? Words{} - 64 : e;
    e = bits == 0 ? Words{} - 64 : e;
#if BITREPLAY_LANES == 16
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_maskz_cvtepi32_epi8(0xFFFF, reinterpret_cast<__m512i>(e)));
#else
    for (int i = 0; i < lanes; ++i) out[i] = static_cast<std::int8_t>(e[i]);
#endif
}

void round_bf16(float* p, std::int64_t count, std::int8_t* scale) {
    for (std::int64_t i = 0; i < count * columns; i += lanes) {
        Words bits = reinterpret_cast<Words>(load(p + i));
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & static_cast<std::int32_t>(0xFFFF0000);
        store(p + i, reinterpret_cast<Floats>(bits));
        exponents(bits, -126, scale + i);
    }
}

void round_fp16(float* p, std::int64_t count, std::int8_t* scale) {
    for (std::int64_t i = 0; i < count * columns; i += lanes) {
        const Floats value = through_fp16(load(p + i));
        store(p + i, value);
        exponents(reinterpret_cast<Words>(value), -14, scale + i);
    }
}

}  // namespace

extern const simd::FlashRowKernels flash_row_table;
const simd::FlashRowKernels flash_row_table{BITREPLAY_ISA_NAME, column_max, rescale_arguments, arguments, exp2,
                                            add_sums,           multiply,   round_bf16,        round_fp16};

}  // namespace bitreplay::BITREPLAY_ISA
