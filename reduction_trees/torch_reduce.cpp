#include "reduction_trees/torch_reduce.hpp"

#include <algorithm>
#include <bit>

namespace bitreplay {
namespace {

constexpr std::int64_t max_threads = 512;  // a block's limit for one output per thread
constexpr std::int64_t warp = 32;
constexpr std::int64_t scalar_accumulators = 4;  // vt0 of the kernel's template
constexpr std::int64_t vectorise_from = 128;
constexpr std::int64_t min_values = 16, max_values = 256;  // per thread, before more threads share a row

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t block_extent(std::int64_t extent) {
    return extent < max_threads ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(extent)))
                                : max_threads;
}

void add_vector_loads(const TorchReduce& launch, std::int64_t shift, LaneOrder& order) {
    const std::int64_t v = launch.vector_width;
    std::int64_t begin = 0, end = launch.width;
    if (shift > 0) {
        order.loads.push_back({0, 1, shift * v, v, v - shift});
        begin = v - shift;
        end -= begin;
    }
    for (std::int64_t i = 0; i < end / v; i += launch.threads)
        order.loads.push_back({begin + i * v, 1, 0, 1, std::min(launch.threads, end / v - i) * v});
    if (const std::int64_t tail = end % v; tail > 0) order.loads.push_back({begin + end - tail, 1, 0, v, tail});
    order.folds.push_back({LaneFold::Kind::serial, launch.threads, v, 1, launch.threads * v});
}

void add_scalar_loads(const TorchReduce& launch, LaneOrder& order) {
    // Thread x takes x, x + step, x + 2 step, x + 3 step into its accumulators 0 to 3, and again; where a last round is
    // incomplete its leftovers start with accumulator 0 as well. Accumulator k of thread x is lane k*step + x.
    const std::int64_t step = launch.threads, round = scalar_accumulators * step;
    for (std::int64_t first = 0; first < launch.width; first += round)
        order.loads.push_back({first, 1, 0, 1, std::min(round, launch.width - first)});
    order.folds.push_back({LaneFold::Kind::serial, 1, scalar_accumulators, step, scalar_accumulators * step});
}

}  // namespace

TorchReduce torch_reduce(const TorchReduceProblem& p) {
    TorchReduce out{};
    out.width = p.width;
    out.vector_width = p.vector_width;
    out.vectorised = p.width >= vectorise_from;

    const std::int64_t extent_x = block_extent(out.vectorised ? p.width / p.vector_width : p.width);
    const std::int64_t extent_y = block_extent(p.rows);
    const std::int64_t narrow = std::min(extent_x, warp);
    const std::int64_t block_y = std::min(extent_y, max_threads / narrow);
    const std::int64_t block_x = std::min(extent_x, max_threads / block_y);
    out.block_x = static_cast<int>(block_x);
    out.block_y = static_cast<int>(block_y);

    out.threads = block_x;
    out.split_y = ceil_div(p.width, block_x) >= std::min(block_y * min_values, max_values);
    if (out.split_y) out.threads *= block_y;

    out.ctas = 1;
    const std::int64_t values = ceil_div(p.width, out.threads);
    const std::int64_t resident =
        p.multiprocessors * (static_cast<std::int64_t>(p.threads_per_multiprocessor) / (block_x * block_y));
    if (out.split_y && values >= max_values && p.rows <= resident) {
        const std::int64_t fill = ceil_div(resident, p.rows);
        out.ctas = std::max(std::min(fill, ceil_div(values, min_values)), ceil_div(values, max_values));
    }
    out.threads *= out.ctas;
    return out;
}

LaneOrder lane_order(const TorchReduce& launch, std::int64_t shift) {
    LaneOrder order{};
    if (launch.vectorised) {
        order.lanes = launch.threads * launch.vector_width;
        add_vector_loads(launch, shift, order);
    } else {
        order.lanes = launch.threads * scalar_accumulators;
        add_scalar_loads(launch, order);
    }
    using enum LaneFold::Kind;
    const std::int64_t x = launch.block_x, y = launch.block_y;
    const std::int64_t shared_y = launch.split_y ? y : 1;
    order.folds.push_back({halving, launch.ctas * shared_y, x, 1, launch.threads});
    if (launch.split_y) order.folds.push_back({halving, launch.ctas, y, 1, launch.ctas * y});
    if (launch.ctas > 1) {
        // The last block to finish adds the blocks' sums. Each of its threads starts at the neutral element, which
        // changes nothing: a sum that began at +0 is never -0.
        order.folds.push_back({serial, 1, ceil_div(launch.ctas, x * y), x * y, launch.ctas});
        order.folds.push_back({halving, 1, y, x, x * y});
        order.folds.push_back({halving, 1, x, 1, x});
    }
    return order;
}

}  // namespace bitreplay
