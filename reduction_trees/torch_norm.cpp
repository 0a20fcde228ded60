#include "reduction_trees/torch_norm.hpp"

#include <algorithm>

namespace bitreplay {
namespace {
constexpr std::int64_t warp = 32;
constexpr std::int64_t vector_threads = 128, vector_width = 4, scalar_threads = 512;
}  // namespace

LaneOrder torch_norm_order(std::int64_t width, bool vectorised) {
    using enum LaneFold::Kind;
    LaneOrder order{};
    order.lanes = vectorised ? vector_threads : scalar_threads;
    const std::int64_t step = vectorised ? vector_width : 1;
    for (std::int64_t first = 0; first < width; first += order.lanes * step)
        for (std::int64_t k = 0; k < step; ++k)
            order.loads.push_back({first + k, step, 0, 1, std::min(order.lanes, (width - first) / step)});
    const std::int64_t warps = order.lanes / warp;
    order.folds.push_back({halving, warps, warp, 1, order.lanes});
    order.folds.push_back({halving, 1, vectorised ? warps : warp, 1, warps});
    return order;
}

}  // namespace bitreplay
