#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// The order of one sum: a tree whose leaves are walks. It knows no number formats and no GPU; it only says what is
/// added to what, in which order.
struct Plan {
    enum class Kind : std::uint8_t {
        walk,   ///< one accumulator from +0 over `ranges` in order, each cut into steps of the instruction's depth from
                ///< its own beginning; the last step of a range may be short
        merge,  ///< the sums of `parts`, combined as `merge` says
    };
    Kind kind = Kind::walk;
    std::vector<Range> ranges;
    std::vector<Plan> parts;
    Merge merge;

    bool operator==(const Plan&) const = default;
};

/// Summands that the plan covers, each once. A recorded kernel can drop some (MODELS: nvjet split-K), see Recipe.
std::int64_t covered(const Plan& plan) noexcept;

/// The tree in one line, for people and tests: "walk 0:64 64:128" or "(walk 0:64 + walk 64:128)". Markers: "r(...)" a
/// part rounded to the result, "+r" a sum rounded to the result, "0 +" a merge that starts at zero; parts are printed in
/// the order in which they are added.
std::string to_string(const Plan& plan);

}  // namespace bitreplay
