// The loops of Fp32Kernels, once, on vector types of BITREPLAY_LANES floats; included by one .cpp per instruction set,
// which defines BITREPLAY_ISA. Everything has internal linkage but the table, so no copy compiled for a newer CPU can
// be the one the linker keeps.

#include <cstring>

#include "emu/simd/fp32_kernels.hpp"
#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace bitreplay::BITREPLAY_ISA {
namespace {

constexpr std::size_t lanes = BITREPLAY_LANES;
using Floats = float __attribute__((vector_size(lanes * 4)));
using Words = std::int32_t __attribute__((vector_size(lanes * 4)));

Floats load(const std::uint32_t* x, std::size_t n = lanes) {
    Floats out = {};
    std::memcpy(&out, x, n * 4);
    return out;
}

Floats fill(std::uint32_t bits) {
    Words out = {};
    for (std::size_t i = 0; i < lanes; ++i) out[i] = static_cast<std::int32_t>(bits);
    return reinterpret_cast<Floats>(out);
}

Words canonical(Floats value) {
    const Words ordered = value == value;
    return (reinterpret_cast<Words>(value) & ordered) | (~ordered & 0x7FFFFFFF);
}

Floats fused(Floats x, Floats y, Floats z) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(x, y, z);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(x, y, z);
#else
    Floats out = {};
    for (std::size_t i = 0; i < lanes; ++i) out[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return out;
#endif
}

/// out[i] = op(i, n): the caller's lambda loads n elements from i.
template <class Op>
void each(std::uint32_t* out, std::size_t n, Op op) {
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        const Words bits = canonical(op(i, lanes));
        std::memcpy(out + i, &bits, lanes * 4);
    }
    if (i == n) return;
    const Words bits = canonical(op(i, n - i));
    std::memcpy(out + i, &bits, (n - i) * 4);
}

float f(std::uint32_t bits) {
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
std::uint32_t u(float value) {
    std::uint32_t out;
    std::memcpy(&out, &value, 4);
    return value == value ? out : 0x7FFFFFFFU;
}

void add(const std::uint32_t* x, const std::uint32_t* y, std::uint32_t* out, std::size_t n) {
    each(out, n, [&](std::size_t i, std::size_t m) { return load(x + i, m) + load(y + i, m); });
}
void mul(const std::uint32_t* x, const std::uint32_t* y, std::uint32_t* out, std::size_t n) {
    each(out, n, [&](std::size_t i, std::size_t m) { return load(x + i, m) * load(y + i, m); });
}
void fma(const std::uint32_t* x, const std::uint32_t* y, const std::uint32_t* z, std::uint32_t* out, std::size_t n) {
    each(out, n, [&](std::size_t i, std::size_t m) { return fused(load(x + i, m), load(y + i, m), load(z + i, m)); });
}
void sub_scalar(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n) {
    each(out, n, [x, v = fill(c)](std::size_t i, std::size_t m) { return load(x + i, m) - v; });
}
void mul_scalar(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n) {
    each(out, n, [x, v = fill(c)](std::size_t i, std::size_t m) { return load(x + i, m) * v; });
}
void div_scalar(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n) {
    each(out, n, [x, v = fill(c)](std::size_t i, std::size_t m) { return load(x + i, m) / v; });
}

using Wide = std::uint32_t __attribute__((vector_size(lanes * 4)));

/// out[i] = op(16-bit codes as words).
template <class Op>
void widen(const std::byte* x, std::uint32_t* out, std::size_t n, Op op) {
    using Codes = std::uint16_t __attribute__((vector_size(lanes * 2)));
    for (std::size_t i = 0; i < n; i += lanes) {
        const std::size_t m = n - i < lanes ? n - i : lanes;
        Codes codes = {};
        m == lanes ? std::memcpy(&codes, x + 2 * i, sizeof codes) : std::memcpy(&codes, x + 2 * i, 2 * m);
        const Wide wide = op(__builtin_convertvector(codes, Wide));
        m == lanes ? std::memcpy(out + i, &wide, sizeof wide) : std::memcpy(out + i, &wide, 4 * m);
    }
}

void widen_bf16(const std::byte* x, std::uint32_t* out, std::size_t n) {
    widen(x, out, n, [](Wide codes) { return codes << 16; });
}

void widen_fp16(const std::byte* x, std::uint32_t* out, std::size_t n) {
    widen(x, out, n, [](Wide codes) {
        const Wide magnitude = codes & 0x7FFF;
        // The fields of an fp32 number 2^112 times smaller, subnormal or not: the product is exact.
        const Floats scaled = reinterpret_cast<Floats>(magnitude << 13) * reinterpret_cast<Floats>(Wide{} + 0x77800000U);
        const Wide infinite = reinterpret_cast<Wide>(magnitude == 0x7C00), nan = reinterpret_cast<Wide>(magnitude > 0x7C00);
        const Wide finite = reinterpret_cast<Wide>(scaled) & ~infinite;
        return ((finite | (infinite & 0x7F800000U) | ((codes & 0x8000) << 16)) & ~nan) | (nan & 0x7FFFFFFFU);
    });
}

// Blocks of fixed length let the compiler vectorise at -O2.
constexpr std::size_t block = 16;

void round_bf16(const std::uint32_t* x, std::byte* out, std::size_t n) {
    std::uint32_t wide[block] = {};
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t m = n - i < block ? n - i : block;
        std::uint16_t codes[block];
        m == block ? std::memcpy(wide, x + i, 4 * block) : std::memcpy(wide, x + i, 4 * m);
        for (std::size_t j = 0; j < block; ++j) {
            const std::uint32_t rounded = (wide[j] + 0x7FFFU + ((wide[j] >> 16) & 1U)) >> 16;
            codes[j] = static_cast<std::uint16_t>((wide[j] & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FFFU : rounded);
        }
        m == block ? std::memcpy(out + 2 * i, codes, 2 * block) : std::memcpy(out + 2 * i, codes, 2 * m);
    }
}

void add_strided(std::uint32_t* acc, std::size_t stride, const std::uint32_t* x, std::size_t step, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) acc[i * stride] = u(f(acc[i * stride]) + f(x[i * step]));
}
void fma_strided(std::uint32_t* acc,
                 std::size_t stride,
                 const std::uint32_t* x,
                 const std::uint32_t* y,
                 std::size_t step,
                 std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
        acc[i * stride] = u(__builtin_fmaf(f(x[i * step]), f(y[i * step]), f(acc[i * stride])));
}

// Vectors of columns by as many rows as leave the accumulators in registers.
constexpr std::size_t panel_vectors = 4;
#if defined(__AVX512F__)
constexpr std::size_t panel_rows = 4;
#else
constexpr std::size_t panel_rows = 2;
#endif

Floats broadcast(std::uint32_t bits) { return reinterpret_cast<Floats>(Words{} + static_cast<std::int32_t>(bits)); }

void store(std::uint32_t* out, Floats value) {
    const Words bits = canonical(value);
    std::memcpy(out, &bits, lanes * 4);
}

template <std::size_t rows, std::size_t vectors>
void fma_tile(const FmaPanel& p, std::size_t row, std::size_t col) {
    Floats acc[rows][vectors];
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t v = 0; v < vectors; ++v) acc[i][v] = load(p.acc + (row + i) * p.columns + col + v * lanes);
    const std::uint32_t* const a = p.a + row * p.a_stride;
    const auto step = [&](std::size_t k) __attribute__((always_inline)) {
        const std::uint32_t* const b = p.b + k * p.columns + col;
        Floats y[vectors];
#pragma GCC unroll 4
        for (std::size_t v = 0; v < vectors; ++v) y[v] = load(b + v * lanes);
#pragma GCC unroll 4
        for (std::size_t i = 0; i < rows; ++i) {
            const Floats x = broadcast(a[i * p.a_stride + k]);
#pragma GCC unroll 4
            for (std::size_t v = 0; v < vectors; ++v) acc[i][v] = fused(x, y[v], acc[i][v]);
        }
    };
    if (p.vector == 1) {
        for (std::size_t k = 0; k < p.depth; k += p.stride) step(k);
    } else {
        for (std::size_t from = 0; from < p.depth; from += p.stride) {
            const std::size_t to = p.depth - from < p.vector ? p.depth : from + p.vector;
            for (std::size_t k = from; k < to; ++k) step(k);
        }
    }
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t v = 0; v < vectors; ++v) store(p.acc + (row + i) * p.columns + col + v * lanes, acc[i][v]);
}

template <std::size_t rows>
void fma_rows(const FmaPanel& p, std::size_t row) {
    std::size_t col = 0;
    for (; col + panel_vectors * lanes <= p.columns; col += panel_vectors * lanes) fma_tile<rows, panel_vectors>(p, row, col);
    for (; col < p.columns; col += lanes) fma_tile<rows, 1>(p, row, col);
}

void fma_panel(const FmaPanel& p) {
    std::size_t row = 0;
    for (; row + panel_rows <= p.rows; row += panel_rows) fma_rows<panel_rows>(p, row);
    for (; row < p.rows; ++row) fma_rows<1>(p, row);
}

void fma_lanes(const FmaPanel& p) {
    std::uint32_t* acc = p.acc;
    for (std::size_t k = 0; k < p.depth; ++k)
        for (std::size_t i = 0; i < p.rows; ++i) {
            const Floats x = broadcast(p.a[i * p.a_stride + k]);
            for (std::size_t j = 0; j < p.columns; j += lanes, acc += lanes) store(acc, fused(x, load(p.b + k * p.columns + j), load(acc)));
        }
}

template <std::size_t vectors>
void fma_stripe(const std::uint32_t* x, const std::uint32_t* y, std::size_t width, std::size_t rounds, std::uint32_t* acc) {
    Floats sum[vectors];
    for (std::size_t v = 0; v < vectors; ++v) sum[v] = load(acc + v * lanes);
    for (std::size_t r = 0; r < rounds; ++r, x += width, y += width)
#pragma GCC unroll 4
        for (std::size_t v = 0; v < vectors; ++v) sum[v] = fused(load(x + v * lanes), load(y + v * lanes), sum[v]);
    for (std::size_t v = 0; v < vectors; ++v) store(acc + v * lanes, sum[v]);
}

/// acc[i] = fma(x[i*apart + k*step], y[...], acc[i]) for k < n: independent chains side by side, one after the other.
template <std::size_t chains>
void fma_chains(const std::uint32_t* x, const std::uint32_t* y, std::size_t apart, std::size_t step, std::size_t n, std::uint32_t* acc) {
    float sum[chains];
    for (std::size_t i = 0; i < chains; ++i) sum[i] = f(acc[i]);
    for (std::size_t k = 0; k < n; ++k, x += step, y += step)
#pragma GCC unroll 8
        for (std::size_t i = 0; i < chains; ++i) sum[i] = __builtin_fmaf(f(x[i * apart]), f(y[i * apart]), sum[i]);
    for (std::size_t i = 0; i < chains; ++i) acc[i] = u(sum[i]);
}

void fma_rounds(const std::uint32_t* x, const std::uint32_t* y, std::size_t width, std::size_t rounds, std::uint32_t* acc) {
    std::size_t i = 0;
    for (; i + 4 * lanes <= width; i += 4 * lanes) fma_stripe<4>(x + i, y + i, width, rounds, acc + i);
    for (; i + lanes <= width; i += lanes) fma_stripe<1>(x + i, y + i, width, rounds, acc + i);
    for (; i + 8 <= width; i += 8) fma_chains<8>(x + i, y + i, 1, width, rounds, acc + i);
    for (; i + 4 <= width; i += 4) fma_chains<4>(x + i, y + i, 1, width, rounds, acc + i);
    for (; i < width; ++i) fma_chains<1>(x + i, y + i, 1, width, rounds, acc + i);
}

void fma_runs(const std::uint32_t* x, const std::uint32_t* y, std::size_t depth, std::size_t count, std::uint32_t* acc) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) fma_chains<8>(x + i * depth, y + i * depth, depth, 1, depth, acc + i);
    for (; i + 2 <= count; i += 2) fma_chains<2>(x + i * depth, y + i * depth, depth, 1, depth, acc + i);
    if (i < count) fma_chains<1>(x + i * depth, y + i * depth, depth, 1, depth, acc + i);
}

using Four = std::uint32_t __attribute__((vector_size(16)));

void transpose(const std::uint32_t* x, std::size_t stride, std::size_t n, std::uint32_t* out, std::size_t columns) {
    constexpr std::size_t line = 16;  // a cache line of each column at a time
    for (std::size_t k0 = 0; k0 < n; k0 += line)
        for (std::size_t j = 0; j < columns; j += 4)
            for (std::size_t k = k0; k < n && k < k0 + line; k += 4) {
                Four r[4];
                for (std::size_t i = 0; i < 4; ++i) std::memcpy(&r[i], x + (j + i) * stride + k, sizeof(Four));
                const Four low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
                const Four low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5), high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
                const Four column[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                        __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
                for (std::size_t i = 0; i < 4; ++i) std::memcpy(out + (k + i) * columns + j, &column[i], sizeof(Four));
            }
}

}  // namespace

extern const Fp32Kernels fp32_table;
constinit const Fp32Kernels fp32_table{BITREPLAY_ISA_NAME,
                                       add,
                                       mul,
                                       fma,
                                       sub_scalar,
                                       mul_scalar,
                                       div_scalar,
                                       widen_bf16,
                                       widen_fp16,
                                       round_bf16,
                                       add_strided,
                                       fma_strided,
                                       fma_panel,
                                       fma_lanes,
                                       fma_rounds,
                                       fma_runs,
                                       transpose};

}  // namespace bitreplay::BITREPLAY_ISA
