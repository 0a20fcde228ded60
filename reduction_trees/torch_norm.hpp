#pragma once

#include <cstdint>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Order of the row moments in torch 2.11's layer_norm and fused rms_norm. Both give every thread a running state;
/// folds combine the own state (first) with that of a higher thread (second).
///
/// vectorised: vectorized_layer_norm_kernel: 128 threads, 4-element vectors t, t + 128, ...; needs width % 4 == 0.
/// Otherwise RowwiseMomentsCUDAKernel: 512 threads, elements t, t + 512, ...; its 16 warp states are padded to 32.
LaneOrder torch_norm_order(std::int64_t width, bool vectorised);

}  // namespace bitreplay
