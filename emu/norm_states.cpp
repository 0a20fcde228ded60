#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/norm_states_private.hpp"

namespace bitreplay {
namespace {
constexpr std::uint32_t one = 0x3F800000;
}

NormStates::State NormStates::run(Kind kind, const LaneOrder& order, std::span<const std::uint32_t> elements) {
    kind_ = kind;
    std::int64_t room = order.lanes;
    for (const LaneFold& fold : order.folds) room = std::max(room, fold.outer * fold.terms * fold.inner);
    states_.assign(static_cast<std::size_t>(room), State{});
    for (const LaneLoad& load : order.loads) {
        // All lanes of one load have taken the same number of elements: a load reaches a prefix of the lanes.
        const std::int64_t seen = at(load.lane).count + 1;
        const std::uint32_t count = fp32_from_integer(seen), reciprocal = f32::div(one, count);
        for (std::int64_t i = 0; i < load.count; ++i) {
            State& state = at(load.lane + i * load.lane_stride);
            const std::uint32_t v = elements[static_cast<std::size_t>(load.element + i * load.element_stride)];
            state.count = seen;
            const std::uint32_t d = f32::sub(v, state.mean);
            state.mean =
                kind == Kind::online ? f32::fma(d, reciprocal, state.mean) : f32::add(state.mean, f32::div(d, count));
            state.squares = f32::fma(d, f32::sub(v, state.mean), state.squares);
        }
    }
    fold_lanes(order, *this);
    return at(0);
}

NormStates::State NormStates::combine(const State& own, const State& higher) const {
    State out;
    out.count = own.count + higher.count;
    const std::uint32_t squares = f32::add(own.squares, higher.squares);
    if (kind_ == Kind::rowwise) {
        if (own.count == 0) return higher;
        if (higher.count == 0) return own;
        const std::uint32_t d = f32::sub(higher.mean, own.mean);
        const std::uint32_t ratio = f32::div(fp32_from_integer(higher.count), fp32_from_integer(out.count));
        out.mean = f32::fma(d, ratio, own.mean);
        out.squares = f32::fma(f32::mul(f32::mul(d, d), fp32_from_integer(own.count)), ratio, squares);
        return out;
    }
    if (out.count == 0) return out;
    // In PyTorch's cuWelfordCombine the higher thread's state is A, the own state B.
    const std::uint32_t d = f32::sub(own.mean, higher.mean);
    const std::uint32_t reciprocal = f32::div(one, fp32_from_integer(out.count));
    const std::uint32_t high_part = f32::mul(fp32_from_integer(higher.count), reciprocal);
    const std::uint32_t own_part = f32::mul(fp32_from_integer(own.count), reciprocal);
    out.mean = f32::fma(higher.mean, high_part, f32::mul(own.mean, own_part));
    out.squares = f32::fma(
        f32::mul(f32::mul(d, d), fp32_from_integer(higher.count)), own_part, f32::add(higher.squares, own.squares));
    return out;
}

void NormStates::merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) at(to + i * stride) = combine(at(to + i * stride), at(from + i * stride));
}

void NormStates::copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) at(to + i) = at(from + i * stride);
}

void NormStates::clear(std::int64_t first, std::int64_t count) { std::fill_n(states_.begin() + first, count, State{}); }

}  // namespace bitreplay
