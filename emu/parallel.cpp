#include "emu/parallel.hpp"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <memory>

namespace bitreplay {

void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
    if (count <= 0) return;
    oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::int64_t>(0, count, grain > 0 ? static_cast<std::size_t>(grain) : 1),
                              [&](const auto& range) { body(range.begin(), range.end()); });
}

void set_threads(int threads) {
    static std::unique_ptr<oneapi::tbb::global_control> limit;
    limit.reset();
    if (threads > 0)
        limit = std::make_unique<oneapi::tbb::global_control>(oneapi::tbb::global_control::max_allowed_parallelism,
                                                              static_cast<std::size_t>(threads));
}

}  // namespace bitreplay
