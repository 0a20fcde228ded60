#include "emu/gemm_fma_single.hpp"

#include <algorithm>

#include "emu/fp32_rows.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

std::size_t sized(std::int64_t count) noexcept { return static_cast<std::size_t>(count); }

/// The partial sums of lanes, for fold_lanes().
struct Partials {
    const Fp32Kernels& kernels;
    std::vector<std::uint32_t> p;

    std::uint32_t* at(std::int64_t i) { return p.data() + i; }
    void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
        if (stride == 1)
            kernels.add(at(to), at(from), at(to), sized(count));
        else
            kernels.add_strided(at(to), sized(stride), at(from), sized(stride), sized(count));
    }
    void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) *at(to + i) = *at(from + i * stride);
    }
    void clear(std::int64_t first, std::int64_t count) { std::fill_n(at(first), count, 0); }
};

class SingleSum {
public:
    using Value = std::uint32_t;

    SingleSum(const Fp32Kernels& kernels, const Format& result, const std::uint32_t* x, const std::uint32_t* w)
        : kernels_(kernels), result_(result), x_(x), w_(w) {}

    Value zero() const { return 0; }

    Value walk(const Plan& plan, std::int64_t) const {
        Value acc = plan.from_product ? static_cast<Value>(fp32.sign_mask()) : 0;
        for (const auto& [begin, end] : plan.ranges) runs(begin, end - begin, 1, &acc);
        return acc;
    }

    Value lanes(const Plan& plan) const {
        const auto [begin, end] = plan.ranges.front();
        const Lanes& lanes = plan.lanes;
        const std::int64_t chunk = lanes.chunk == 0 ? end - begin : lanes.chunk;
        Partials partials{kernels_, std::vector<Value>(sized(partial_sums(plan)))};
        chains(lanes, begin, std::min(end, begin + chunk), partials.at(0));
        for (std::int64_t from = begin + chunk; from < end; from += chunk) {
            std::vector<Value> more(sized(lanes.count));
            const std::int64_t used = chains(lanes, from, std::min(end, from + chunk), more.data());
            kernels_.add(partials.at(0), more.data(), partials.at(0), sized(used));
        }
        fold_lanes(std::span<const LaneFold>(lanes.folds), partials);
        return partials.p.front();
    }

    void add(Value& sum, const Value& part) const { kernels_.add(&sum, &part, &sum, 1); }
    void round(Value& value) const { round_sums(kernels_, result_, {&value, 1}); }

private:
    /// Continues `count` chains of `depth` consecutive summands each.
    void runs(std::int64_t first, std::int64_t depth, std::int64_t count, Value* acc) const {
        kernels_.fma_runs(x_ + first, w_ + first, sized(depth), sized(count), acc);
    }

    /// Continues the chains of the lanes over [from, to); returns how many lanes have summands there.
    std::int64_t chains(const Lanes& lanes, std::int64_t from, std::int64_t to, Value* acc) const {
        const std::int64_t round = lanes.count * lanes.vector, used = std::min(lanes.count, (to - from + lanes.vector - 1) / lanes.vector);
        std::int64_t at = from;
        if (lanes.vector == 1) {
            const std::int64_t rounds = (to - from) / round;
            if (rounds != 0) kernels_.fma_rounds(x_ + at, w_ + at, sized(round), sized(rounds), acc);
            at += rounds * round;
            kernels_.fma(x_ + at, w_ + at, acc, acc, sized(to - at));
            return used;
        }
        for (; at < to; at += round) {
            const std::int64_t whole = std::min(lanes.count, (to - at) / lanes.vector), rest = at + whole * lanes.vector;
            runs(at, lanes.vector, whole, acc);
            if (whole < lanes.count && rest < to) runs(rest, to - rest, 1, acc + whole);
        }
        return used;
    }

    const Fp32Kernels& kernels_;
    const Format& result_;
    const std::uint32_t *x_, *w_;
};

/// Whether all lanes take single summands in turn, many of them: folds are as costly as rounds.
bool takes_turns(const Plan& plan) noexcept {
    if (plan.kind == Plan::Kind::merge) return std::all_of(plan.parts.begin(), plan.parts.end(), takes_turns);
    constexpr std::int64_t many = 8;
    return plan.kind == Plan::Kind::lanes && plan.lanes.vector == 1 && many * plan.lanes.count <= covered(plan);
}

}  // namespace

void round_sums(const Fp32Kernels& kernels, const Format& result, std::span<std::uint32_t> sums) {
    constexpr std::uint32_t one = 0x3F800000;
    if (result == fp32) return;
    round_through(result, sums);
    kernels.mul_scalar(sums.data(), one, sums.data(), sums.size());  // a widened NaN becomes canonical again
}

std::uint32_t fma_single(
    const Fp32Kernels& kernels, const Plan& plan, const Format& result, const std::uint32_t* x, const std::uint32_t* w) {
    return reduce(plan, SingleSum(kernels, result, x, w));
}

bool prefers_single(const Plan& plan, std::int64_t rows, std::int64_t outputs) noexcept {
    constexpr std::int64_t few = 16;  // a panel of fewer outputs is mostly fillers
    return outputs < few || (rows == 1 && takes_turns(plan));
}

}  // namespace bitreplay
