#include "emu/gemm_filter_redo.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "emu/parallel.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = simd::panel_columns;
constexpr std::int64_t tile_rows = 128;

bool plain_merges(const Plan& plan) noexcept {
    const Merge& how = plan.merge;
    if (plan.kind == Plan::Kind::merge &&
        (how.parts == Merge::Precision::result || how.sums == Merge::Precision::result || plan.parts.empty()))
        return false;
    return std::all_of(plan.parts.begin(), plan.parts.end(), plain_merges);
}

struct Approximation {
    Scratch<float> value, error;
};

/// Approximations of a tile, for reduce().
struct ApproximateSum {
    using Value = Approximation;
    const FilterLayout& layout;
    const simd::WalkShape& shape;
    const simd::FilterKernels& kernels;
    const FilterRows& a;
    const FilterColumns& b;
    std::int64_t row, rows, panel;

    /// No sum yet: a merge from zero adds its first part to +0 exactly (FILTER.md, "Sums of parts").
    Value zero() const { return {}; }
    Value walk(const Plan&, std::int64_t leaf) const {
        Value out{Scratch<float>(static_cast<std::size_t>(rows * width)),
                  Scratch<float>(static_cast<std::size_t>(rows * width))};
        const FilterLayout::Leaf& part = layout.leaves[static_cast<std::size_t>(leaf)];
        const auto [begin, end] = layout.products_of(leaf);
        kernels.approximate({.block = shape.block,
                             .align_bits = shape.align_bits,
                             .rows = rows,
                             .blocks = (end - begin) / shape.block,
                             .segments = part.segments,
                             .a = a.side(row, part.first_segment, begin),
                             .a_units = a.units,
                             .a_segments = a.segments,
                             .b_strip = b.strip_words(),
                             .b = b.side(panel, part.first_segment, begin),
                             .value = out.value.data(),
                             .error = out.error.data()});
        return out;
    }
    Value lanes(const Plan&) const { return {}; }  // never called: filter_layout() knows walks only
    void add(Value& sum, Value& part) const {
        if (sum.value.size() == 0)
            std::swap(sum, part);
        else
            kernels.merge(rows * width, sum.value.data(), sum.error.data(), part.value.data(), part.error.data());
    }
    void round(Value&) const {}  // never called: plain_merges()
};

class FilteredGemm {
public:
    FilteredGemm(const GemmTask& task,
                 const FilterLayout& layout,
                 const simd::WalkShape& shape,
                 const FilterColumns& b,
                 const FilterRedo& redo,
                 bool to_fp16,
                 Tensor& result,
                 FilterTrace* trace)
        : task_(task),
          layout_(layout),
          shape_(shape),
          b_(b),
          redo_(redo),
          to_fp16_(to_fp16),
          result_(result),
          trace_(trace),
          kernels_(*simd::filter_kernels()) {}

    /// Decides what the bound can decide; the rest of the tile becomes bits of `open` ([rows][panels]), or is computed
    /// by the dense kernel where that is faster. Rows and columns that are not fit for the filter are left out.
    void tile(const FilterRows& a, std::int64_t row0, std::int64_t row, std::int64_t panel, std::uint64_t* open) {
        const std::int64_t rows = std::min(tile_rows, a.count - row),
                           cols = std::min(width, result_.cols() - panel * width);
        const Approximation approximation =
            reduce(task_.plan, ApproximateSum{layout_, shape_, kernels_, a, b_, row, rows, panel});
        std::uint64_t fit_columns = 0;
        for (std::int64_t j = 0; j < cols; ++j)
            if (!b_.unfit(panel * width + j)) fit_columns |= std::uint64_t{1} << j;
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
            std::byte* const at =
                result_.mutable_bytes().data() + ((row0 + row + i) * result_.cols() + panel * width) * 2;
            std::uint16_t part[width];
            std::uint64_t mask = kernels_.decide(approximation.value.data() + i * width,
                                                 approximation.error.data() + i * width,
                                                 to_fp16_,
                                                 cols == width ? reinterpret_cast<std::uint16_t*>(at) : part);
            if (cols != width) std::memcpy(at, part, static_cast<std::size_t>(cols) * 2);
            mask &= a.unfit[static_cast<std::size_t>(row + i)] != 0 ? 0 : fit_columns;
            if (trace_ != nullptr) trace(approximation, a, row0, row, i, panel, cols);
            open[(row + i) * b_.panels() + panel] = mask;
            count += std::popcount(mask);
        }
        redone_ += count;
        if (static_cast<double>(count) <= dense_share * static_cast<double>(rows * cols)) {
            redo_.pairs(a, row0, row, rows, panel, open);
            return;
        }
        std::vector<std::int64_t> r(static_cast<std::size_t>(rows)), c(static_cast<std::size_t>(cols));
        for (std::int64_t i = 0; i < rows; ++i) {
            r[static_cast<std::size_t>(i)] = row0 + row + i;
            open[(row + i) * b_.panels() + panel] = 0;
        }
        for (std::int64_t j = 0; j < cols; ++j) c[static_cast<std::size_t>(j)] = panel * width + j;
        redo_.block(r, c, GemmEngine::dense);
    }

    void count_exact(std::int64_t outputs) { redone_ += outputs; }
    std::int64_t redone() const noexcept { return redone_; }

private:
    void trace(const Approximation& approximation,
               const FilterRows& a,
               std::int64_t row0,
               std::int64_t row,
               std::int64_t i,
               std::int64_t panel,
               std::int64_t cols) {
        for (std::int64_t j = 0; j < cols; ++j) {
            const auto at = static_cast<std::size_t>((row0 + row + i) * result_.cols() + panel * width + j);
            const bool unfit = a.unfit[static_cast<std::size_t>(row + i)] != 0 || b_.unfit(panel * width + j);
            trace_->value[at] = approximation.value[static_cast<std::size_t>(i * width + j)];
            trace_->error[at] = unfit ? std::numeric_limits<float>::infinity()
                                      : approximation.error[static_cast<std::size_t>(i * width + j)];
        }
    }

    const GemmTask& task_;
    const FilterLayout& layout_;
    const simd::WalkShape& shape_;
    const FilterColumns& b_;
    const FilterRedo& redo_;
    bool to_fp16_;
    Tensor& result_;
    FilterTrace* trace_;
    const simd::FilterKernels& kernels_;
    std::atomic<std::int64_t> redone_{0};
};

}  // namespace

std::optional<FilterLayout> filter_layout(const GemmTask& task,
                                          const simd::WalkShape& shape,
                                          const WalkLayout& layout) {
    const DotRule& rule = task.rule;
    const bool kernel = simd::filter_kernels() != nullptr && (task.kernel.empty() || task.kernel == "avx512");
    // From 23 bits on an accumulator that sets the block's exponent itself loses nothing (FILTER.md, step 6).
    const bool shape_fits = shape.result == simd::Result::fp32 && !shape.halves && shape.align_bits >= 23 &&
                            (shape.block == 4 || shape.block == 8 || shape.block == 16);
    if (!kernel || !shape_fits || rule.types.a != bf16 || rule.types.b != bf16 || !layout.identity ||
        task.x.cols() > (1 << 14) * shape.block || !plain_merges(task.plan))
        return std::nullopt;
    FilterLayout out;
    for (const WalkLayout::Leaf& leaf : layout.leaves) {
        if (leaf.blocks == 0) return std::nullopt;
        const std::int64_t begin = leaf.first_block * shape.block, end = begin + leaf.blocks * shape.block;
        out.leaves.push_back({std::ssize(out.segments), 0});
        for (std::int64_t k = begin; k < end; k += simd::segment_products)
            out.segments.push_back({k, std::min<std::int64_t>(k + simd::segment_products, end)});
        out.leaves.back().segments = std::ssize(out.segments) - out.leaves.back().first_segment;
    }
    return out;
}

Tensor gemm_filtered(const GemmTask& task,
                     const Format& out,
                     const FilterLayout& layout,
                     const simd::WalkShape& shape,
                     const FilterColumns& columns,
                     double& redone,
                     FilterTrace* trace) {
    Tensor result(out, {std::ssize(task.rows), std::ssize(task.cols)});
    if (trace != nullptr)
        trace->value.resize(static_cast<std::size_t>(result.size())), trace->error.resize(trace->value.size());
    const FilterRedo redo(task, out, layout, shape, columns, result);
    FilteredGemm gemm(task, layout, shape, columns, redo, out == fp16, result, trace);
    constexpr std::int64_t row_group = 8 * tile_rows;
    for (std::int64_t row0 = 0; row0 < std::ssize(task.rows); row0 += row_group) {
        const std::int64_t rows = std::min(row_group, std::ssize(task.rows) - row0);
        const FilterRows a(task.x,
                           task.rows.subspan(static_cast<std::size_t>(row0), static_cast<std::size_t>(rows)),
                           layout,
                           shape.block);
        const FilterRedo::Unfit unfit = redo.unfit(a, row0);
        gemm.count_exact(unfit.outputs);
        if (std::ssize(unfit.rows) == rows) {
            redo.compute(unfit);
            if (trace != nullptr)
                std::fill_n(
                    trace->error.begin() + row0 * result.cols(), unfit.outputs, std::numeric_limits<float>::infinity());
            continue;
        }
        const std::int64_t tiles = (rows + tile_rows - 1) / tile_rows;
        Scratch<std::uint64_t> open(static_cast<std::size_t>(rows * columns.panels()));
        parallel_for(tiles * columns.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t item = begin; item < end; ++item)
                gemm.tile(a, row0, item % tiles * tile_rows, item / tiles, open.data());
        });
        parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row)
                redo.finish_row(a, row0, row, open.data() + row * columns.panels());
        });
        redo.compute(unfit);
    }
    redone = static_cast<double>(gemm.redone()) / static_cast<double>(std::max<std::int64_t>(1, result.size()));
    return result;
}

}  // namespace bitreplay
