#pragma once

#include <cstdint>
#include <vector>

#include "emu/gemm.hpp"
#include "emu/gemm_pack.hpp"
#include "emu/scratch.hpp"
#include "emu/simd/filter.hpp"

namespace bitreplay {

/// Segments of a layout's leaves, one leaf after the other.
struct FilterLayout {
    struct Leaf {
        std::int64_t first_segment, segments;
    };
    std::vector<Leaf> leaves;
    std::vector<Range> segments;  ///< in k: the filter needs an identity layout

    Range products_of(std::int64_t leaf) const noexcept {
        const Leaf& part = leaves[static_cast<std::size_t>(leaf)];
        const auto first = static_cast<std::size_t>(part.first_segment);
        return {segments[first].begin, segments[first + static_cast<std::size_t>(part.segments) - 1].end};
    }
};
/// The filter's layout, or nothing where it does not apply to the task (see GemmEngine::filtered).
std::optional<FilterLayout> filter_layout(const GemmTask& task, const simd::WalkShape& shape, const WalkLayout& layout);

/// Row `row` of a bf16 matrix.
const std::uint16_t* codes_of(const Tensor& tensor, std::int64_t row) noexcept;

/// The rows of a product as the filter reads them.
struct FilterRows {
    std::int64_t count, units, segments;
    Scratch<std::uint32_t> pairs;  ///< two codes a word, [strips][units][simd::strip_rows], an even number of strips
    std::vector<float> norm;
    std::vector<std::int32_t> top, middle;
    Scratch<std::uint16_t> deeper;
    std::vector<std::uint8_t> unfit;

    FilterRows(const Tensor& x, std::span<const std::int64_t> rows, const FilterLayout& layout, int block);
    /// The words of a row from product first_k on, strip_rows apart.
    const std::uint32_t* words(std::int64_t row, std::int64_t first_k) const noexcept {
        return pairs.data() + (row / simd::strip_rows * units + first_k / 2) * simd::strip_rows +
               row % simd::strip_rows;
    }
    simd::FilterSide side(std::int64_t row, std::int64_t segment, std::int64_t first_k) const noexcept {
        const std::int64_t at = row * segments + segment;
        return {words(row, first_k),
                norm.data() + at,
                top.data() + at,
                deeper.data() + at * simd::depth_levels,
                middle.data() + at};
    }
};

/// The columns of a product as the filter reads them: two bytes per weight and the bound's tables.
class FilterColumns {
public:
    FilterColumns(const Tensor& w, std::span<const std::int64_t> cols, const FilterLayout& layout, int block);

    std::int64_t panels() const noexcept {
        return (std::ssize(unfit_) + simd::panel_columns - 1) / simd::panel_columns;
    }
    /// From this segment of this panel on.
    simd::FilterSide side(std::int64_t panel, std::int64_t segment, std::int64_t first_k) const noexcept;
    std::int64_t strip_words() const noexcept { return units_ * simd::strip_columns; }
    bool unfit(std::int64_t column) const noexcept { return unfit_[static_cast<std::size_t>(column)] != 0; }
    std::int64_t bytes() const noexcept;

private:
    std::int64_t segments_, units_;
    Scratch<std::uint32_t> pairs_;
    std::vector<float> norm_;
    std::vector<std::int32_t> top_, middle_;
    std::vector<std::uint16_t> deeper_;
    std::vector<std::uint8_t> unfit_;
};

/// What the filter knew about each output before it decided: |accumulator - value| <= error. For tests of the bound.
struct FilterTrace {
    std::vector<float> value, error;
};

/// gemm_rounded by the filter; `columns` belongs to the task's w and cols.
Tensor gemm_filtered(const GemmTask& task,
                     const Format& out,
                     const FilterLayout& layout,
                     const simd::WalkShape& shape,
                     const FilterColumns& columns,
                     double& redone,
                     FilterTrace* trace = nullptr);

}  // namespace bitreplay
