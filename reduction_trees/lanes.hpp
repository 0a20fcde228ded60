#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bitreplay {

/// Strided summands into strided accumulators: lane[lane + i*lane_stride] += element[element + i*element_stride] for
/// i < count.
struct LaneLoad {
    std::int64_t element, element_stride, lane, lane_stride, count;
    bool operator==(const LaneLoad&) const = default;
};

/// Partial sums seen as [outer][terms][inner]; the fold removes the middle dimension.
struct LaneFold {
    enum class Kind : std::uint8_t {
        serial,   ///< ((p0 + p1) + p2) + ...
        halving,  ///< p[i] += p[i + h] for i < h, with h = terms/2, ..., 1; terms is a power of two
    };
    Kind kind;
    std::int64_t outer, terms, inner;
    /// How many partial sums exist; the missing ones up to outer*terms*inner are neutral elements (+0 of a sum).
    std::int64_t present;
    bool operator==(const LaneFold&) const = default;
};

/// The order of one sum over parallel accumulators ("lanes": a thread's registers), each from the neutral element: all
/// loads in order, then all folds in order; the result is partial sum 0. Knows no number formats.
struct LaneOrder {
    std::int64_t lanes;
    std::vector<LaneLoad> loads;
    std::vector<LaneFold> folds;
};

/// Performs the folds on `partials`, which provides
///   merge(to, from, stride, count): p[to + i*stride] += p[from + i*stride] for i < count
///   copy(to, from, stride, count):  p[to + i] = p[from + i*stride], ascending i, to <= from
///   clear(first, count):            neutral elements
template <class Partials>
void fold_lanes(std::span<const LaneFold> folds, Partials& partials) {
    for (const LaneFold& fold : folds) {
        const std::int64_t block = fold.terms * fold.inner;
        if (const std::int64_t total = fold.outer * block; fold.present < total)
            partials.clear(fold.present, total - fold.present);
        if (fold.kind == LaneFold::Kind::serial && fold.inner == 1) {
            for (std::int64_t term = 1; term < fold.terms; ++term) partials.merge(0, term, fold.terms, fold.outer);
        } else {
            for (std::int64_t base = 0; base < fold.outer * block; base += block) {
                if (fold.kind == LaneFold::Kind::serial) {
                    for (std::int64_t term = 1; term < fold.terms; ++term)
                        partials.merge(base, base + term * fold.inner, 1, fold.inner);
                } else {
                    for (std::int64_t half = fold.terms / 2; half > 0; half /= 2)
                        partials.merge(base, base + half * fold.inner, 1, half * fold.inner);
                }
            }
        }
        if (fold.terms == 1) continue;
        if (fold.inner == 1) {
            partials.copy(0, 0, fold.terms, fold.outer);
        } else {
            for (std::int64_t outer = 1; outer < fold.outer; ++outer)
                partials.copy(outer * fold.inner, outer * block, 1, fold.inner);
        }
    }
}
template <class Partials>
void fold_lanes(const LaneOrder& order, Partials& partials) {
    fold_lanes(std::span<const LaneFold>(order.folds), partials);
}

}  // namespace bitreplay
