#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Sums FP32 values in the order of a LaneOrder. One object per thread: it owns the accumulators.
class LaneSum {
public:
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
};

}  // namespace bitreplay
