#include <algorithm>
#include <array>

#include "emu/attention/flash_private.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

// Every step below was found on, and equals, the captures of testdata/h200/attention (README there).
namespace bitreplay::detail {
namespace {

constexpr std::uint32_t minus_infinity = 0xFF800000, infinity = 0x7F800000, one = 0x3F800000, ln2 = 0x3F317218;
constexpr std::uint32_t smallest_exponent = 0xC2FC0000;  // -126

/// ex2.approx of a number that is not positive; the results that the captures show are normal numbers, or the 0 of -inf.
std::uint32_t exp2(const FlashMath& math, std::uint32_t x) {
    if (x != minus_infinity && x > smallest_exponent)  // codes of negative numbers grow with the magnitude
        throw NotModelled("cuDNN attention with a probability below 2^-126 of the largest");
    return math.unit().ex2_ftz(x);
}

/// No capture has a value that is no number, nor one that the kernel might have flushed to zero.
std::uint32_t finite(std::uint32_t x) {
    if ((x & infinity) == infinity) throw NotModelled("cuDNN attention with an infinite or undefined intermediate value");
    return x;
}
std::uint32_t plain(std::uint32_t x) {
    if (is_subnormal_bits(x)) throw NotModelled("cuDNN attention with a subnormal value");
    return finite(x);
}

class Row {
public:
    Row(const FlashProblem& problem, std::span<std::uint32_t> o) : problem_(problem), math_(problem.math), o_(o) {}

    /// Scores of a tile, -inf where masked, and its values as [d][keys].
    void step(std::span<std::uint32_t> scores, std::span<const Operand> v) {
        const std::uint32_t old = max_;
        for (std::uint32_t& s : scores) {
            s = math_.mul(s, problem_.scale);
            max_ = FlashMath::max(max_, s);
        }
        const bool first = old == minus_infinity;
        const auto exponent = [&](std::uint32_t s) { return math_.mul(s, problem_.scale_log2); };
        const std::uint32_t reference = exponent(max_);
        const std::uint32_t rescale = first ? 0 : exp2(math_, math_.sub(exponent(old), reference));
        std::array<std::uint32_t, 4> tile_sums{};
        p_.clear();
        for (std::size_t j = 0; j < scores.size(); ++j) {
            const std::uint32_t p = exp2(math_, math_.sub(exponent(scores[j]), reference));
            std::uint32_t& sum = tile_sums[lane_of(j)];
            sum = math_.add(sum, p);
            const Format& format = problem_.q.format();
            p_.push_back(decode_operand(format, format, convert(fp32, format, p)));
        }
        for (std::size_t t = 0; t < 4; ++t) sums_[t] = math_.fma(sums_[t], rescale, tile_sums[t]);
        for (std::size_t i = 0; i < o_.size(); ++i) {
            const std::uint32_t scaled = first ? 0 : plain(math_.mul(o_[i], rescale));
            o_[i] = static_cast<std::uint32_t>(dot_walk(problem_.rule, problem_.instruction_k, p_, v.subspan(i * scores.size(), scores.size()), scaled));
        }
    }

    /// Normalises o; returns the log-sum-exp.
    std::uint32_t finish() {
        const std::uint32_t total = cudnn_total(math_, sums_[0], sums_[1], sums_[2], sums_[3]);
        const std::uint32_t factor = math_.unit().rcp_ftz(total);
        for (std::uint32_t& x : o_) x = plain(math_.mul(plain(x), factor));
        return plain(cudnn_lse(problem_, max_, total));
    }

private:
    const FlashProblem& problem_;
    const FlashMath& math_;
    std::span<std::uint32_t> o_;
    std::uint32_t max_ = minus_infinity;  // of the scores times problem.scale
    std::array<std::uint32_t, 4> sums_{};
    std::vector<Operand> p_;
};

}  // namespace

std::uint32_t cudnn_total(const FlashMath& math, std::uint32_t s0, std::uint32_t s1, std::uint32_t s2, std::uint32_t s3) noexcept {
    return math.add(math.add(s0, s1), math.add(s2, s3));
}

std::uint32_t cudnn_lse(const FlashProblem& problem, std::uint32_t max, std::uint32_t total) noexcept {
    const FlashMath& math = problem.math;
    const std::uint32_t log2 = math.unit().lg2_ftz(total), exponent = math.mul(max, problem.scale_log2);
    // The kernels that scale twice round the maximum back from its exponent of two; the other fuses that with the sum.
    return problem.scale == one ? math.fma(exponent, ln2, math.mul(log2, ln2)) : math.fma(log2, ln2, math.mul(exponent, ln2));
}

void cudnn_block_scalar(const FlashProblem& problem,
                        const FlashBlock& block,
                        std::span<std::uint32_t> o,
                        std::span<std::uint32_t> lse) {
    const auto d = static_cast<std::size_t>(problem.q.cols());
    std::vector<Operand> q, k, v;
    decode_rows(problem.q, block.q_row, block.rows, false, q);
    std::fill(o.begin(), o.end(), 0);
    std::vector<Row> rows;
    for (std::size_t r = 0; r < lse.size(); ++r) rows.emplace_back(problem, o.subspan(r * d, d));
    std::vector<std::uint32_t> scores;
    for (std::int64_t tile = block.first_tile; tile < block.last_tile; ++tile) {
        const std::int64_t first_key = tile * problem.plan.tile.key;
        const std::int64_t count = std::min(problem.plan.tile.key, block.keys - first_key);
        decode_rows(problem.k, block.kv_row + first_key, count, false, k);
        decode_rows(problem.v, block.kv_row + first_key, count, true, v);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const auto visible = visible_keys(problem.plan, block, block.position + static_cast<std::int64_t>(r));
            scores.assign(static_cast<std::size_t>(count), minus_infinity);
            for (std::size_t j = 0; j < scores.size() && first_key + static_cast<std::int64_t>(j) < visible.second; ++j)
                scores[j] = finite(static_cast<std::uint32_t>(dot_walk(problem.rule, problem.instruction_k, std::span<const Operand>(q).subspan(r * d, d),
                                                                       std::span<const Operand>(k).subspan(j * d, d), 0)));
            rows[r].step(scores, v);
        }
    }
    for (std::size_t r = 0; r < rows.size(); ++r) lse[r] = rows[r].finish();
}

}  // namespace bitreplay::detail
