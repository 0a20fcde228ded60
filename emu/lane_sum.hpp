#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Watches a LaneSum at work. Every call comes after the partial sums were changed as the arguments say (see LaneLoad and
/// fold_lanes); `partials` are their codes. Watching changes no bit.
class LaneObserver {
public:
    virtual ~LaneObserver() = default;
    virtual void loaded(const LaneLoad& load, std::span<const std::uint32_t> partials) = 0;
    virtual void merged(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count, std::span<const std::uint32_t> partials) = 0;
    virtual void copied(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) = 0;
    virtual void cleared(std::int64_t first, std::int64_t count) = 0;
};

/// Sums FP32 values in the order of a LaneOrder. One object per thread: it owns the accumulators.
class LaneSum {
public:
    LaneSum() = default;
    explicit LaneSum(LaneObserver& observer) : observer_(&observer) {}

    /// Sum of elements; the order's elements lie inside the span.
    std::uint32_t sum(const LaneOrder& order, std::span<const std::uint32_t> elements);
    /// Sum of x[i]*y[i], each product added by one fma.
    std::uint32_t sum_of_products(const LaneOrder& order,
                                  std::span<const std::uint32_t> x,
                                  std::span<const std::uint32_t> y);

    // What fold_lanes asks for.
    void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count);
    void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count);
    void clear(std::int64_t first, std::int64_t count);

private:
    void start(const LaneOrder& order);
    std::uint32_t* at(std::int64_t lane) { return lanes_.data() + lane; }

    std::vector<std::uint32_t> lanes_;
    LaneObserver* observer_ = nullptr;
};

}  // namespace bitreplay
