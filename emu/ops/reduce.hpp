#pragma once

#include "emu/ops/op.hpp"
#include "emu/reduce.hpp"

namespace bitreplay {

/// The reduction that a request of op "reduce" asks for; refers to the request. Throws as the op does.
ReduceTask reduce_task(const OpRequest& request);

}  // namespace bitreplay
