#include "emu/lane_sum.hpp"

#include <algorithm>

#include "emu/simd/fp32_kernels.hpp"

namespace bitreplay {
namespace {
std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
}  // namespace

void LaneSum::start(const LaneOrder& order) {
    std::int64_t room = order.lanes;
    for (const LaneFold& fold : order.folds) room = std::max(room, fold.outer * fold.terms * fold.inner);
    if (lanes_.size() < size(room)) lanes_.resize(size(room));
    std::fill_n(lanes_.begin(), order.lanes, 0U);
}

std::uint32_t LaneSum::sum(const LaneOrder& order, std::span<const std::uint32_t> elements) {
    const Fp32Kernels& kernels = fp32_kernels();
    start(order);
    for (const LaneLoad& load : order.loads) {
        const std::uint32_t* x = elements.data() + load.element;
        if (load.element_stride == 1 && load.lane_stride == 1)
            kernels.add(at(load.lane), x, at(load.lane), size(load.count));
        else
            kernels.add_strided(at(load.lane), size(load.lane_stride), x, size(load.element_stride), size(load.count));
        if (observer_ != nullptr) observer_->loaded(load, lanes_);
    }
    fold_lanes(order, *this);
    return lanes_[0];
}

std::uint32_t LaneSum::sum_of_products(const LaneOrder& order,
                                       std::span<const std::uint32_t> x,
                                       std::span<const std::uint32_t> y) {
    const Fp32Kernels& kernels = fp32_kernels();
    start(order);
    for (const LaneLoad& load : order.loads) {
        const std::uint32_t* u = x.data() + load.element;
        const std::uint32_t* v = y.data() + load.element;
        if (load.element_stride == 1 && load.lane_stride == 1)
            kernels.fma(u, v, at(load.lane), at(load.lane), size(load.count));
        else
            kernels.fma_strided(
                at(load.lane), size(load.lane_stride), u, v, size(load.element_stride), size(load.count));
        if (observer_ != nullptr) observer_->loaded(load, lanes_);
    }
    fold_lanes(order, *this);
    return lanes_[0];
}

void LaneSum::merge(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
    if (stride == 1)
        fp32_kernels().add(at(to), at(from), at(to), size(count));
    else
        fp32_kernels().add_strided(at(to), size(stride), at(from), size(stride), size(count));
    if (observer_ != nullptr) observer_->merged(to, from, stride, count, lanes_);
}

void LaneSum::copy(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) *at(to + i) = *at(from + i * stride);
    if (observer_ != nullptr) observer_->copied(to, from, stride, count);
}

void LaneSum::clear(std::int64_t first, std::int64_t count) {
    std::fill_n(at(first), count, 0U);
    if (observer_ != nullptr) observer_->cleared(first, count);
}

}  // namespace bitreplay
