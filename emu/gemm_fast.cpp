#include "emu/gemm_fast.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "arch/fp32.hpp"
#include "emu/gemm_fma.hpp"
#include "emu/gemm_fp64.hpp"
#include "emu/indices.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = simd::panel_columns;
constexpr std::int64_t tile_rows = 128;       // accumulators of a tile: 32 KiB
constexpr std::int64_t chunk_products = 256;  // depth of a panel that is used for all rows of a tile before the next

/// Accumulators of rows x panel_columns outputs.
using Tile = std::vector<float>;

/// Bits that a sum of `depth` products can need above the largest product's exponent.
int growth(std::int64_t depth) noexcept {
    return 2 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(depth)));
}

struct Walker {
    const simd::WalkShape& shape;
    simd::WalkKernel kernel;
    const PackedRows& a;
    const PackedColumns& b;

    /// Continues the walk of `acc` over blocks [first, first + count) of the layout.
    void operator()(std::int64_t row,
                    std::int64_t rows,
                    std::int64_t panel,
                    std::int64_t first,
                    std::int64_t count,
                    float* acc) const {
        raise(row, rows, panel, acc, 1);
        const std::int64_t step = std::max<std::int64_t>(1, chunk_products / shape.block);
        for (std::int64_t block = first; block < first + count; block += step) {
            const std::int64_t at = block * shape.block;
            kernel({.shape = &shape,
                    .a = a.values(row) + at,
                    .a_scale = a.scale(row) + at,
                    .a_top = a.top(row),
                    .a_stride = a.depth(),
                    .b = b.values(panel) + at * width,
                    .b_scale = b.scale(panel) + at * width,
                    .b_top = b.top(panel),
                    .rows = rows,
                    .blocks = std::min(step, first + count - block),
                    .columns = static_cast<int>(std::min(width, b.count() - panel * width)),
                    .acc = acc,
                    .acc_stride = width,
                    .a_lift = a.lift(row),
                    .b_lift = b.lift(panel)});
        }
        raise(row, rows, panel, acc, -1);
    }

    /// Multiplies accumulators by 2^(sign * lift): exact, because results have no bits below 2^-149.
    void raise(std::int64_t row, std::int64_t rows, std::int64_t panel, float* acc, int sign) const {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (const int lift : {*a.lift(row + i), b.lift(panel)}) {
                if (lift == 0) continue;
                const auto power = std::bit_cast<float>(static_cast<std::uint32_t>(127 + sign * lift) << 23);
                for (std::int64_t j = 0; j < width; ++j) acc[i * width + j] *= power;
            }
        }
    }
};

/// A tile of tensor-core sums, for reduce().
class TileSum {
public:
    using Value = Tile;

    TileSum(const GemmTask& task,
            const WalkLayout& layout,
            const Walker& walk,
            std::int64_t row,
            std::int64_t rows,
            std::int64_t panel)
        : task_(task), layout_(layout), walk_(walk), row_(row), rows_(rows), panel_(panel) {}

    Tile zero() const { return Tile(static_cast<std::size_t>(rows_ * width)); }

    Tile walk(const Plan&, std::int64_t leaf) const {
        Tile sum = zero();
        const WalkLayout::Leaf& blocks = layout_.leaves[static_cast<std::size_t>(leaf)];
        walk_(row_, rows_, panel_, blocks.first_block, blocks.blocks, sum.data());
        return sum;
    }

    Tile lanes(const Plan&) const { return zero(); }  // never called: method_for() refuses such plans

    void round(Tile& tile) const {
        const Format& wide = task_.rule.types.d;
        if (task_.result == wide) return;
        for (float& x : tile) {
            const std::uint64_t code =
                convert(task_.result, fp32, convert(fp32, task_.result, std::bit_cast<std::uint32_t>(x)));
            x = std::bit_cast<float>(static_cast<std::uint32_t>(code));
        }
    }
    void add(Tile& sum, const Tile& part) const {
        const bool narrow = task_.rule.types.d != fp32;
        for (std::size_t i = 0; i < sum.size(); ++i) {
            std::uint32_t x = f32::add(std::bit_cast<std::uint32_t>(sum[i]), std::bit_cast<std::uint32_t>(part[i]));
            if (narrow) x = static_cast<std::uint32_t>(convert(fp16, fp32, convert(fp32, fp16, x)));
            sum[i] = std::bit_cast<float>(x);
        }
    }

private:
    const GemmTask& task_;
    const WalkLayout& layout_;
    const Walker& walk_;
    std::int64_t row_, rows_, panel_;
};

/// Stores a row of a tile: accumulators, fp32 also where they are fp16.
void store(const Format& accumulator, std::span<const float> values, std::int64_t at, Tensor& out) {
    if (out.format() == fp32 && accumulator == fp32) {
        std::memcpy(out.mutable_bytes().data() + at * 4, values.data(), values.size_bytes());
        return;
    }
    const auto round_to = [&](const Format& narrow) {
        auto* const to = reinterpret_cast<std::uint16_t*>(out.mutable_bytes().data()) + at;
        for (std::size_t i = 0; i < values.size(); ++i)
            to[i] =
                static_cast<std::uint16_t>(round_accumulator(fp32, narrow, std::bit_cast<std::uint32_t>(values[i])));
    };
    if (out.format() == bf16 && accumulator == fp32) return round_to(bf16);
    if (out.format() == fp16 && accumulator == fp32) return round_to(fp16);
    for (const float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint64_t code = accumulator == fp32 ? bits : convert(fp32, accumulator, bits);
        out.set(at++, round_accumulator(accumulator, out.format(), code));
    }
}

/// Computes the outputs at (positions rows) x (positions cols) by the definition.
void redo(const GemmTask& task, std::span<const std::int64_t> rows, std::span<const std::int64_t> cols, Tensor& out) {
    if (!rows.empty() && !cols.empty()) compute_at(task, rows, cols, gemm_accumulators_scalar, out);
}

struct Method {
    simd::WalkShape shape;
    simd::WalkKernel kernel;
};

std::optional<Method> method_for(const GemmTask& task) {
    if (task.engine == GemmEngine::scalar || has_lanes(task.plan)) return std::nullopt;
    const auto shape = walk_shape(task.rule, task.instruction_k);
    if (!shape) return std::nullopt;
    const simd::WalkKernel kernel = simd::find_walk(*shape, task.kernel);
    if (kernel == nullptr) return std::nullopt;
    return Method{*shape, kernel};
}

/// Outputs of rows [row0, …) of the task (packed in a) and columns [col0, …) (packed in b).
void dense(const GemmTask& task,
           const Method& method,
           const WalkLayout& layout,
           const PackedRows& a,
           std::int64_t row0,
           const PackedColumns& b,
           std::int64_t col0,
           Tensor& out) {
    const std::int64_t row_tiles = (a.count() + tile_rows - 1) / tile_rows;
    const int grown = growth(std::ssize(layout.source));
    const Walker walk{method.shape, method.kernel, a, b};
    parallel_for(row_tiles * b.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
            const std::int64_t panel = item / row_tiles, row = item % row_tiles * tile_rows;
            const std::int64_t rows = std::min(tile_rows, a.count() - row),
                               cols = std::min(width, b.count() - panel * width);
            const Tile tile = reduce(task.plan, TileSum(task, layout, walk, row, rows, panel));
            std::vector<std::int64_t> plain_rows, scalar_rows, scalar_cols, all_cols;
            for (std::int64_t j = 0; j < cols; ++j) {
                all_cols.push_back(col0 + panel * width + j);
                if (b.special(panel * width + j)) scalar_cols.push_back(all_cols.back());
            }
            for (std::int64_t i = 0; i < rows; ++i) {
                const bool unsafe = a.special(row + i) || *a.top(row + i) + b.top(panel) + grown > simd::safe_exponent;
                (unsafe ? scalar_rows : plain_rows).push_back(row0 + row + i);
                const std::int64_t at = (row0 + row + i) * out.cols() + col0 + panel * width;
                store(task.rule.types.d,
                      std::span(tile).subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(cols)),
                      at,
                      out);
            }
            redo(task, scalar_rows, all_cols, out);
            redo(task, plain_rows, scalar_cols, out);
        }
    });
}

/// All outputs of a task by its kernel, rounded to `format` tile by tile.
Tensor dense_outputs(const GemmTask& task, const Method& method, const Format& format) {
    const WalkLayout layout = walk_layout(task.plan, method.shape, task.instruction_k, task.x.cols());
    Tensor out(format, {std::ssize(task.rows), std::ssize(task.cols)});
    const PackedColumns* packed = task.packed != nullptr ? task.packed->columns() : nullptr;
    // Packing here goes by groups, so that it takes no more than about the operands' own memory.
    const std::int64_t own = static_cast<std::int64_t>(task.x.bytes().size() + task.w.bytes().size());
    const std::int64_t group =
        packed != nullptr
            ? std::ssize(task.cols)
            : std::max<std::int64_t>(512, own / std::max<std::int64_t>(1, 5 * task.w.cols()) / width * width);
    for (std::int64_t col = 0; col < std::ssize(task.cols); col += group) {
        std::optional<PackedColumns> own_columns;
        if (packed == nullptr)
            own_columns.emplace(
                rows_of(task.w),
                task.rule.unit_b,
                layout,
                task.cols.subspan(static_cast<std::size_t>(col),
                                  static_cast<std::size_t>(std::min(group, std::ssize(task.cols) - col))),
                simd::operand_lift);
        const PackedColumns& columns = packed != nullptr ? *packed : *own_columns;
        constexpr std::int64_t row_group = 2 * tile_rows;
        for (std::int64_t row = 0; row < std::ssize(task.rows); row += row_group) {
            const std::int64_t rows = std::min(row_group, std::ssize(task.rows) - row);
            const PackedRows a(rows_of(task.x),
                               task.rule.unit_a,
                               layout,
                               task.rows.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(rows)),
                               simd::row_lift);
            dense(task, method, layout, a, row, columns, col, out);
        }
    }
    return out;
}

/// A panel of columns takes as long to pack as the definition takes for about 16 outputs.
bool too_few(const GemmTask& task) {
    return task.engine == GemmEngine::automatic && task.packed == nullptr &&
           std::ssize(task.rows) * std::ssize(task.cols) <= 8;
}

}  // namespace

void compute_at(const GemmTask& task,
                std::span<const std::int64_t> rows,
                std::span<const std::int64_t> cols,
                const std::function<Tensor(const GemmTask&)>& compute,
                Tensor& out) {
    std::vector<std::int64_t> r, c;
    for (const std::int64_t i : rows) r.push_back(task.rows[static_cast<std::size_t>(i)]);
    for (const std::int64_t j : cols) c.push_back(task.cols[static_cast<std::size_t>(j)]);
    GemmTask part = task;
    part.rows = r;
    part.cols = c;
    const Tensor outputs = compute(part);
    std::int64_t at = 0;
    for (const std::int64_t i : rows)
        for (const std::int64_t j : cols)
            out.set(i * out.cols() + j, round_accumulator(outputs.format(), out.format(), outputs.get(at++)));
}

PackedWeights::PackedWeights(const GemmTask& task) {
    const auto method = method_for(task);
    if (!method) return;
    const WalkLayout layout = walk_layout(task.plan, method->shape, task.instruction_k, task.w.cols());
    if (task.engine != GemmEngine::dense)
        if (const auto filter = filter_layout(task, method->shape, layout))
            filter_.emplace(task.w, task.cols, *filter, method->shape.block);
    if (task.engine != GemmEngine::filtered || !filter_)
        columns_.emplace(rows_of(task.w), task.rule.unit_b, layout, task.cols, simd::operand_lift);
}

Tensor gemm_rounded(const GemmTask& task, const Format& out, double* redone) {
    if (redone != nullptr) *redone = 1;
    const auto method = method_for(task);
    const FilterColumns* const packed = task.packed != nullptr ? task.packed->filter() : nullptr;
    // The filter's form of the weights costs as much as some ten rows, that of a panel as much as all its columns.
    constexpr std::ptrdiff_t worth_packing = 16;
    const bool large = std::ssize(task.rows) >= worth_packing && std::ssize(task.cols) >= width;
    const bool filter_pays = task.engine == GemmEngine::filtered || packed != nullptr || large;
    if (method && task.engine != GemmEngine::dense && filter_pays && (out == bf16 || out == fp16)) {
        const WalkLayout layout = walk_layout(task.plan, method->shape, task.instruction_k, task.x.cols());
        if (const auto filter = filter_layout(task, method->shape, layout)) {
            std::optional<FilterColumns> own;
            const FilterColumns* columns = packed;
            if (columns == nullptr) columns = &own.emplace(task.w, task.cols, *filter, method->shape.block);
            double share = 0;
            Tensor result = gemm_filtered(task, out, *filter, method->shape, *columns, share);
            if (redone != nullptr) *redone = share;
            return result;
        }
    }
    if (method && !too_few(task)) return dense_outputs(task, *method, out);
    const Tensor acc = gemm_accumulators(task);
    if (out == task.rule.types.d) return acc;
    Tensor result(out, acc.shape());
    parallel_for(acc.rows(), 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin * acc.cols(); i < end * acc.cols(); ++i)
            result.set(i, round_accumulator(task.rule.types.d, out, acc.get(i)));
    });
    return result;
}

Tensor gemm_accumulators(const GemmTask& task) {
    if (is_fp32_chain(task.rule) && task.engine != GemmEngine::scalar) return gemm_fma(task);
    if (is_fp64_chain(task.rule) && task.engine != GemmEngine::scalar) return gemm_fp64(task);
    const auto method = method_for(task);
    if (!method || too_few(task)) return gemm_accumulators_scalar(task);
    return dense_outputs(task, *method, task.rule.types.d);
}

DotEngine::DotEngine(const DotRule& rule, int instruction_k, std::string_view kernel)
    : rule_(rule), instruction_k_(instruction_k), shape_(walk_shape(rule, instruction_k)) {
    if (shape_) kernel_ = simd::find_walk(*shape_, kernel);
}

WalkLayout DotEngine::layout(std::int64_t depth) const {
    return walk_layout(
        {.kind = Plan::Kind::walk, .ranges = {{0, depth}}, .parts = {}, .merge = {}}, *shape_, instruction_k_, depth);
}

DotEngine::Operand DotEngine::rows(const Codes& a) const {
    Operand out;
    out.codes_ = a;
    if (kernel_ != nullptr)
        out.rows_.emplace(a, rule_.unit_a, layout(a.depth), all_indices(a.count), simd::operand_lift);
    return out;
}

DotEngine::Operand DotEngine::columns(const Codes& b) const {
    Operand out;
    out.codes_ = b;
    if (kernel_ != nullptr)
        out.columns_.emplace(b, rule_.unit_b, layout(b.depth), all_indices(b.count), simd::operand_lift);
    return out;
}

void DotEngine::accumulate(const Operand& a, const Operand& b, std::uint32_t* acc, std::int64_t acc_stride) const {
    const std::int64_t depth = a.codes_.depth;
    const Format& d = rule_.types.d;
    const auto scalar = [&](std::int64_t i, std::int64_t j) {
        std::vector<bitreplay::Operand> x(static_cast<std::size_t>(depth)), y(x.size());
        for (std::int64_t k = 0; k < depth; ++k) {
            x[static_cast<std::size_t>(k)] = decode_operand(rule_.types.a, rule_.unit_a, a.codes_.at(i, k));
            y[static_cast<std::size_t>(k)] = decode_operand(rule_.types.b, rule_.unit_b, b.codes_.at(j, k));
        }
        std::uint32_t& place = acc[i * acc_stride + j];
        place = static_cast<std::uint32_t>(dot_walk(rule_, instruction_k_, x, y, place));
    };
    if (kernel_ == nullptr || !a.rows_ || !b.columns_) {
        for (std::int64_t i = 0; i < a.codes_.count; ++i)
            for (std::int64_t j = 0; j < b.codes_.count; ++j) scalar(i, j);
        return;
    }
    const Walker walk{*shape_, kernel_, *a.rows_, *b.columns_};
    const std::int64_t blocks = (depth + shape_->block - 1) / shape_->block;
    const int grown = growth(depth);
    Tile tile;
    for (std::int64_t row = 0; row < a.codes_.count; row += tile_rows) {
        const std::int64_t rows = std::min(tile_rows, a.codes_.count - row);
        for (std::int64_t panel = 0; panel < b.columns_->panels(); ++panel) {
            const std::int64_t cols = std::min(width, b.codes_.count - panel * width);
            tile.assign(static_cast<std::size_t>(rows * width), 0.0F);
            const auto slow = [&](std::int64_t i, std::int64_t j) {
                const auto start =
                    static_cast<std::uint32_t>(convert(d, fp32, acc[(row + i) * acc_stride + panel * width + j]));
                const int exponent =
                    static_cast<int>((start >> 23) & 0xFF) - 127 + *a.rows_->lift(row + i) + b.columns_->lift(panel);
                const bool wide = *a.rows_->top(row + i) + b.columns_->top(panel) + grown > simd::safe_exponent ||
                                  exponent >= simd::safe_exponent;
                return wide || a.rows_->special(row + i) || b.columns_->special(panel * width + j);
            };
            for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t j = 0; j < cols; ++j)
                    if (!slow(i, j)) {
                        const std::uint32_t code = acc[(row + i) * acc_stride + panel * width + j];
                        tile[static_cast<std::size_t>(i * width + j)] =
                            std::bit_cast<float>(d == fp32 ? code : static_cast<std::uint32_t>(convert(d, fp32, code)));
                    }
            // A zero accumulator everywhere else: what those lanes compute is thrown away.
            walk(row, rows, panel, 0, blocks, tile.data());
            for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t j = 0; j < cols; ++j) {
                    if (slow(i, j)) {
                        scalar(row + i, panel * width + j);
                        continue;
                    }
                    const auto bits = std::bit_cast<std::uint32_t>(tile[static_cast<std::size_t>(i * width + j)]);
                    acc[(row + i) * acc_stride + panel * width + j] =
                        d == fp32 ? bits : static_cast<std::uint32_t>(convert(fp32, d, bits));
                }
        }
    }
}

}  // namespace bitreplay
