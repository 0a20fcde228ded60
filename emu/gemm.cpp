#include "emu/gemm.hpp"

#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

/// Evaluates a plan for one output by the scalar definition.
class ScalarSum {
public:
    ScalarSum(const GemmTask& task, std::span<const Operand> a, std::span<const Operand> b, SumObserver* observer = nullptr)
        : task_(task), a_(a), b_(b), observer_(observer) {}

    std::uint64_t operator()(const Plan& plan) const {
        if (observer_ != nullptr) observer_->begin(plan);
        const std::uint64_t value = plan.kind == Plan::Kind::walk ? walk(plan) : merge(plan);
        if (observer_ != nullptr) observer_->end(value);
        return value;
    }

private:
    std::uint64_t merge(const Plan& plan) const {
        const bool reverse = plan.merge.order == Merge::Order::last_to_first;
        std::uint64_t sum = 0;
        bool first = !plan.merge.from_zero;
        for (std::size_t i = 0; i < plan.parts.size(); ++i) {
            const std::uint64_t raw = (*this)(plan.parts[reverse ? plan.parts.size() - 1 - i : i]);
            const std::uint64_t part = plan.merge.parts == Merge::Precision::result ? rounded(raw) : raw;
            sum = first ? part : add(sum, part);
            first = false;
            if (plan.merge.sums == Merge::Precision::result) sum = rounded(sum);
            if (observer_ != nullptr) observer_->merged(part, sum);
        }
        return sum;
    }

    std::uint64_t walk(const Plan& plan) const {
        std::uint64_t acc = 0;
        for (const auto& [begin, end] : plan.ranges) {
            const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
            const auto a = a_.subspan(first, count), b = b_.subspan(first, count);
            acc = observer_ != nullptr ? dot_walk(task_.rule, task_.instruction_k, a, b, acc, begin, *observer_)
                                       : dot_walk(task_.rule, task_.instruction_k, a, b, acc);
        }
        return acc;
    }

    /// An accumulator rounded to the kernel's output type and widened again.
    std::uint64_t rounded(std::uint64_t acc) const {
        const Format& wide = task_.rule.types.d;
        return task_.result == wide ? acc : convert(task_.result, wide, convert(wide, task_.result, acc));
    }

    /// One IEEE addition in the accumulator's format.
    std::uint64_t add(std::uint64_t x, std::uint64_t y) const {
        const Format& wide = task_.rule.types.d;
        const auto single = [&](std::uint64_t code) { return static_cast<std::uint32_t>(convert(wide, fp32, code)); };
        return convert(fp32, wide, f32::add(single(x), single(y)));
    }

    const GemmTask& task_;
    std::span<const Operand> a_, b_;
    SumObserver* observer_;
};

}  // namespace

Tensor gemm_accumulators_scalar(const GemmTask& task) {
    const std::int64_t k = task.x.cols();
    const auto depth = static_cast<std::size_t>(k);
    Tensor out(task.rule.types.d, {std::ssize(task.rows), std::ssize(task.cols)});
    constexpr std::int64_t block = 8;  // columns decoded together; their operands stay in the second-level cache
    const std::int64_t blocks = (std::ssize(task.cols) + block - 1) / block;
    parallel_for(blocks, 1, [&](std::int64_t first_block, std::int64_t last_block) {
        std::vector<std::uint32_t> codes(depth);
        std::vector<Operand> a(depth), b(depth * block);
        for (std::int64_t j0 = first_block * block; j0 < std::min(last_block * block, std::ssize(task.cols)); j0 += block) {
            const std::int64_t width = std::min(block, std::ssize(task.cols) - j0);
            for (std::int64_t j = 0; j < width; ++j) {
                task.w.read(task.cols[static_cast<std::size_t>(j0 + j)] * k, codes);
                decode_b(task.rule, codes, std::span(b).subspan(static_cast<std::size_t>(j) * depth, depth));
            }
            for (std::int64_t i = 0; i < std::ssize(task.rows); ++i) {
                task.x.read(task.rows[static_cast<std::size_t>(i)] * k, codes);
                decode_a(task.rule, codes, a);
                for (std::int64_t j = 0; j < width; ++j) {
                    const ScalarSum sum(task, a, std::span<const Operand>(b).subspan(static_cast<std::size_t>(j) * depth, depth));
                    out.set(i * std::ssize(task.cols) + j0 + j, sum(task.plan));
                }
            }
        }
    });
    return out;
}

std::uint64_t observe_accumulator(const GemmTask& task, std::int64_t row, std::int64_t col, SumObserver& observer) {
    const std::int64_t k = task.x.cols();
    const auto depth = static_cast<std::size_t>(k);
    std::vector<std::uint32_t> codes(depth);
    std::vector<Operand> a(depth), b(depth);
    task.x.read(row * k, codes);
    decode_a(task.rule, codes, a);
    task.w.read(col * k, codes);
    decode_b(task.rule, codes, b);
    return ScalarSum(task, a, b, &observer)(task.plan);
}

}  // namespace bitreplay
