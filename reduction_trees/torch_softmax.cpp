#include "reduction_trees/torch_softmax.hpp"

#include <algorithm>
#include <bit>

namespace bitreplay {
namespace {

constexpr std::int64_t warp = 32, block = 1024;
constexpr std::int64_t widest_warp_row = 2048;
constexpr std::int64_t registers_per_thread = 10;   // rows below this many elements per thread stay in registers
constexpr std::int64_t shared_bytes = 49152 - 128;  // shared memory of a block, less the warp sums
constexpr std::int64_t load_bytes = 16;

void load_contiguous(LaneOrder& order, std::int64_t begin, std::int64_t end, std::int64_t threads) {
    for (; begin < end; begin += threads) order.loads.push_back({begin, 1, 0, 1, std::min(threads, end - begin)});
}

/// Whole vectors [begin, end): thread t takes the elements of vectors t, t + block, ... one after the other.
void load_vectors(LaneOrder& order, std::int64_t begin, std::int64_t end, std::int64_t v) {
    for (; begin < end; begin += block * v)
        for (std::int64_t k = 0; k < v; ++k)
            order.loads.push_back({begin + k, v, 0, 1, std::min(block, (end - begin) / v)});
}

}  // namespace

TorchSoftmax torch_softmax(std::int64_t width, int element_bytes, bool aligned) {
    using enum TorchSoftmax::Kernel;
    const int vector_width = static_cast<int>(load_bytes / element_bytes);
    TorchSoftmax out{vectors, width, vector_width};
    if (width <= widest_warp_row)
        out.kernel = warp;
    else if ((width + block - 1) / block < registers_per_thread)
        out.kernel = registers;
    else if (width < shared_bytes / element_bytes && aligned && width % vector_width == 0)
        out.kernel = shared;
    return out;
}

LaneOrder lane_order(const TorchSoftmax& softmax, std::int64_t shift) {
    using enum LaneFold::Kind;
    LaneOrder order{};
    const std::int64_t n = softmax.width, v = softmax.vector_width;
    if (softmax.kernel == TorchSoftmax::Kernel::warp) {
        order.lanes = std::min(warp, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n))));
        load_contiguous(order, 0, n, order.lanes);
        // An xor butterfly: every lane ends with the sum of this tree, since addition commutes.
        order.folds.push_back({halving, 1, order.lanes, 1, order.lanes});
        return order;
    }
    order.lanes = block;
    if (softmax.kernel == TorchSoftmax::Kernel::registers) {
        load_contiguous(order, 0, n, block);
    } else if (softmax.kernel == TorchSoftmax::Kernel::shared) {
        load_vectors(order, 0, n, v);
    } else {
        std::int64_t begin = 0;
        if (shift > 0) {
            begin = block - shift;
            order.loads.push_back({0, 1, shift, 1, std::min(begin, n)});
        }
        const std::int64_t whole = begin + std::max<std::int64_t>(n - begin, 0) / (v * block) * (v * block);
        load_vectors(order, begin, whole, v);
        load_contiguous(order, whole, n, block);
    }
    order.folds.push_back({halving, block / warp, warp, 1, block});
    order.folds.push_back({halving, 1, block / warp, 1, block / warp});
    return order;
}

}  // namespace bitreplay
