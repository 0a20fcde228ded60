#pragma once

#include <cstdint>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// A reduction of contiguous rows by PyTorch's reduce_kernel (ATen/native/cuda/Reduce.cuh).
struct TorchReduceProblem {
    std::int64_t rows, width;
    int vector_width;  ///< elements of one 16-byte load: 4 for fp32, 8 for bf16
    int multiprocessors, threads_per_multiprocessor;
};

/// Launch shape of reduce_kernel as torch 2.11 chooses it.
struct TorchReduce {
    std::int64_t width;
    int vector_width;
    bool vectorised;       ///< 16-byte loads along the row
    int block_x, block_y;  ///< threads of a block
    bool split_y;          ///< the block's y dimension shares one row instead of taking rows of its own
    std::int64_t ctas;     ///< blocks that share one row
    std::int64_t threads;  ///< threads that share one row: the step of each thread's loop, in loads
    bool operator==(const TorchReduce&) const = default;
};

/// rows, width >= 1.
TorchReduce torch_reduce(const TorchReduceProblem& problem);

/// The order of one row's sum. `shift`: elements between the last 16-byte boundary and the row's first element, less
/// than vector_width; only a vectorised launch depends on it.
LaneOrder lane_order(const TorchReduce& launch, std::int64_t shift);

}  // namespace bitreplay
