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

// Blocks of fixed length let the compiler vectorise at -O2. The 16-bit codes may lie at any address.
constexpr std::size_t block = 16;

void widen_bf16(const std::byte* x, std::uint32_t* out, std::size_t n) {
    std::uint16_t codes[block] = {};
    for (std::size_t i = 0; i < n; i += block) {
        const std::size_t m = n - i < block ? n - i : block;
        std::uint32_t wide[block];
        m == block ? std::memcpy(codes, x + 2 * i, 2 * block) : std::memcpy(codes, x + 2 * i, 2 * m);
        for (std::size_t j = 0; j < block; ++j) wide[j] = static_cast<std::uint32_t>(codes[j]) << 16;
        m == block ? std::memcpy(out + i, wide, 4 * block) : std::memcpy(out + i, wide, 4 * m);
    }
}

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

// Four vectors of columns by as many rows as leave the accumulators in registers.
constexpr std::size_t panel_vectors = 4;
#if defined(__AVX512F__)
constexpr std::size_t panel_rows = 4;
#else
constexpr std::size_t panel_rows = 2;
#endif

template <std::size_t rows>
void fma_tile(const FmaPanel& p, std::size_t row, std::size_t col) {
    Floats acc[rows][panel_vectors];
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t v = 0; v < panel_vectors; ++v) acc[i][v] = load(p.acc + (row + i) * fma_columns + col + v * lanes);
    const std::uint32_t* const a = p.a + row * p.a_stride;
    const auto step = [&](std::size_t k) __attribute__((always_inline)) {
        const std::uint32_t* const b = p.b + k * fma_columns + col;
        Floats y[panel_vectors];
#pragma GCC unroll 4
        for (std::size_t v = 0; v < panel_vectors; ++v) y[v] = load(b + v * lanes);
#pragma GCC unroll 4
        for (std::size_t i = 0; i < rows; ++i) {
            const Floats x = reinterpret_cast<Floats>(Words{} + static_cast<std::int32_t>(a[i * p.a_stride + k]));
#pragma GCC unroll 4
            for (std::size_t v = 0; v < panel_vectors; ++v) acc[i][v] = fused(x, y[v], acc[i][v]);
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
        for (std::size_t v = 0; v < panel_vectors; ++v) {
            const Words bits = canonical(acc[i][v]);
            std::memcpy(p.acc + (row + i) * fma_columns + col + v * lanes, &bits, lanes * 4);
        }
}

void fma_panel(const FmaPanel& p) {
    std::size_t row = 0;
    for (; row + panel_rows <= p.rows; row += panel_rows)
        for (std::size_t col = 0; col < fma_columns; col += panel_vectors * lanes) fma_tile<panel_rows>(p, row, col);
    for (; row < p.rows; ++row)
        for (std::size_t col = 0; col < fma_columns; col += panel_vectors * lanes) fma_tile<1>(p, row, col);
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
                                       round_bf16,
                                       add_strided,
                                       fma_strided,
                                       fma_panel};

}  // namespace bitreplay::BITREPLAY_ISA
