#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arch/mufu.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {

/// Values per output, from a tensor that is broadcast to [batch, M, N] as torch does.
class Addend {
public:
    Addend() = default;
    /// InputError if `values` does not broadcast to the shape.
    Addend(const Tensor& values, std::int64_t batch, std::int64_t m, std::int64_t n);

    bool empty() const noexcept { return !is_set_; }
    /// The value as a code of `format`.
    std::uint64_t at(std::int64_t entry, std::int64_t row, std::int64_t col, const Format& format = fp32) const noexcept;

private:
    Tensor values_;
    bool is_set_ = false;
    std::int64_t entry_stride_ = 0, row_stride_ = 0, col_stride_ = 0;
};

/// What a kernel does to the accumulators of a matrix product before the rounding to the output type: scales, then the
/// addend, then GELU. Everything is composable; which order of operations a kernel has is its recipe's data.
struct GemmEpilogue {
    /// Scales of fp8 products: one value each (tensor-wise: acc·(row·col)), or one per row and column
    /// (row-wise: (acc·col)·row). Empty: none. Source: h200/gemm2, tags wide and scfull; testdata/h200/gemm, tag
    /// scaled.
    std::vector<std::uint32_t> row_scale, col_scale;
    /// bias or c; empty: none.
    Addend addend;
    /// A bias is added as `bias` says, a c as alpha·acc + beta·c in one of `orders`.
    std::optional<RecipeBias::Add> bias;
    std::vector<RecipeAddend::Order> orders;
    double alpha = 1, beta = 1;  ///< as the caller gave them; a kernel rounds them to `math` (FP16 by way of FP32, as torch)
    /// The library's GELU, nullptr: none. As the epilogue of a reduction or a kernel of its own, of all types:
    /// u = (x·3F4C422A)·fma(x·3D372713, x, 1), t = tanh.approx(u), (x/2)·(1 + t). In the kernel (gelu_in_kernel):
    /// u = x·fma(x·3D12227E, x, 3F4C422A), fma(x, t, x)/2, infinite from |x| = 2^127 on. FP32 arithmetic only.
    /// Source: GELU of 4,096 sums in FP32, bf16 and fp16 of every algorithm, testdata/h200/gemm, tag gelu, and of every bf16
    /// and fp16 value (test/emu/gemm_epilogue_test.cpp).
    const Mufu* gelu = nullptr;
    bool gelu_in_kernel = false;
    bool relu = false;  ///< negative results become +0; what becomes of a NaN no capture shows
    /// The format of the arithmetic: fp32; fp16 and fp64 where the kernel computes in those.
    Format math = fp32;

    bool empty() const noexcept { return row_scale.empty() && addend.empty() && gelu == nullptr && !relu; }
    /// Whether alpha was to be multiplied into an operand before the sum.
    bool scales_operand() const noexcept;
    /// Whether beta·c was to be where the sum starts, so that nothing is left of the addend.
    bool starts_from_c() const noexcept;
    /// Whether the addend enters the first part, so that apply() must be given all parts.
    bool needs_parts() const noexcept;
};

/// Rows and columns of one entry of a batch.
struct EpiloguePlace {
    std::int64_t entry;
    std::span<const std::int64_t> rows, cols;
};

/// Outputs [rows, cols] of `result` from their accumulators (fp32 or fp16), after the epilogue and the final rounding
/// (nearest even). `parts`: the accumulators, or with needs_parts() those of each part of a merge that rounds its
/// running sum to `result`. Throws NotModelled if several orders are possible and they disagree on an output, and for RELU
/// of a NaN.
Tensor apply_epilogue(const GemmEpilogue& epilogue,
                      std::span<const Tensor> parts,
                      const EpiloguePlace& place,
                      const Format& result);

}  // namespace bitreplay
