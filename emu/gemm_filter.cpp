#include "emu/gemm_filter.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = simd::panel_columns;
constexpr std::int64_t tile_rows = 128;
constexpr std::int64_t least_pairs = 6;  // fewer of them are cheaper by rows
constexpr double dense_share = 0.4;      // of undecided outputs in a tile; above it the dense kernel is faster

std::int64_t leaves_of(const Plan& plan) noexcept {
    if (plan.kind == Plan::Kind::walk) return 1;
    std::int64_t count = 0;
    for (const Plan& part : plan.parts) count += leaves_of(part);
    return count;
}

/// Visits the parts of a merge in the order in which they are added: body(part, its first leaf).
template <class Body>
void in_order(const Plan& plan, std::int64_t leaf, const Body& body) {
    std::vector<std::int64_t> first;
    for (const Plan& part : plan.parts) {
        first.push_back(leaf);
        leaf += leaves_of(part);
    }
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
        const std::size_t at = plan.merge.order == Merge::Order::last_to_first ? plan.parts.size() - 1 - i : i;
        body(plan.parts[at], first[at]);
    }
}

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

class FilteredGemm {
public:
    FilteredGemm(const GemmTask& task,
                 const Format& out,
                 const FilterLayout& layout,
                 const simd::WalkShape& shape,
                 const FilterColumns& b,
                 Tensor& result,
                 FilterTrace* trace)
        : task_(task),
          out_(out),
          layout_(layout),
          shape_(shape),
          b_(b),
          result_(result),
          trace_(trace),
          kernels_(*simd::filter_kernels()) {}

    /// Decides what the bound can decide; the rest of the tile becomes bits of `open` ([rows][panels]), or is computed
    /// by the dense kernel where that is faster.
    void tile(const FilterRows& a, std::int64_t row0, std::int64_t row, std::int64_t panel, std::uint64_t* open) {
        const std::int64_t rows = std::min(tile_rows, a.count - row),
                           cols = std::min(width, result_.cols() - panel * width);
        const Approximation approximation = approximate(task_.plan, 0, a, row, rows, panel);
        const std::uint64_t valid = cols == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << cols) - 1;
        std::uint64_t bad_columns = 0;
        for (std::int64_t j = 0; j < cols; ++j)
            if (b_.unfit(panel * width + j)) bad_columns |= std::uint64_t{1} << j;
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
            std::uint16_t codes[width];
            std::uint64_t mask = kernels_.decide(
                approximation.value.data() + i * width, approximation.error.data() + i * width, out_ == fp16, codes);
            mask |= bad_columns;
            if (a.unfit[static_cast<std::size_t>(row + i)] != 0) mask = ~std::uint64_t{0};
            std::memcpy(result_.mutable_bytes().data() + ((row0 + row + i) * result_.cols() + panel * width) * 2,
                        codes,
                        static_cast<std::size_t>(cols) * 2);
            if (trace_ != nullptr) trace(approximation, a, row0, row, i, panel, cols);
            mask &= valid;
            open[(row + i) * b_.panels() + panel] = mask;
            count += std::popcount(mask);
        }
        redone_ += count;
        if (static_cast<double>(count) <= dense_share * static_cast<double>(rows * cols)) {
            redo_pairs(a, row0, row, rows, panel, open);
            return;
        }
        std::vector<std::int64_t> r(static_cast<std::size_t>(rows)), c(static_cast<std::size_t>(cols));
        for (std::int64_t i = 0; i < rows; ++i) {
            r[static_cast<std::size_t>(i)] = row0 + row + i;
            open[(row + i) * b_.panels() + panel] = 0;
        }
        for (std::int64_t j = 0; j < cols; ++j) c[static_cast<std::size_t>(j)] = panel * width + j;
        exact(r, c, GemmEngine::dense);
    }

    /// Computes a row's open outputs exactly.
    void finish_row(const FilterRows& a, std::int64_t row0, std::int64_t row, const std::uint64_t* open) {
        std::vector<std::int64_t> columns, scalar;
        for (std::int64_t panel = 0; panel < b_.panels(); ++panel)
            for (std::uint64_t mask = open[panel]; mask != 0; mask &= mask - 1) {
                const std::int64_t j = panel * width + std::countr_zero(mask);
                (a.unfit[static_cast<std::size_t>(row)] != 0 || b_.unfit(j) ? scalar : columns).push_back(j);
            }
        for (std::size_t at = 0; at < columns.size(); at += simd::lane_count)
            redo(std::span(columns).subspan(at, std::min<std::size_t>(simd::lane_count, columns.size() - at)),
                 a.words(row, 0),
                 row0 + row,
                 scalar);
        const std::int64_t i = row0 + row;
        if (!scalar.empty()) exact(std::span(&i, 1), scalar, GemmEngine::automatic);
    }

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

    Approximation approximate(const Plan& plan,
                              std::int64_t leaf,
                              const FilterRows& a,
                              std::int64_t row,
                              std::int64_t rows,
                              std::int64_t panel) const {
        if (plan.kind == Plan::Kind::walk) {
            Approximation out{Scratch<float>(static_cast<std::size_t>(rows * width)),
                              Scratch<float>(static_cast<std::size_t>(rows * width))};
            const FilterLayout::Leaf& part = layout_.leaves[static_cast<std::size_t>(leaf)];
            const auto [begin, end] = products_of(leaf);
            kernels_.approximate({.block = shape_.block,
                                  .align_bits = shape_.align_bits,
                                  .rows = rows,
                                  .blocks = (end - begin) / shape_.block,
                                  .segments = part.segments,
                                  .a = a.side(row, part.first_segment, begin),
                                  .a_units = a.units,
                                  .a_segments = a.segments,
                                  .b_strip = b_.strip_words(),
                                  .b = b_.side(panel, part.first_segment, begin),
                                  .value = out.value.data(),
                                  .error = out.error.data()});
            return out;
        }
        // A merge from zero adds the first part to +0 exactly (a walk never gives -0 a different rounding: see
        // FILTER.md).
        Approximation sum;
        in_order(plan, leaf, [&](const Plan& part, std::int64_t first) {
            Approximation more = approximate(part, first, a, row, rows, panel);
            if (sum.value.size() == 0)
                sum = std::move(more);
            else
                kernels_.merge(rows * width, sum.value.data(), sum.error.data(), more.value.data(), more.error.data());
        });
        return sum;
    }

    /// Exact sums of separate outputs: walk(begin, end, acc) adds products [begin, end) to their accumulators.
    template <class Walk>
    void exact_sums(const Plan& plan, std::int64_t leaf, std::span<float> acc, const Walk& walk) const {
        if (plan.kind == Plan::Kind::walk) {
            std::fill(acc.begin(), acc.end(), 0.0F);
            const Range range = products_of(leaf);
            walk(range.begin, range.end, acc.data());
            return;
        }
        bool first = !plan.merge.from_zero;
        std::vector<std::uint32_t> sums(acc.size());
        in_order(plan, leaf, [&](const Plan& part, std::int64_t at) {
            exact_sums(part, at, acc, walk);
            for (std::size_t i = 0; i < acc.size(); ++i) {
                const auto x = std::bit_cast<std::uint32_t>(acc[i]);
                sums[i] = first ? x : f32::add(sums[i], x);
            }
            first = false;
        });
        for (std::size_t i = 0; i < acc.size(); ++i) acc[i] = std::bit_cast<float>(sums[i]);
    }

    Range products_of(std::int64_t leaf) const noexcept {
        const FilterLayout::Leaf& part = layout_.leaves[static_cast<std::size_t>(leaf)];
        const auto first = static_cast<std::size_t>(part.first_segment);
        return {layout_.segments[first].begin,
                layout_.segments[first + static_cast<std::size_t>(part.segments) - 1].end};
    }

    /// An exact accumulator: finite, because its operands are small.
    void store(std::int64_t i, std::int64_t j, float acc) {
        const auto bits = std::bit_cast<std::uint32_t>(acc);
        const std::uint64_t code =
            out_ == bf16 ? (bits + 0x7FFFU + ((bits >> 16) & 1)) >> 16 : convert(fp32, out_, bits);
        const auto narrow = static_cast<std::uint16_t>(code);
        std::memcpy(result_.mutable_bytes().data() + (i * result_.cols() + j) * 2, &narrow, 2);
    }

    /// Computes open outputs of a tile and closes them: 16 pairs of two strips of rows and two of columns go together.
    void redo_pairs(const FilterRows& a,
                    std::int64_t row0,
                    std::int64_t row,
                    std::int64_t rows,
                    std::int64_t panel,
                    std::uint64_t* open) {
        struct Place {
            std::int64_t row, column;  // of lane (0, 0)
            std::size_t lanes;
        };
        constexpr std::int64_t columns = 2 * simd::strip_columns;
        constexpr std::size_t together = 32;  // vectors: their operands of a few blocks fit the first-level cache
        std::vector<simd::PairVector> vectors;
        std::vector<Place> places;
        for (std::int64_t i = 0; i < rows; i += 2 * simd::strip_rows)
            for (std::int64_t column = 0; column < width; column += columns) {
                std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
                for (std::int64_t at = i; at < std::min<std::int64_t>(i + 2 * simd::strip_rows, rows); ++at) {
                    if (a.unfit[static_cast<std::size_t>(row + at)] != 0) continue;
                    auto mask = static_cast<std::uint32_t>(open[(row + at) * b_.panels() + panel] >> column);
                    for (; mask != 0; mask &= mask - 1) {
                        const int j = std::countr_zero(mask);
                        if (!b_.unfit(panel * width + column + j)) pairs.emplace_back(at - i, j);
                    }
                }
                if (std::ssize(pairs) < least_pairs) continue;
                for (std::size_t first = 0; first < pairs.size(); first += 16) {
                    simd::PairVector& lanes = vectors.emplace_back();
                    const std::size_t count = std::min<std::size_t>(16, pairs.size() - first);
                    for (std::size_t lane = 0; lane < count; ++lane)
                        std::tie(lanes.row[lane], lanes.column[lane]) = pairs[first + lane];
                    lanes.a = (row + i) * a.units;
                    lanes.b = column / simd::strip_columns * b_.strip_words();
                    places.push_back({row + i, column, count});
                }
            }
        Scratch<float> acc(vectors.size() * 16);  // aligned
        std::vector<std::uint16_t> unsafe(vectors.size());
        exact_sums(
            task_.plan, 0, std::span(acc.data(), acc.size()), [&](std::int64_t begin, std::int64_t end, float* to) {
                // A stretch of both sides is read by all vectors before the next.
                for (std::int64_t k = begin; k < end; k += simd::segment_products)
                    for (std::size_t v = 0; v < vectors.size(); v += together)
                        kernels_.walk_pairs(
                            {.block = shape_.block,
                             .align_bits = shape_.align_bits,
                             .blocks = (std::min<std::int64_t>(k + simd::segment_products, end) - k) / shape_.block,
                             .count = static_cast<std::int64_t>(std::min(together, vectors.size() - v)),
                             .vectors = vectors.data() + v,
                             .a = a.pairs.data(),
                             .b = b_.side(panel, 0, 0).pairs,
                             .a_strip = a.units * simd::strip_rows,
                             .b_strip = b_.strip_words(),
                             .first = k / shape_.block,
                             .acc = to + v * 16,
                             .unsafe = unsafe.data() + v});
            });
        for (std::size_t v = 0; v < vectors.size(); ++v)
            for (std::size_t lane = 0; lane < places[v].lanes; ++lane) {
                if (((unsafe[v] >> lane) & 1) != 0) continue;
                const std::int64_t r = places[v].row + vectors[v].row[lane],
                                   j = places[v].column + vectors[v].column[lane];
                store(row0 + r, panel * width + j, acc[v * 16 + lane]);
                open[r * b_.panels() + panel] &= ~(std::uint64_t{1} << j);
            }
    }

    void redo(std::span<const std::int64_t> columns,
              const std::uint32_t* row,
              std::int64_t i,
              std::vector<std::int64_t>& scalar) {
        simd::LanesTask task{};
        task.block = shape_.block;
        task.align_bits = shape_.align_bits;
        const std::int64_t k = task_.w.cols(), stride = (k / 2 + 15) / 16 * 16;
        // The kernel reads whole groups of 16 words, from the start of each walk.
        const bool copy = k % 32 != 0 || std::any_of(layout_.segments.begin(),
                                                     layout_.segments.end(),
                                                     [](const Range& r) { return r.begin % 32 != 0; });
        std::vector<std::uint32_t> padded(copy ? static_cast<std::size_t>(simd::lane_count * stride + 16) : 0);
        const std::uint32_t* pairs[simd::lane_count];
        for (std::size_t lane = 0; lane < simd::lane_count; ++lane) {
            const std::uint16_t* const codes =
                codes_of(task_.w, task_.cols[static_cast<std::size_t>(columns[std::min(lane, columns.size() - 1)])]);
            pairs[lane] = reinterpret_cast<const std::uint32_t*>(codes);
            if (!copy) continue;
            std::uint32_t* const to = padded.data() + static_cast<std::int64_t>(lane) * stride;
            std::memcpy(to, codes, static_cast<std::size_t>(k) * 2);
            pairs[lane] = to;
        }
        std::uint32_t unsafe = 0;
        float acc[simd::lane_count];
        exact_sums(task_.plan, 0, acc, [&](std::int64_t begin, std::int64_t end, float* to) {
            task.a = row + begin / 2 * simd::strip_rows;
            task.blocks = (end - begin) / shape_.block;
            for (std::size_t lane = 0; lane < simd::lane_count; ++lane) task.b[lane] = pairs[lane] + begin / 2;
            std::fill(std::begin(task.acc), std::end(task.acc), 0.0F);
            kernels_.walk_lanes(task);
            std::copy(std::begin(task.acc), std::end(task.acc), to);
            unsafe |= task.unsafe;
        });
        for (std::size_t lane = 0; lane < columns.size(); ++lane) {
            if (((unsafe >> lane) & 1) != 0)
                scalar.push_back(columns[lane]);
            else
                store(i, columns[lane], acc[lane]);
        }
    }

    /// Outputs at the positions rows x cols through their accumulators.
    void exact(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols, GemmEngine engine) {
        std::vector<std::int64_t> r, c;
        for (const std::int64_t i : rows) r.push_back(task_.rows[static_cast<std::size_t>(i)]);
        for (const std::int64_t j : cols) c.push_back(task_.cols[static_cast<std::size_t>(j)]);
        GemmTask part = task_;
        part.rows = r;
        part.cols = c;
        part.packed = nullptr;
        part.engine = engine;
        const Tensor acc = gemm_accumulators(part);
        std::int64_t at = 0;
        for (const std::int64_t i : rows)
            for (const std::int64_t j : cols) result_.set(i * result_.cols() + j, convert(fp32, out_, acc.get(at++)));
    }

    const GemmTask& task_;
    const Format& out_;
    const FilterLayout& layout_;
    const simd::WalkShape& shape_;
    const FilterColumns& b_;
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
    const bool shape_fits = shape.result == simd::Result::fp32 && !shape.halves &&
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
    FilteredGemm gemm(task, out, layout, shape, columns, result, trace);
    constexpr std::int64_t row_group = 8 * tile_rows;
    for (std::int64_t row0 = 0; row0 < std::ssize(task.rows); row0 += row_group) {
        const std::int64_t rows = std::min(row_group, std::ssize(task.rows) - row0);
        const FilterRows a(task.x,
                           task.rows.subspan(static_cast<std::size_t>(row0), static_cast<std::size_t>(rows)),
                           layout,
                           shape.block);
        const std::int64_t tiles = (rows + tile_rows - 1) / tile_rows;
        Scratch<std::uint64_t> open(static_cast<std::size_t>(rows * columns.panels()));
        parallel_for(tiles * columns.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t item = begin; item < end; ++item)
                gemm.tile(a, row0, item % tiles * tile_rows, item / tiles, open.data());
        });
        parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row)
                gemm.finish_row(a, row0, row, open.data() + row * columns.panels());
        });
    }
    redone = static_cast<double>(gemm.redone()) / static_cast<double>(std::max<std::int64_t>(1, result.size()));
    return result;
}

}  // namespace bitreplay
