#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bitreplay {

/// Chains of multiply-adds of rows x columns outputs. NaN accumulators come out canonical.
struct FmaPanel {
    const std::uint32_t* a;  ///< [rows][a_stride]
    std::size_t a_stride;
    const std::uint32_t* b;  ///< [depth][columns]
    std::size_t columns;     ///< a multiple of 16
    std::size_t depth, vector, stride;
    std::uint32_t* acc;  ///< [rows][columns]; fma_lanes: [depth][rows][columns]
    std::size_t rows;
};

/// Loops of the FP32 operations of arch/fp32.hpp over arrays of bit patterns: element i of the result equals the scalar
/// function of elements i, NaN results canonical. `out` may be one of the inputs; otherwise arrays do not overlap.
struct Fp32Kernels {
    std::string_view name;
    void (*add)(const std::uint32_t* x, const std::uint32_t* y, std::uint32_t* out, std::size_t n);
    void (*mul)(const std::uint32_t* x, const std::uint32_t* y, std::uint32_t* out, std::size_t n);
    void (*fma)(
        const std::uint32_t* x, const std::uint32_t* y, const std::uint32_t* z, std::uint32_t* out, std::size_t n);
    void (*sub_scalar)(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n);
    void (*mul_scalar)(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n);
    void (*div_scalar)(const std::uint32_t* x, std::uint32_t c, std::uint32_t* out, std::size_t n);
    /// Arrays of 16-bit codes, at any address. NaN of fp16 becomes canonical.
    void (*widen_bf16)(const std::byte* x, std::uint32_t* out, std::size_t n);
    void (*widen_fp16)(const std::byte* x, std::uint32_t* out, std::size_t n);
    /// Nearest even; NaN becomes 0x7fff.
    void (*round_bf16)(const std::uint32_t* x, std::byte* out, std::size_t n);
    /// acc[i*stride] = acc[i*stride] + x[i*step].
    void (*add_strided)(
        std::uint32_t* acc, std::size_t stride, const std::uint32_t* x, std::size_t step, std::size_t n);
    /// acc[i*stride] = fma(x[i*step], y[i*step], acc[i*stride]).
    void (*fma_strided)(std::uint32_t* acc,
                        std::size_t stride,
                        const std::uint32_t* x,
                        const std::uint32_t* y,
                        std::size_t step,
                        std::size_t n);
    /// acc[i][j] = fma(a[i][k], b[k][j], acc[i][j]) for k = 0 … vector - 1, the same from k = stride, 2·stride, … on, all
    /// below depth.
    void (*fma_panel)(const FmaPanel& panel);
    /// acc[k][i][j] = fma(a[i][k], b[k][j], acc[k][i][j]) for all k below depth.
    void (*fma_lanes)(const FmaPanel& panel);
    /// Multiply-adds of one output, acc[i] = fma(x[j], y[j], acc[i]) in ascending order of j: j = i, i + width, ... (`rounds`
    /// of them, for i < width); or j = i·depth, i·depth + 1, ... (`depth` of them, for i < count).
    void (*fma_rounds)(
        const std::uint32_t* x, const std::uint32_t* y, std::size_t width, std::size_t rounds, std::uint32_t* acc);
    void (*fma_runs)(
        const std::uint32_t* x, const std::uint32_t* y, std::size_t depth, std::size_t count, std::uint32_t* acc);
    /// out[k·columns + j] = x[j·stride + k] for k < n and j < columns, both multiples of 4.
    void (*transpose)(const std::uint32_t* x, std::size_t stride, std::size_t n, std::uint32_t* out, std::size_t columns);
};

/// The rows of fp32_kernels.inc that this CPU supports, fastest first; the last runs everywhere.
std::vector<const Fp32Kernels*> fp32_kernel_rows();
/// The first of them.
const Fp32Kernels& fp32_kernels() noexcept;

}  // namespace bitreplay
