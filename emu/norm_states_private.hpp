#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Running moments of torch's norm kernels in the lanes of a LaneOrder: the formulas of one thread's update and of the
/// combination of two threads (own, higher), FP32, each operation rounded. One object per thread.
class NormStates {
public:
    enum class Kind : std::uint8_t {
        online,   ///< vectorised layer_norm: Welford with multiplications by RN(1/count)
        rowwise,  ///< RowwiseMoments: Welford with divisions by the count
    };
    struct State {
        std::uint32_t mean = 0;
        std::uint32_t squares = 0;  ///< sum of squared deviations
        std::int64_t count = 0;
    };
    State run(Kind kind, const LaneOrder& order, std::span<const std::uint32_t> elements);

    // What fold_lanes asks for.
    void merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count);
    void copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count);
    void clear(std::int64_t first, std::int64_t count);

private:
    State combine(const State& own, const State& higher) const;
    State& at(std::int64_t lane) { return states_[static_cast<std::size_t>(lane)]; }

    Kind kind_ = Kind::online;
    std::vector<State> states_;
};

}  // namespace bitreplay
