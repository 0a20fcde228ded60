#pragma once

#include <cstdint>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Which softmax kernel torch 2.11 launches for contiguous rows, and how it walks a row.
struct TorchSoftmax {
    enum class Kernel : std::uint8_t {
        warp,       ///< softmax_warp_forward: a row per warp
        registers,  ///< cunn_SoftMaxForwardReg: a block keeps the row in registers
        shared,     ///< cunn_SoftMaxForwardSmem: vectors, the row in shared memory
        vectors,    ///< cunn_SoftMaxForward: vectors from global memory
    };
    Kernel kernel;
    std::int64_t width;
    int vector_width;  ///< elements per 16-byte load of `shared` and `vectors`
    bool operator==(const TorchSoftmax&) const = default;
};

/// width >= 1; element_bytes of the input; `aligned`: the first row starts on a 16-byte boundary. softmax and
/// log_softmax choose alike.
TorchSoftmax torch_softmax(std::int64_t width, int element_bytes, bool aligned);

/// The order in which the exponentials of a row are added. `shift`: elements between the last 16-byte boundary and the
/// row's first element (only `vectors` depends on it).
LaneOrder lane_order(const TorchSoftmax& softmax, std::int64_t shift);

}  // namespace bitreplay
