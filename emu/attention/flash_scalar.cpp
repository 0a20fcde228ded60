#include <algorithm>
#include <array>

#include "arch/dot.hpp"
#include "emu/attention/flash_private.hpp"
#include "formats/convert.hpp"

namespace bitreplay::detail {
namespace {

constexpr std::uint32_t minus_infinity = 0xFF800000, plus_infinity = 0x7F800000, one = 0x3F800000;

bool is_nan_bits(std::uint32_t x) noexcept { return (x & 0x7FFFFFFF) > plus_infinity; }
bool is_zero_bits(std::uint32_t x) noexcept { return (x & 0x7FFFFFFF) == 0; }

/// The running state of one query row.
struct Row {
    std::uint32_t max = minus_infinity;
    std::array<std::uint32_t, 4> sums{};  // one per lane of the four that share a row of the tensor core's result
};

class Scalar {
public:
    Scalar(const FlashProblem& problem, const FlashBlock& block, std::span<std::uint32_t> o)
        : problem_(problem), block_(block), math_(problem.math), o_(o), d_(static_cast<std::size_t>(problem.q.cols())) {
        decode_rows(problem.q, block.q_row, block.rows, false, q_);
        std::fill(o.begin(), o.end(), 0);
    }

    void run(std::span<std::uint32_t> lse) {
        std::vector<Row> rows(static_cast<std::size_t>(block_.rows));
        for (std::int64_t tile = block_.last_tile - 1; tile >= block_.first_tile; --tile) {
            const std::int64_t first_key = tile * problem_.plan.tile.key;
            const std::int64_t count = std::min(problem_.plan.tile.key, block_.keys - first_key);
            decode_rows(problem_.k, block_.kv_row + first_key, count, false, k_);
            decode_rows(problem_.v, block_.kv_row + first_key, count, true, v_);
            const bool first = tile == block_.last_tile - 1;
            const bool check = problem_.plan.local || block_.last_tile - 1 - tile < block_.checked_tiles;
            for (std::size_t r = 0; r < rows.size(); ++r)
                if (computed(r)) step(rows[r], r, first_key, static_cast<std::size_t>(count), first, check);
        }
        for (std::size_t r = 0; r < rows.size(); ++r)
            if (computed(r)) lse[r] = finish(rows[r], r);
    }

private:
    bool computed(std::size_t r) const {
        return problem_.observer == nullptr || problem_.observer->row == block_.q_row + static_cast<std::int64_t>(r);
    }

    void step(Row& row, std::size_t r, std::int64_t first_key, std::size_t keys, bool first, bool check) {
        // Columns beyond the last key exist in the tile, as -inf: they take part in the sums.
        const auto columns = static_cast<std::size_t>(problem_.plan.tile.key);
        const auto [from, to] = visible_keys(problem_.plan, block_, block_.position + static_cast<std::int64_t>(r));
        const std::span<const Operand> q = std::span<const Operand>(q_).subspan(r * d_, d_);
        scores_.assign(columns, minus_infinity);
        for (std::size_t j = 0; j < keys; ++j) {
            const std::int64_t key = first_key + static_cast<std::int64_t>(j);
            if (key < from || key >= to) continue;
            const std::span<const Operand> k = std::span<const Operand>(k_).subspan(j * d_, d_);
            scores_[j] = static_cast<std::uint32_t>(dot_walk(problem_.rule, problem_.instruction_k, q, k, 0));
        }

        std::uint32_t max = first ? scores_[0] : FlashMath::max(row.max, scores_[0]);
        for (std::size_t j = 1; j < columns; ++j) max = FlashMath::max(max, scores_[j]);
        const std::span<std::uint32_t> o = o_.subspan(r * d_, d_);
        std::uint32_t rescale = one;
        if (!first) {
            const std::uint32_t reference = check && max == minus_infinity ? 0 : max;
            rescale = math_.exp2(math_.mul(math_.sub(row.max, reference), problem_.scale_log2));
            for (std::uint32_t& x : o) x = math_.mul(x, rescale);
        }
        row.max = max;

        const std::uint32_t scaled_max = max == minus_infinity ? 0 : math_.mul(max, problem_.scale_log2);
        std::array<bool, 4> started{};
        p_.resize(keys);
        weights_.clear();
        for (std::size_t j = 0; j < columns; ++j) {
            const std::uint32_t p = math_.exp2(math_.mul_sub(scores_[j], problem_.scale_log2, scaled_max));
            if (problem_.observer != nullptr) weights_.push_back(p);
            std::uint32_t& sum = row.sums[lane_of(j)];
            if (started[lane_of(j)])
                sum = math_.add(sum, p);
            else
                sum = first ? p : math_.fma(sum, rescale, p);
            started[lane_of(j)] = true;
            const Format& format = problem_.q.format();
            if (j < keys) p_[j] = decode_operand(format, format, convert(fp32, format, p));
        }
        for (std::size_t i = 0; i < d_; ++i) {
            const std::span<const Operand> v = std::span<const Operand>(v_).subspan(i * keys, keys);
            if (problem_.observer == nullptr || problem_.observer->column != static_cast<std::int64_t>(i)) {
                o[i] = static_cast<std::uint32_t>(dot_walk(problem_.rule, problem_.instruction_k, p_, v, o[i]));
                continue;
            }
            const std::uint32_t before = o[i];
            o[i] = static_cast<std::uint32_t>(dot_walk(problem_.rule, problem_.instruction_k, p_, v, before, first_key, *problem_.observer));
            problem_.observer->tile({first_key, static_cast<std::int64_t>(keys), first, scores_, weights_, max, rescale, row.sums, before, o[i]});
        }
    }

    std::uint32_t finish(const Row& row, std::size_t r) {
        const std::uint32_t total = math_.add(math_.add(row.sums[0], row.sums[2]), math_.add(row.sums[1], row.sums[3]));
        const bool empty = is_zero_bits(total) || is_nan_bits(total);
        const std::uint32_t factor = empty ? one : math_.reciprocal(total);
        for (std::uint32_t& x : o_.subspan(r * d_, d_)) x = math_.mul(x, factor);
        const std::uint32_t lse = empty ? (problem_.partial ? minus_infinity : plus_infinity) : math_.fma(row.max, problem_.scale, math_.fast_log(total));
        if (problem_.observer != nullptr)
            problem_.observer->part(total, factor, lse, o_[r * d_ + static_cast<std::size_t>(problem_.observer->column)]);
        return lse;
    }

    const FlashProblem& problem_;
    const FlashBlock& block_;
    const FlashMath& math_;
    std::span<std::uint32_t> o_;
    std::size_t d_;
    std::vector<Operand> q_, k_, v_, p_;
    std::vector<std::uint32_t> scores_, weights_;  // weights: for the observer
};

}  // namespace

void decode_rows(const Tensor& tensor, std::int64_t first, std::int64_t count, bool transposed, std::vector<Operand>& out) {
    const auto d = static_cast<std::size_t>(tensor.cols()), n = static_cast<std::size_t>(count);
    out.resize(n * d);
    std::vector<std::uint32_t> codes(d);
    for (std::size_t r = 0; r < n; ++r) {
        tensor.read((first + static_cast<std::int64_t>(r)) * tensor.cols(), codes);
        for (std::size_t i = 0; i < d; ++i) {
            const Operand x = decode_operand(tensor.format(), tensor.format(), codes[i]);
            out[transposed ? i * n + r : r * d + i] = x;
        }
    }
}

std::pair<std::int64_t, std::int64_t> visible_keys(const FlashPlan& plan, const FlashBlock& block, std::int64_t position) {
    const std::int64_t diagonal = position + block.keys - block.queries;
    std::int64_t from = 0, to = block.keys;
    if (plan.causal || plan.local) to = std::min(to, diagonal + 1 + plan.window_right);
    if (plan.local) from = std::max(from, diagonal - plan.window_left);
    return {from, to};
}

void flash_block_scalar(const FlashProblem& problem,
                        const FlashBlock& block,
                        std::span<std::uint32_t> o,
                        std::span<std::uint32_t> lse) {
    Scalar(problem, block, o).run(lse);
}

std::uint32_t flash_combine_row(const FlashProblem& problem,
                                std::span<const std::uint32_t> lse,
                                std::span<const std::uint32_t> o,
                                std::span<std::uint32_t> out) {
    const FlashMath& math = problem.math;
    const FlashRecipe& recipe = flash_recipe();
    std::size_t padded = 2;  // the kernel is compiled for powers of two of parts
    while (padded < lse.size()) padded *= 2;
    const auto rows = static_cast<std::size_t>(recipe.combine_rows(problem.plan.head_dim));
    const std::size_t lanes = std::min(static_cast<std::size_t>(recipe.threads) / rows, padded);
    const auto part = [&](std::size_t i) { return i < lse.size() ? lse[i] : minus_infinity; };

    std::uint32_t max = minus_infinity;
    for (const std::uint32_t x : lse) max = FlashMath::max(max, x);
    if (max == minus_infinity) max = 0;
    std::vector<std::uint32_t> sums(lanes);
    for (std::size_t t = 0; t < lanes; ++t) {
        sums[t] = math.exp(math.sub(part(t), max));
        for (std::size_t i = t + lanes; i < padded; i += lanes) sums[t] = math.add(sums[t], math.exp(math.sub(part(i), max)));
    }
    // An xor butterfly: every lane ends with the same sum.
    for (std::size_t offset = lanes / 2; offset > 0; offset /= 2)
        for (std::size_t t = 0; t < offset; ++t) sums[t] = math.add(sums[t], sums[t + offset]);
    const bool empty = is_zero_bits(sums[0]) || is_nan_bits(sums[0]);
    const std::uint32_t total = empty ? plus_infinity : math.add(math.log(sums[0]), max);

    std::fill(out.begin(), out.end(), 0);
    for (std::size_t i = 0; i < lse.size(); ++i) {
        const std::uint32_t weight = math.exp(math.sub(lse[i], total));
        for (std::size_t j = 0; j < out.size(); ++j) out[j] = math.fma(weight, o[i * out.size() + j], out[j]);
        if (problem.observer != nullptr) {
            const auto column = static_cast<std::size_t>(problem.observer->column);
            problem.observer->combined(weight, o[i * out.size() + column], out[column]);
        }
    }
    return total;
}

}  // namespace bitreplay::detail
