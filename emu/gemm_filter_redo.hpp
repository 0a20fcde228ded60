#pragma once

#include "emu/gemm_filter.hpp"

namespace bitreplay {

/// Share of outputs to be computed exactly above which the dense kernel is faster for all of them.
inline constexpr double dense_share = 0.4;

/// Exact outputs where the filter's bound decides nothing (emu/FILTER.md, "Exact work"): accumulators by the filter's
/// exact kernels, where they cannot by the other engines, rounded into `result`.
class FilterRedo {
public:
    FilterRedo(const GemmTask& task,
               const Format& out,
               const FilterLayout& layout,
               const simd::WalkShape& shape,
               const FilterColumns& b,
               Tensor& result)
        : task_(task),
          out_(out),
          layout_(layout),
          shape_(shape),
          b_(b),
          result_(result),
          kernels_(*simd::filter_kernels()) {}

    /// Computes open outputs of a tile and closes them: 16 pairs of two strips of rows and two of columns go together.
    /// `open`: a bit per output, [rows][panels]; row0: the row of the result that is row 0 of `a`.
    void pairs(const FilterRows& a,
               std::int64_t row0,
               std::int64_t row,
               std::int64_t rows,
               std::int64_t panel,
               std::uint64_t* open) const;
    /// What of a group of rows is not for the filter, as positions in the result: whole rows, and columns of the other
    /// rows; all rows where that is most of the outputs.
    struct Unfit {
        std::vector<std::int64_t> rows, fit_rows, cols;
        std::int64_t outputs = 0;  ///< how many
    };
    Unfit unfit(const FilterRows& a, std::int64_t row0) const;
    void compute(const Unfit& unfit) const;
    /// Computes the open outputs of a row; `open` points to the row's bits.
    void finish_row(const FilterRows& a, std::int64_t row0, std::int64_t row, const std::uint64_t* open) const;
    /// Computes the outputs rows x cols of the result by another engine, not the filter.
    void block(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols, GemmEngine engine) const;

private:
    void lanes(std::span<const std::int64_t> columns,
               const std::uint32_t* row,
               std::int64_t i,
               std::vector<std::int64_t>& scalar) const;
    void store(std::int64_t i, std::int64_t j, float acc) const;

    const GemmTask& task_;
    const Format& out_;
    const FilterLayout& layout_;
    const simd::WalkShape& shape_;
    const FilterColumns& b_;
    Tensor& result_;
    const simd::FilterKernels& kernels_;
};

}  // namespace bitreplay
