#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace bitreplay {

/// 0, 1, … count - 1: every row or column, where a list of some is asked for.
inline std::vector<std::int64_t> all_indices(std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), std::int64_t{0});
    return out;
}

}  // namespace bitreplay
