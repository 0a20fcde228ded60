#include <algorithm>
#include <cstring>

#include "emu/gemm_filter.hpp"
#include "emu/parallel.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = simd::panel_columns, strip = simd::strip_columns;

/// Sixteen rows of a matrix, row(i), as pairs of codes side by side.
template <class Row>
void interleave(const Tensor& x, std::int64_t units, std::uint32_t* to, const Row& row) {
    const std::uint32_t* vectors[strip];
    for (std::int64_t i = 0; i < strip; ++i) vectors[i] = reinterpret_cast<const std::uint32_t*>(codes_of(x, row(i)));
    simd::filter_kernels()->interleave(vectors, units, to);
}

}  // namespace

const std::uint16_t* codes_of(const Tensor& tensor, std::int64_t row) noexcept {
    return reinterpret_cast<const std::uint16_t*>(tensor.bytes().data()) + row * tensor.cols();
}

FilterRows::FilterRows(const Tensor& x, std::span<const std::int64_t> rows, const FilterLayout& layout, int block)
    : count(std::ssize(rows)),
      units(x.cols() / 2),
      segments(std::ssize(layout.segments)),
      pairs(static_cast<std::size_t>((count + 2 * strip - 1) / (2 * strip) * 2 * strip * units)),
      norm(static_cast<std::size_t>(count * segments)),
      top(norm.size()),
      middle(norm.size()),
      deeper(norm.size() * simd::depth_levels),
      unfit(static_cast<std::size_t>(count)) {
    const simd::FilterKernels& kernels = *simd::filter_kernels();
    parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::uint16_t* const codes = codes_of(x, rows[static_cast<std::size_t>(i)]);
            for (std::int64_t s = 0; s < segments; ++s) {
                const Range& range = layout.segments[static_cast<std::size_t>(s)];
                simd::FilterSegment segment;
                kernels.describe(codes + range.begin, range.end - range.begin, block, segment);
                const auto at = static_cast<std::size_t>(i * segments + s);
                norm[at] = segment.norm;
                top[at] = segment.top_field - 127;
                middle[at] = simd::middle_of(segment.deeper);
                std::memcpy(deeper.data() + at * simd::depth_levels, segment.deeper, sizeof segment.deeper);
                if (segment.unfit) unfit[static_cast<std::size_t>(i)] = 1;
            }
        }
    });
    static_assert(simd::strip_rows == strip && strip == 16);
    parallel_for(
        static_cast<std::int64_t>(pairs.size()) / (strip * units), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t s = begin; s < end; ++s)
                interleave(x, units, pairs.data() + s * strip * units, [&](std::int64_t r) {
                    return rows[static_cast<std::size_t>(std::min(s * strip + r, count - 1))];
                });
        });
}

FilterColumns::FilterColumns(const Tensor& w, std::span<const std::int64_t> cols, const FilterLayout& layout, int block)
    : segments_(std::ssize(layout.segments)), units_(w.cols() / 2), unfit_(cols.size()) {
    const std::int64_t all = panels();
    pairs_ = Scratch<std::uint32_t>(static_cast<std::size_t>(all * units_ * width));
    norm_.resize(static_cast<std::size_t>(all * segments_ * width));
    top_.resize(static_cast<std::size_t>(all * segments_));
    middle_.resize(top_.size());
    deeper_.resize(top_.size() * simd::depth_levels);
    const simd::FilterKernels& kernels = *simd::filter_kernels();
    parallel_for(all, 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<simd::FilterSegment> segment(static_cast<std::size_t>(width));
        for (std::int64_t panel = begin; panel < end; ++panel) {
            const auto column = [&](std::int64_t j) { return std::min(panel * width + j, std::ssize(cols) - 1); };
            std::uint32_t* const to = pairs_.data() + panel * units_ * width;
            for (std::int64_t first = 0; first < width; first += strip)
                interleave(w, units_, to + first * units_, [&](std::int64_t j) {
                    return cols[static_cast<std::size_t>(column(first + j))];
                });
            for (std::int64_t s = 0; s < segments_; ++s) {
                const Range& range = layout.segments[static_cast<std::size_t>(s)];
                const auto at = static_cast<std::size_t>(panel * segments_ + s);
                int top = 1;
                for (std::int64_t j = 0; j < width; ++j) {
                    simd::FilterSegment& one = segment[static_cast<std::size_t>(j)];
                    kernels.describe(codes_of(w, cols[static_cast<std::size_t>(column(j))]) + range.begin,
                                     range.end - range.begin,
                                     block,
                                     one);
                    norm_[at * width + static_cast<std::size_t>(j)] = one.norm;
                    if (one.unfit)
                        unfit_[static_cast<std::size_t>(column(j))] = 1;
                    else
                        top = std::max(top, one.top_field);
                }
                top_[at] = top - 127;
                std::uint16_t most[simd::depth_levels] = {};
                for (const simd::FilterSegment& one : segment) {
                    if (one.unfit) continue;
                    std::uint16_t table[simd::depth_levels];
                    one.relative_to(top, table);
                    for (std::size_t i = 0; i < simd::depth_levels; ++i) most[i] = std::max(most[i], table[i]);
                }
                middle_[at] = simd::middle_of(most);
                std::memcpy(deeper_.data() + at * simd::depth_levels, most, sizeof most);
            }
        }
    });
}

simd::FilterSide FilterColumns::side(std::int64_t panel, std::int64_t segment, std::int64_t first_k) const noexcept {
    const std::int64_t at = panel * segments_ + segment;
    return {pairs_.data() + panel * units_ * width + first_k / 2 * strip,
            norm_.data() + at * width,
            top_.data() + at,
            deeper_.data() + at * simd::depth_levels,
            middle_.data() + at};
}

std::int64_t FilterColumns::bytes() const noexcept {
    return static_cast<std::int64_t>(pairs_.size() * 4 + norm_.size() * 4 + top_.size() * 8 + deeper_.size() * 2 +
                                     unfit_.size());
}

}  // namespace bitreplay
