#include "reduction_trees/plan.hpp"

#include <algorithm>

namespace bitreplay {

std::int64_t covered(const Plan& plan) noexcept {
    std::int64_t total = 0;
    for (const Range& range : plan.ranges) total += range.end - range.begin;
    for (const Plan& part : plan.parts) total += covered(part);
    return total;
}

std::int64_t leaves(const Plan& plan) noexcept {
    if (plan.kind != Plan::Kind::merge) return 1;
    std::int64_t count = 0;
    for (const Plan& part : plan.parts) count += leaves(part);
    return count;
}

bool has_lanes(const Plan& plan) noexcept {
    return plan.kind == Plan::Kind::lanes || std::any_of(plan.parts.begin(), plan.parts.end(), has_lanes);
}

std::string to_string(const Plan& plan) {
    std::string out;
    if (plan.kind != Plan::Kind::merge) {
        out = plan.kind == Plan::Kind::walk ? "walk" : "lanes";
        if (plan.from_product) out += " from product";
        for (const Range& range : plan.ranges) out += " " + std::to_string(range.begin) + ":" + std::to_string(range.end);
        if (plan.kind == Plan::Kind::walk) return out;
        out += " " + std::to_string(plan.lanes.vector) + "x" + std::to_string(plan.lanes.count);
        if (plan.lanes.chunk != 0) out += " restart " + std::to_string(plan.lanes.chunk);
        for (const LaneFold& fold : plan.lanes.folds) {
            out += (fold.kind == LaneFold::Kind::serial ? ", serial " : ", halving ") + std::to_string(fold.terms);
            if (fold.inner != 1) out += " by " + std::to_string(fold.inner);
        }
        return out;
    }
    const bool reverse = plan.merge.order == Merge::Order::last_to_first;
    const std::string plus = plan.merge.sums == Merge::Precision::result ? " +r " : " + ";
    out = plan.merge.from_zero ? "(0" + plus : "(";
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
        const Plan& part = plan.parts[reverse ? plan.parts.size() - 1 - i : i];
        if (i != 0) out += plus;
        out += plan.merge.parts == Merge::Precision::result ? "r(" + to_string(part) + ")" : to_string(part);
    }
    return out + ")";
}

}  // namespace bitreplay
