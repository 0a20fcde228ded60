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
const simd::FlashRowKernels flash_row_table{BITREPLAY_ISA_NAME, column_max,  rescale_arguments, arguments,
                                            add_sums,           multiply,    round_bf16,        round_fp16};

}  // namespace bitreplay::BITREPLAY_ISA
