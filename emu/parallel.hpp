#pragma once

#include <cstdint>
#include <functional>

namespace bitreplay {

/// Calls body(begin, end) over disjoint pieces of [0, count) on several threads; only for independent outputs, so that no
/// result can depend on the number of threads. `grain`: the smallest piece worth a task. Exceptions propagate.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

/// Number of threads for parallel_for from now on; 0 means all cores. Not thread-safe: call it at start-up.
void set_threads(int threads);

}  // namespace bitreplay
