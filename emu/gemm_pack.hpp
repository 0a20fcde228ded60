#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arch/dot.hpp"
#include "emu/scratch.hpp"
#include "emu/simd/dot.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/plan.hpp"

namespace bitreplay {

/// A matrix of codes anywhere in memory: `count` vectors of `depth` codes each. Strides are in codes.
struct Codes {
    const std::byte* data = nullptr;
    Format format = fp32;
    std::int64_t count = 0, depth = 0;
    std::int64_t stride = 0;        ///< from vector to vector
    std::int64_t depth_stride = 1;  ///< along a vector

    std::uint32_t at(std::int64_t vector, std::int64_t k) const noexcept;
};
/// The rows of a tensor, its last dimension contiguous.
Codes rows_of(const Tensor& tensor);

/// A rule as a walk of equal blocks, if a kernel can compute it.
std::optional<simd::WalkShape> walk_shape(const DotRule& rule, int instruction_k);

/// The walks of a plan laid out one after the other, each range filled up to whole blocks.
struct WalkLayout {
    struct Leaf {
        std::int64_t first_block, blocks;
    };
    std::vector<Leaf> leaves;          ///< one per walk, in the order of a depth-first visit
    std::vector<std::int64_t> source;  ///< packed position -> k, or -1 for a filler
    std::int64_t blocks = 0;
    bool identity = false;  ///< source[k] == k for all of [0, depth)
};
WalkLayout walk_layout(const Plan& plan, const simd::WalkShape& shape, int instruction_k, std::int64_t depth);

/// Operands in the form that kernels read. Vectors with a NaN or an infinity are only marked: no kernel handles them.
class PackedRows {
public:
    /// Packs the listed vectors; small ones are raised by at most 2^most_lift (see simd::WalkTask::a_lift).
    PackedRows(const Codes& codes,
               const Format& unit,
               const WalkLayout& layout,
               std::span<const std::int64_t> vectors,
               std::int32_t most_lift = 0);

    std::int64_t count() const noexcept { return std::ssize(top_); }
    /// Packed depth: the distance between rows.
    std::int64_t depth() const noexcept { return depth_; }
    const float* values(std::int64_t row) const noexcept { return values_.data() + row * depth_; }
    const std::uint32_t* scale(std::int64_t row) const noexcept { return scale_.data() + row * depth_; }
    const std::int32_t* top(std::int64_t row) const noexcept { return top_.data() + row; }
    const std::int32_t* lift(std::int64_t row) const noexcept { return lift_.data() + row; }
    bool special(std::int64_t row) const noexcept { return special_[static_cast<std::size_t>(row)] != 0; }

private:
    std::int64_t depth_;
    Scratch<float> values_;
    Scratch<std::uint32_t> scale_;
    std::vector<std::int32_t> top_, lift_;
    std::vector<std::uint8_t> special_;
};

/// Panels of simd::panel_columns vectors; the last one is filled up to simd::columns_read with copies of its
/// last vector.
class PackedColumns {
public:
    PackedColumns(const Codes& codes,
                  const Format& unit,
                  const WalkLayout& layout,
                  std::span<const std::int64_t> vectors,
                  std::int32_t most_lift = 0);

    std::int64_t count() const noexcept { return count_; }
    std::int64_t panels() const noexcept { return std::ssize(top_); }
    const float* values(std::int64_t panel) const noexcept {
        return values_.data() + panel * depth_ * simd::panel_columns;
    }
    const std::int8_t* scale(std::int64_t panel) const noexcept {
        return scale_.data() + panel * depth_ * simd::panel_columns;
    }
    std::int32_t top(std::int64_t panel) const noexcept { return top_[static_cast<std::size_t>(panel)]; }
    std::int32_t lift(std::int64_t panel) const noexcept { return lift_[static_cast<std::size_t>(panel)]; }
    bool special(std::int64_t column) const noexcept { return special_[static_cast<std::size_t>(column)] != 0; }
    std::int64_t bytes() const noexcept;

private:
    std::int64_t count_, depth_;
    Scratch<float> values_;
    Scratch<std::int8_t> scale_;
    std::vector<std::int32_t> top_, lift_;
    std::vector<std::uint8_t> special_;
};

}  // namespace bitreplay
