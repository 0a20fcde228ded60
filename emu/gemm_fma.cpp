#include "emu/gemm_fma.hpp"

#include <algorithm>
#include <cstring>

#include "emu/fp32_rows.hpp"
#include "emu/gemm_fma_single.hpp"
#include "emu/parallel.hpp"
#include "emu/scratch.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t widest = 64, narrowest = 16;  // columns of a panel
constexpr std::int64_t chunk = 256;  // depth of a panel that is used for all rows of a tile before the next: 64 KiB
constexpr std::int64_t largest_tile = 128;
constexpr std::int64_t partials_in_cache = 1024;  // rows of accumulators: 256 KiB

/// One side of a product: the chosen vectors of a matrix.
struct Side {
    const Tensor& matrix;
    std::span<const std::int64_t> vectors;
};

/// `width` vectors from first on, as fp32, each a column: [k][width], room for depth rounded up to 4. What lies beyond
/// the last vector is zero.
void pack_panel(
    const Fp32Kernels& kernels, const Side& side, std::int64_t first, std::int64_t width, std::uint32_t* out) {
    const std::int64_t depth = side.matrix.cols(), count = std::min(width, std::ssize(side.vectors) - first);
    std::vector<std::uint32_t> values(static_cast<std::size_t>(chunk * width));
    for (std::int64_t k = 0; k < depth; k += chunk) {
        const std::int64_t n = std::min(chunk, depth - k);
        for (std::int64_t j = 0; j < count; ++j)
            load_fp32(side.matrix,
                      side.vectors[static_cast<std::size_t>(first + j)] * depth + k,
                      std::span(values).subspan(static_cast<std::size_t>(j * chunk), static_cast<std::size_t>(n)));
        kernels.transpose(values.data(),
                          chunk,
                          static_cast<std::size_t>((n + 3) / 4 * 4),
                          out + k * width,
                          static_cast<std::size_t>(width));
    }
}

/// A tile of rows x width outputs, for reduce().
class TileSum {
public:
    using Value = std::vector<std::uint32_t>;

    /// panel: a, b, a_stride, columns and rows.
    TileSum(const Fp32Kernels& kernels, const Format& result, const FmaPanel& panel)
        : kernels_(kernels), result_(result), panel_(panel) {}

    Value zero() const { return Value(size()); }

    Value walk(const Plan& plan, std::int64_t) const {
        Value acc(size(), plan.from_product ? fp32.sign_mask() : 0);
        for (const auto& [begin, end] : plan.ranges) chain({begin, end, end - begin, end - begin}, acc.data());
        return acc;
    }

    Value lanes(const Plan& plan) const {
        struct Partials {
            const TileSum& sum;
            Value p, more;

            std::uint32_t* at(std::int64_t i) { return p.data() + static_cast<std::size_t>(i) * sum.size(); }
            void start(std::int64_t lane, const Comb& comb) { sum.chain(comb, at(lane)); }
            void extend(std::int64_t lane, const Comb& comb) {
                std::fill(more.begin(), more.end(), 0);
                sum.chain(comb, more.data());
                sum.kernels_.add(at(lane), more.data(), at(lane), more.size());
            }
            void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
                if (stride == 1)
                    return sum.kernels_.add(at(to), at(from), at(to), static_cast<std::size_t>(count) * sum.size());
                for (std::int64_t i = 0; i < count; ++i)
                    sum.kernels_.add(at(to + i * stride), at(from + i * stride), at(to + i * stride), sum.size());
            }
            void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i)
                    std::memmove(at(to + i), at(from + i * stride), sum.size() * 4);
            }
            void clear(std::int64_t first, std::int64_t count) {
                std::fill_n(at(first), static_cast<std::size_t>(count) * sum.size(), 0);
            }
        };
        Partials partials{*this, Value(static_cast<std::size_t>(partial_sums(plan)) * size()), zero()};
        if (plan.lanes.vector == 1 && plan.lanes.chunk == 0) {
            rounds(plan, partials.p.data());
            fold_lanes(std::span<const LaneFold>(plan.lanes.folds), partials);
        } else {
            reduce_lanes(plan, partials);
        }
        partials.p.resize(size());
        return std::move(partials.p);
    }

    void add(Value& sum, const Value& part) const { kernels_.add(sum.data(), part.data(), sum.data(), sum.size()); }
    void round(Value& value) const { round_sums(kernels_, result_, value); }

private:
    std::size_t size() const { return panel_.rows * panel_.columns; }

    /// Continues the chains at acc over a comb.
    void chain(const Comb& comb, std::uint32_t* acc) const {
        const std::int64_t piece =
            comb.vector == comb.stride ? chunk : std::max(comb.stride, chunk / comb.stride * comb.stride);
        for (std::int64_t first = comb.first; first < comb.end; first += piece) {
            FmaPanel part = from(first, std::min(piece, comb.end - first), acc);
            part.vector = std::min(part.depth, static_cast<std::size_t>(comb.vector));
            part.stride = static_cast<std::size_t>(comb.stride);
            kernels_.fma_panel(part);
        }
    }

    /// The chains of all lanes that take one summand each in turn.
    void rounds(const Plan& plan, std::uint32_t* acc) const {
        const auto [begin, end] = plan.ranges.front();
        for (std::int64_t first = begin; first < end; first += plan.lanes.count)
            kernels_.fma_lanes(from(first, std::min(plan.lanes.count, end - first), acc));
    }

    FmaPanel from(std::int64_t k, std::int64_t depth, std::uint32_t* acc) const {
        FmaPanel part = panel_;
        part.a += k;
        part.b += static_cast<std::size_t>(k) * part.columns;
        part.depth = static_cast<std::size_t>(depth);
        part.acc = acc;
        return part;
    }

    const Fp32Kernels& kernels_;
    const Format& result_;
    const FmaPanel panel_;
};

std::int64_t most_partials(const Plan& plan) {
    std::int64_t most = plan.kind == Plan::Kind::lanes ? partial_sums(plan) : 1;
    for (const Plan& part : plan.parts) most = std::max(most, most_partials(part));
    return most;
}

const Fp32Kernels* find_kernels(std::string_view name) {
    if (name.empty()) return &fp32_kernels();
    for (const Fp32Kernels* row : fp32_kernel_rows())
        if (row->name == name) return row;
    return nullptr;
}

}  // namespace

Tensor gemm_fma(const GemmTask& task) {
    const Fp32Kernels* const kernels = find_kernels(task.kernel);
    const std::int64_t depth = task.x.cols();
    if (kernels == nullptr || depth == 0) return gemm_accumulators_scalar(task);
    // A product commutes, so either side can be the panels' columns: the larger one, whose last panel is nearly full.
    const bool swapped = task.rows.size() > task.cols.size();
    const Side x{task.x, task.rows}, w{task.w, task.cols};
    const Side &a = swapped ? w : x, &b = swapped ? x : w;
    const std::int64_t rows = std::ssize(a.vectors), cols = std::ssize(b.vectors);

    Scratch<std::uint32_t> values(static_cast<std::size_t>(rows * depth));
    parallel_for(rows, 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
            load_fp32(a.matrix,
                      a.vectors[static_cast<std::size_t>(i)] * depth,
                      std::span(values.data() + i * depth, static_cast<std::size_t>(depth)));
    });
    Tensor out(fp32, {std::ssize(task.rows), std::ssize(task.cols)});
    const auto place = [&](std::int64_t i, std::int64_t j) { return swapped ? j * rows + i : i * cols + j; };
    if (prefers_single(task.plan, rows, rows * cols)) {
        parallel_for(cols, 1, [&](std::int64_t first, std::int64_t last) {
            std::vector<std::uint32_t> column(static_cast<std::size_t>(depth));
            for (std::int64_t j = first; j < last; ++j) {
                load_fp32(b.matrix, b.vectors[static_cast<std::size_t>(j)] * depth, column);
                for (std::int64_t i = 0; i < rows; ++i)
                    out.set(place(i, j), fma_single(*kernels, task.plan, task.result, values.data() + i * depth, column.data()));
            }
        });
        return out;
    }
    const std::int64_t tile_rows =
        std::clamp<std::int64_t>(partials_in_cache / most_partials(task.plan), 1, largest_tile);
    const std::int64_t width = std::clamp((cols + narrowest - 1) / narrowest * narrowest, narrowest, widest);
    parallel_for((cols + width - 1) / width, 1, [&](std::int64_t first, std::int64_t last) {
        Scratch<std::uint32_t> panel(static_cast<std::size_t>((depth + 3) / 4 * 4 * width));
        for (std::int64_t col = first * width; col < std::min(cols, last * width); col += width) {
            pack_panel(*kernels, b, col, width, panel.data());
            for (std::int64_t row = 0; row < rows; row += tile_rows) {
                const std::int64_t count = std::min(tile_rows, rows - row), used = std::min(width, cols - col);
                const FmaPanel operands{.a = values.data() + row * depth,
                                        .a_stride = static_cast<std::size_t>(depth),
                                        .b = panel.data(),
                                        .columns = static_cast<std::size_t>(width),
                                        .depth = 0,
                                        .vector = 0,
                                        .stride = 0,
                                        .acc = nullptr,
                                        .rows = static_cast<std::size_t>(count)};
                const auto tile = reduce(task.plan, TileSum(*kernels, task.result, operands));
                for (std::int64_t i = 0; i < count; ++i)
                    for (std::int64_t j = 0; j < used; ++j)
                        out.set(place(row + i, col + j),
                                tile[static_cast<std::size_t>(i * width + j)]);
            }
        }
    });
    return out;
}

}  // namespace bitreplay
