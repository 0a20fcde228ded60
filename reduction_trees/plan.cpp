#include "reduction_trees/plan.hpp"


namespace bitreplay {

std::int64_t covered(const Plan& plan) noexcept {
    std::int64_t total = 0;
    for (const Range& range : plan.ranges) total += range.end - range.begin;
    for (const Plan& part : plan.parts) total += covered(part);
    return total;
}

std::string to_string(const Plan& plan) {
    std::string out;
    if (plan.kind == Plan::Kind::walk) {
        out = "walk";
        for (const Range& range : plan.ranges) out += " " + std::to_string(range.begin) + ":" + std::to_string(range.end);
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
