#include "emu/gemm_fp64.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/decode.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t width = 8;  // independent chains: one alone waits for its own multiply-adds

using Codes = std::vector<std::uint64_t>;

/// Listed rows of a matrix, one after the other; nullopt if one of them holds a NaN, which a chain passes on.
std::optional<Codes> load(const Tensor& matrix, std::span<const std::int64_t> rows) {
    const std::int64_t k = matrix.cols();
    Codes out(rows.size() * static_cast<std::size_t>(k));
    std::atomic<bool> nan = false;
    parallel_for(std::ssize(rows), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
            for (std::int64_t j = 0; j < k; ++j) {
                const std::uint64_t code = matrix.get(rows[static_cast<std::size_t>(i)] * k + j);
                if (is_nan(fp64, code)) nan = true;
                out[static_cast<std::size_t>(i * k + j)] = code;
            }
    });
    return nan ? std::nullopt : std::optional(std::move(out));
}

/// Outputs of one row and `width` columns, for reduce(); columns lie k apart.
struct BlockSum {
    using Value = std::array<std::uint64_t, width>;
    const std::uint64_t *a, *b;
    std::int64_t k, columns;
    const Format& result;

    Value zero() const { return {}; }
    Value walk(const Plan& plan, std::int64_t) const {
        Value acc{};
        if (plan.from_product) acc.fill(fp64.sign_mask());  // -0 leaves the first product as it is
        for (const auto& [begin, end] : plan.ranges) chain(begin, end, acc);
        return acc;
    }
    Value lanes(const Plan& plan) const { return reduce_chains(plan, *this); }
    void add(Value& sum, const Value& part) const {
        for (std::size_t j = 0; j < width; ++j) sum[j] = f64::add(sum[j], part[j]);
    }
    void round(Value&) const {}  // to FP64

    /// Continues the chains over [begin, end).
    void chain(std::int64_t begin, std::int64_t end, Value& acc) const {
        for (std::int64_t i = begin; i < end; ++i)
            for (std::int64_t j = 0; j < columns; ++j)
                acc[static_cast<std::size_t>(j)] = f64::fma(a[i], b[j * k + i], acc[static_cast<std::size_t>(j)]);
    }
};

}  // namespace

bool is_fp64_chain(const DotRule& rule) noexcept {
    return rule.types.a == fp64 && rule.types.d == fp64 && rule.steps.size() == 1 &&
           rule.steps.front().kind == DotStep::Kind::fma_chain && rule.steps.front().from == DotStep::From::c;
}

Tensor gemm_fp64(const GemmTask& task) {
    const std::int64_t k = task.x.cols(), cols = std::ssize(task.cols);
    if (!(task.result == fp64)) return gemm_accumulators_scalar(task);
    const std::optional<Codes> x = load(task.x, task.rows), w = load(task.w, task.cols);
    if (!x || !w) return gemm_accumulators_scalar(task);
    Tensor out(fp64, {std::ssize(task.rows), cols});
    const std::int64_t rows = std::ssize(task.rows), blocks = (cols + width - 1) / width;
    parallel_for(rows * blocks, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first; at < last; ++at) {  // a block of columns meets all rows while it is in the cache
            const std::int64_t i = at % rows, j = at / rows * width;
            const BlockSum sum{x->data() + i * k, w->data() + j * k, k, std::min(width, cols - j), task.result};
            const auto value = reduce(task.plan, sum);
            for (std::int64_t c = 0; c < sum.columns; ++c)
                out.set(i * cols + j + c, value[static_cast<std::size_t>(c)]);
        }
    });
    return out;
}

}  // namespace bitreplay
