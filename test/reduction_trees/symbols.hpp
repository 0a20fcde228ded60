#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "reduction_trees/lanes.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay::test {

/// Sums of names, to see an order of additions: "(a+b)" where something was added, "b" where the lane was empty.
struct Symbols {
    std::vector<std::string> p;
    static std::string sum(const std::string& a, const std::string& b) {
        return a.empty() ? b : b.empty() ? a : "(" + a + "+" + b + ")";
    }
    void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) at(to + i * stride) = sum(at(to + i * stride), at(from + i * stride));
    }
    void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) at(to + i) = at(from + i * stride);
    }
    void clear(std::int64_t first, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) at(first + i).clear();
    }
    std::string& at(std::int64_t i) {
        if (static_cast<std::size_t>(i) >= p.size()) p.resize(static_cast<std::size_t>(i) + 1);
        return p.at(static_cast<std::size_t>(i));
    }
};

inline std::string symbolic(const LaneOrder& order) {
    Symbols partials;
    partials.p.resize(static_cast<std::size_t>(order.lanes));
    for (const LaneLoad& load : order.loads)
        for (std::int64_t i = 0; i < load.count; ++i) {
            std::string& lane = partials.p.at(static_cast<std::size_t>(load.lane + i * load.lane_stride));
            lane = Symbols::sum(lane, std::to_string(load.element + i * load.element_stride));
        }
    fold_lanes(order, partials);
    return partials.p.at(0);
}

/// A plan's sum of the names of its summands, for reduce(); what is still +0 has no name, "r[…]" is a rounding to the
/// result.
struct PlanSymbols {
    using Value = std::string;

    void chain(std::int64_t begin, std::int64_t end, Value& sum) const {
        for (std::int64_t k = begin; k < end; ++k) sum = Symbols::sum(sum, std::to_string(k));
    }
    Value zero() const { return {}; }
    Value walk(const Plan& plan, std::int64_t) const {
        Value sum;
        for (const Range& range : plan.ranges) chain(range.begin, range.end, sum);
        return sum;
    }
    Value lanes(const Plan& plan) const { return reduce_chains(plan, *this); }
    void add(Value& sum, const Value& part) const { sum = Symbols::sum(sum, part); }
    void round(Value& value) const { value = "r[" + value + "]"; }
};

inline std::string symbolic(const Plan& plan) { return reduce(plan, PlanSymbols{}); }

inline std::string left_to_right(const std::vector<std::string>& terms) {
    std::string out;
    for (const std::string& term : terms) out = Symbols::sum(out, term);
    return out;
}

/// The sum of terms by halving: term i + term i + h, with h from half the next power of two down to 1.
inline std::string halving(std::vector<std::string> terms) {
    std::size_t size = 1;
    while (size < terms.size()) size *= 2;
    terms.resize(size);
    for (std::size_t half = size / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) terms[i] = Symbols::sum(terms[i], terms[i + half]);
    return terms[0];
}

/// How often each of `width` elements is loaded; -1000 in place 0 if a load misses the lanes.
inline std::vector<int> loads_of(const LaneOrder& order, std::int64_t width) {
    std::vector<int> seen(static_cast<std::size_t>(width));
    for (const LaneLoad& load : order.loads)
        for (std::int64_t i = 0; i < load.count; ++i) {
            ++seen.at(static_cast<std::size_t>(load.element + i * load.element_stride));
            const std::int64_t lane = load.lane + i * load.lane_stride;
            if (lane < 0 || lane >= order.lanes) seen.at(0) = -1000;
        }
    return seen;
}

}  // namespace bitreplay::test
