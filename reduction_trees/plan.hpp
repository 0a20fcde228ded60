#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reduction_trees/lanes.hpp"

namespace bitreplay {

/// Consecutive summands [begin, end).
struct Range {
    std::int64_t begin, end;
    bool operator==(const Range&) const = default;
};

/// How partial sums become one.
struct Merge {
    enum class Order : std::uint8_t { first_to_last, last_to_first };
    enum class Precision : std::uint8_t { accumulator, result };  ///< the running sum's format; the output's format

    Order order = Order::first_to_last;
    bool from_zero = false;                        ///< start at +0 instead of at the first part
    Precision parts = Precision::accumulator;      ///< each part is rounded to this before it is added
    Precision sums = Precision::accumulator;       ///< the running sum is rounded to this after every part, the first included
    bool operator==(const Merge&) const = default;
};

/// Parallel accumulators over one range of summands: summand begin + i belongs to lane i / vector % count. A lane adds its
/// summands in order from +0, then the folds make one sum of the lanes; a lane without summands is +0.
struct Lanes {
    std::int64_t count = 0, vector = 1;
    std::int64_t chunk = 0;  ///< if not 0: a lane starts again from +0 at every multiple (of whole rounds) and adds the
                             ///< sums of its chunks left to right
    std::vector<LaneFold> folds;
    bool operator==(const Lanes&) const = default;
};

/// The order of one sum: a tree whose leaves are walks and lanes. It knows no number formats and no GPU; it only says what
/// is added to what, in which order.
struct Plan {
    enum class Kind : std::uint8_t {
        walk,   ///< one accumulator from +0 over `ranges` in order, each cut into steps of the instruction's depth from
                ///< its own beginning; the last step of a range may be short
        merge,  ///< the sums of `parts`, combined as `merge` says
        lanes,  ///< `lanes` over the one range of `ranges`
    };
    Kind kind = Kind::walk;
    std::vector<Range> ranges;
    std::vector<Plan> parts;
    Merge merge;
    Lanes lanes = {};
    bool from_product = false;  ///< walk: it starts with the first product instead of adding that to +0: a product of -0 stays

    bool operator==(const Plan&) const = default;
};

/// Summands that the plan covers, each once. A recorded kernel can drop some (MODELS: nvjet split-K), see Recipe.
std::int64_t covered(const Plan& plan) noexcept;

/// Walks and lanes of the plan, in a depth-first visit.
std::int64_t leaves(const Plan& plan) noexcept;

/// Whether a part of the plan is lanes: only multiply-add chains have those, no tensor core.
bool has_lanes(const Plan& plan) noexcept;

/// The tree in one line, for people and tests: "walk 0:64 64:128", "walk from product 0:1" or "(walk 0:64 + walk 64:128)". Markers: "r(...)" a
/// part rounded to the result, "+r" a sum rounded to the result, "0 +" a merge that starts at zero; parts are printed in
/// the order in which they are added. "lanes 0:515 4x32 restart 512, halving 32": 32 lanes of 4 consecutive summands, chains of 512,
/// then a fold of 32 terms ("serial 8 by 4": of 8 terms, 4 apart).
std::string to_string(const Plan& plan);

}  // namespace bitreplay
