#include "emu/gemm.hpp"

#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

/// One output by the scalar definition, for reduce().
class ScalarSum {
public:
    using Value = std::uint64_t;

    ScalarSum(const GemmTask& task, std::span<const Operand> a, std::span<const Operand> b, SumObserver* observer = nullptr)
        : task_(task), a_(a), b_(b), observer_(observer) {}

    Value zero() const { return 0; }

    Value walk(const Plan& plan, std::int64_t) const {
        Value acc = plan.from_product ? task_.rule.types.d.sign_mask() : 0;  // -0 leaves the first product as it is
        for (const auto& [begin, end] : plan.ranges) chain(begin, end, acc);
        return acc;
    }

    Value lanes(const Plan& plan) const { return reduce_chains(plan, *this); }

    void begin(const Plan& plan) const {
        if (observer_ != nullptr) observer_->begin(plan);
    }
    void merged(Value part, Value sum) const {
        if (observer_ != nullptr) observer_->merged(part, sum);
    }
    void end(Value value) const {
        if (observer_ != nullptr) observer_->end(value);
    }

    /// An accumulator rounded to the kernel's output type and widened again.
    void round(Value& acc) const {
        const Format& wide = task_.rule.types.d;
        if (task_.result != wide) acc = convert(task_.result, wide, convert(wide, task_.result, acc));
    }

    /// One IEEE addition in the accumulator's format.
    void add(Value& x, Value y) const {
        const Format& wide = task_.rule.types.d;
        if (wide == fp64) {
            x = f64::add(x, y);
            return;
        }
        const auto single = [&](Value code) { return static_cast<std::uint32_t>(convert(wide, fp32, code)); };
        x = convert(fp32, wide, f32::add(single(x), single(y)));
    }

    /// Continues a chain over products [begin, end).
    void chain(std::int64_t begin, std::int64_t end, Value& acc) const {
        const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
        const auto a = a_.subspan(first, count), b = b_.subspan(first, count);
        acc = observer_ != nullptr ? dot_walk(task_.rule, task_.instruction_k, a, b, acc, begin, *observer_)
                                   : dot_walk(task_.rule, task_.instruction_k, a, b, acc);
    }

private:
    const GemmTask& task_;
    std::span<const Operand> a_, b_;
    SumObserver* observer_;
};

/// Row `row` of a matrix as operands of the rule's a, or of its b.
void decode_row(const DotRule& rule, bool is_a, const Tensor& matrix, std::int64_t row, std::span<Operand> out) {
    const std::int64_t k = matrix.cols();
    if (matrix.format() == fp64) {  // its codes are too long for decode_a
        for (std::int64_t i = 0; i < k; ++i)
            out[static_cast<std::size_t>(i)] = decode_operand(fp64, fp64, matrix.get(row * k + i));
        return;
    }
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(k));
    matrix.read(row * k, codes);
    is_a ? decode_a(rule, codes, out) : decode_b(rule, codes, out);
}

}  // namespace

Tensor gemm_accumulators_scalar(const GemmTask& task) {
    const auto depth = static_cast<std::size_t>(task.x.cols());
    Tensor out(task.rule.types.d, {std::ssize(task.rows), std::ssize(task.cols)});
    constexpr std::int64_t block = 8;  // columns decoded together; their operands stay in the second-level cache
    const std::int64_t blocks = (std::ssize(task.cols) + block - 1) / block;
    parallel_for(blocks, 1, [&](std::int64_t first_block, std::int64_t last_block) {
        std::vector<Operand> a(depth), b(depth * block);
        for (std::int64_t j0 = first_block * block; j0 < std::min(last_block * block, std::ssize(task.cols)); j0 += block) {
            const std::int64_t width = std::min(block, std::ssize(task.cols) - j0);
            for (std::int64_t j = 0; j < width; ++j)
                decode_row(task.rule, false, task.w, task.cols[static_cast<std::size_t>(j0 + j)],
                           std::span(b).subspan(static_cast<std::size_t>(j) * depth, depth));
            for (std::int64_t i = 0; i < std::ssize(task.rows); ++i) {
                decode_row(task.rule, true, task.x, task.rows[static_cast<std::size_t>(i)], a);
                for (std::int64_t j = 0; j < width; ++j) {
                    const ScalarSum sum(task, a, std::span<const Operand>(b).subspan(static_cast<std::size_t>(j) * depth, depth));
                    out.set(i * std::ssize(task.cols) + j0 + j, reduce(task.plan, sum));
                }
            }
        }
    });
    return out;
}

std::uint64_t observe_accumulator(const GemmTask& task, std::int64_t row, std::int64_t col, SumObserver& observer) {
    const auto depth = static_cast<std::size_t>(task.x.cols());
    std::vector<Operand> a(depth), b(depth);
    decode_row(task.rule, true, task.x, row, a);
    decode_row(task.rule, false, task.w, col, b);
    return reduce(task.plan, ScalarSum(task, a, b, &observer));
}

}  // namespace bitreplay
