#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "reduction_trees/plan.hpp"

namespace bitreplay {

/// Evaluates a plan. `sums` provides a Value (a sum, or many sums at once) and
///   Value zero()
///   Value walk(const Plan& walk, std::int64_t leaf): one accumulator from +0; leaf: its place among leaves()
///   Value lanes(const Plan& lanes): for instance by reduce_lanes()
///   void add(Value& sum, const Value& part)
///   void round(Value& value): to the kernel's result format
/// and, if it wants to be told: begin(plan) and end(value) around each node, merged(part, sum) after each part of a merge.
template <class Sums>
typename Sums::Value reduce(const Plan& plan, const Sums& sums, std::int64_t leaf = 0) {
    constexpr bool told = requires(const typename Sums::Value& value) { sums.merged(value, value); };
    if constexpr (told) sums.begin(plan);
    if (plan.kind != Plan::Kind::merge) {
        typename Sums::Value value = plan.kind == Plan::Kind::walk ? sums.walk(plan, leaf) : sums.lanes(plan);
        if constexpr (told) sums.end(value);
        return value;
    }
    std::vector<std::int64_t> first_leaf;
    for (const Plan& part : plan.parts) {
        first_leaf.push_back(leaf);
        leaf += leaves(part);
    }
    typename Sums::Value sum = sums.zero();
    bool first = !plan.merge.from_zero;
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
        const std::size_t at = plan.merge.order == Merge::Order::last_to_first ? plan.parts.size() - 1 - i : i;
        typename Sums::Value part = reduce(plan.parts[at], sums, first_leaf[at]);
        if (plan.merge.parts == Merge::Precision::result) sums.round(part);
        if (!first)
            sums.add(sum, part);
        else if constexpr (told)
            sum = part;
        else
            sum = std::move(part);
        first = false;
        if (plan.merge.sums == Merge::Precision::result) sums.round(sum);
        if constexpr (told) sums.merged(part, sum);
    }
    if constexpr (told) sums.end(sum);
    return sum;
}

/// Summands first, first + 1, … (`vector` of them), then the same `stride` further on, and so on, all below end.
struct Comb {
    std::int64_t first, end, vector, stride;
};

/// Lanes that have summands; the partial sums that `partials` must hold: also those that the folds fill up with zeros.
inline std::int64_t used_lanes(const Plan& plan) noexcept {
    const std::int64_t summands = plan.ranges.front().end - plan.ranges.front().begin;
    return std::min(plan.lanes.count, (summands + plan.lanes.vector - 1) / plan.lanes.vector);
}
inline std::int64_t partial_sums(const Plan& plan) noexcept {
    std::int64_t count = used_lanes(plan);
    for (const LaneFold& fold : plan.lanes.folds) count = std::max(count, fold.outer * fold.terms * fold.inner);
    return count;
}

/// Evaluates lanes; the result is partial sum 0. `partials` provides what fold_lanes() needs and
///   start(lane, const Comb&): p[lane] = the chain of these summands from +0
///   extend(lane, const Comb&): p[lane] += such a chain
template <class Partials>
void reduce_lanes(const Plan& plan, Partials& partials) {
    const auto [begin, end] = plan.ranges.front();
    const Lanes& lanes = plan.lanes;
    const std::int64_t round = lanes.count * lanes.vector, chunk = lanes.chunk == 0 ? end - begin : lanes.chunk;
    for (std::int64_t from = begin; from < end; from += chunk) {
        const std::int64_t to = std::min(end, from + chunk);
        for (std::int64_t lane = 0, first = from; lane < lanes.count && first < to; ++lane, first += lanes.vector) {
            const Comb comb{first, to, lanes.vector, round};
            if (from == begin)
                partials.start(lane, comb);
            else
                partials.extend(lane, comb);
        }
    }
    fold_lanes(plan.lanes.folds, partials);
}

/// Evaluates lanes with one Value a lane. `sums` provides Value, zero() and add() as for reduce(), and
///   void chain(std::int64_t begin, std::int64_t end, Value& acc): continues a chain over summands [begin, end)
template <class Sums>
typename Sums::Value reduce_chains(const Plan& plan, const Sums& sums) {
    using Value = typename Sums::Value;
    struct Partials {
        const Sums& sums;
        std::vector<Value> p;

        Value comb(const Comb& comb) const {
            Value acc = sums.zero();
            for (std::int64_t k = comb.first; k < comb.end; k += comb.stride)
                sums.chain(k, std::min(comb.end, k + comb.vector), acc);
            return acc;
        }
        Value& at(std::int64_t i) { return p[static_cast<std::size_t>(i)]; }
        void start(std::int64_t lane, const Comb& c) { at(lane) = comb(c); }
        void extend(std::int64_t lane, const Comb& c) { sums.add(at(lane), comb(c)); }
        void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i) sums.add(at(to + i * stride), at(from + i * stride));
        }
        void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i) at(to + i) = at(from + i * stride);
        }
        void clear(std::int64_t first, std::int64_t count) { std::fill_n(p.begin() + first, count, sums.zero()); }
    };
    Partials partials{sums, std::vector<Value>(static_cast<std::size_t>(partial_sums(plan)), sums.zero())};
    reduce_lanes(plan, partials);
    return std::move(partials.p.front());
}

}  // namespace bitreplay
