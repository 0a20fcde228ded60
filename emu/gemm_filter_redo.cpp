#include "emu/gemm_filter_redo.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "arch/fp32.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/indices.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = simd::panel_columns;
constexpr std::int64_t least_pairs = 6;  // fewer of them are cheaper by rows

/// Exact sums of `count` separate outputs, for reduce(): add_products(range, acc) continues their accumulators.
template <class Walk>
struct SeparateSums {
    using Value = Scratch<float>;  // aligned
    std::size_t count;
    const FilterLayout& layout;
    const Walk& add_products;

    Value zero() const {
        Value acc(count);
        std::fill_n(acc.data(), count, 0.0F);
        return acc;
    }
    Value walk(const Plan&, std::int64_t leaf) const {
        Value acc = zero();
        add_products(layout.products_of(leaf), acc.data());
        return acc;
    }
    Value lanes(const Plan&) const { return zero(); }  // never called: filter_layout() knows walks only
    void add(Value& sum, const Value& part) const {
        const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
        for (std::size_t i = 0; i < count; ++i) sum[i] = std::bit_cast<float>(f32::add(bits(sum[i]), bits(part[i])));
    }
    void round(Value&) const {}  // never called: filter_layout() refuses such merges
};

template <class Walk>
Scratch<float> separate_sums(const Plan& plan, std::size_t count, const FilterLayout& layout, const Walk& walk) {
    return reduce(plan, SeparateSums<Walk>{count, layout, walk});
}

}  // namespace

/// An exact accumulator: finite, because its operands are small.
void FilterRedo::store(std::int64_t i, std::int64_t j, float acc) const {
    const auto code = static_cast<std::uint16_t>(round_accumulator(fp32, out_, std::bit_cast<std::uint32_t>(acc)));
    std::memcpy(result_.mutable_bytes().data() + (i * result_.cols() + j) * 2, &code, 2);
}

void FilterRedo::pairs(const FilterRows& a,
                       std::int64_t row0,
                       std::int64_t row,
                       std::int64_t rows,
                       std::int64_t panel,
                       std::uint64_t* open) const {
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
                auto mask = static_cast<std::uint32_t>(open[(row + at) * b_.panels() + panel] >> column);
                for (; mask != 0; mask &= mask - 1) pairs.emplace_back(at - i, std::countr_zero(mask));
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
    std::vector<std::uint16_t> unsafe(vectors.size());
    const Scratch<float> acc =
        separate_sums(task_.plan, vectors.size() * 16, layout_, [&](const Range& range, float* to) {
            // A stretch of both sides is read by all vectors before the next.
            for (std::int64_t k = range.begin; k < range.end; k += simd::segment_products)
                for (std::size_t v = 0; v < vectors.size(); v += together)
                    kernels_.walk_pairs(
                        {.block = shape_.block,
                         .align_bits = shape_.align_bits,
                         .blocks = (std::min<std::int64_t>(k + simd::segment_products, range.end) - k) / shape_.block,
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
            const std::int64_t r = places[v].row + vectors[v].row[lane], j = places[v].column + vectors[v].column[lane];
            store(row0 + r, panel * width + j, acc[v * 16 + lane]);
            open[r * b_.panels() + panel] &= ~(std::uint64_t{1} << j);
        }
}

void FilterRedo::lanes(std::span<const std::int64_t> columns,
                       const std::uint32_t* row,
                       std::int64_t i,
                       std::vector<std::int64_t>& scalar) const {
    simd::LanesTask task{};
    task.block = shape_.block;
    task.align_bits = shape_.align_bits;
    const std::int64_t k = task_.w.cols(), stride = (k / 2 + 15) / 16 * 16;
    // The kernel reads whole groups of 16 words, from the start of each walk.
    const bool copy = k % 32 != 0 || std::any_of(layout_.segments.begin(), layout_.segments.end(), [](const Range& r) {
                          return r.begin % 32 != 0;
                      });
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
    const Scratch<float> acc = separate_sums(task_.plan, simd::lane_count, layout_, [&](const Range& range, float* to) {
        task.a = row + range.begin / 2 * simd::strip_rows;
        task.blocks = (range.end - range.begin) / shape_.block;
        for (std::size_t lane = 0; lane < simd::lane_count; ++lane) task.b[lane] = pairs[lane] + range.begin / 2;
        std::copy_n(to, simd::lane_count, task.acc);
        kernels_.walk_lanes(task);
        std::copy_n(task.acc, simd::lane_count, to);
        unsafe |= task.unsafe;
    });
    for (std::size_t lane = 0; lane < columns.size(); ++lane) {
        if (((unsafe >> lane) & 1) != 0)
            scalar.push_back(columns[lane]);
        else
            store(i, columns[lane], acc[lane]);
    }
}

void FilterRedo::block(std::span<const std::int64_t> rows,
                       std::span<const std::int64_t> cols,
                       GemmEngine engine) const {
    GemmTask task = task_;
    if (engine != GemmEngine::dense || cols.size() != task_.cols.size()) task.packed = nullptr;
    task.engine = engine;
    compute_at(
        task, rows, cols, [&](const GemmTask& part) { return gemm_rounded(part, out_); }, result_);
}

FilterRedo::Unfit FilterRedo::unfit(const FilterRows& a, std::int64_t row0) const {
    Unfit out;
    for (std::int64_t i = 0; i < a.count; ++i)
        (a.unfit[static_cast<std::size_t>(i)] != 0 ? out.rows : out.fit_rows).push_back(row0 + i);
    for (std::int64_t j = 0; j < std::ssize(task_.cols); ++j)
        if (b_.unfit(j)) out.cols.push_back(j);
    const std::int64_t outputs = a.count * std::ssize(task_.cols),
                       fit = std::ssize(out.fit_rows) * (std::ssize(task_.cols) - std::ssize(out.cols));
    if (static_cast<double>(outputs - fit) <= dense_share * static_cast<double>(outputs)) {
        out.outputs = outputs - fit;
        return out;
    }
    out.rows = all_indices(a.count);
    for (std::int64_t& row : out.rows) row += row0;
    return {.rows = std::move(out.rows), .fit_rows = {}, .cols = {}, .outputs = outputs};
}

void FilterRedo::compute(const Unfit& unfit) const {
    if (!unfit.rows.empty()) block(unfit.rows, all_indices(std::ssize(task_.cols)), GemmEngine::dense);
    if (!unfit.cols.empty()) block(unfit.fit_rows, unfit.cols, GemmEngine::dense);
}

void FilterRedo::finish_row(const FilterRows& a, std::int64_t row0, std::int64_t row, const std::uint64_t* open) const {
    std::vector<std::int64_t> columns, scalar;
    for (std::int64_t panel = 0; panel < b_.panels(); ++panel)
        for (std::uint64_t mask = open[panel]; mask != 0; mask &= mask - 1) {
            columns.push_back(panel * width + std::countr_zero(mask));
        }
    for (std::size_t at = 0; at < columns.size(); at += simd::lane_count)
        lanes(std::span(columns).subspan(at, std::min<std::size_t>(simd::lane_count, columns.size() - at)),
              a.words(row, 0),
              row0 + row,
              scalar);
    const std::int64_t i = row0 + row;
    if (!scalar.empty()) block(std::span(&i, 1), scalar, GemmEngine::automatic);
}

}  // namespace bitreplay
