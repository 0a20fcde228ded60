#include <algorithm>

#include "emu/gemm_pack.hpp"

namespace bitreplay {
namespace {

/// The largest |sum| of a block in units of its window, against the range of int32.
std::optional<std::uint32_t> wrap_limit(const DotRule& rule, int block, int align_bits) {
    const auto largest = [](const Format& f) {
        return 2.0 - 1.0 / static_cast<double>(std::uint64_t{1} << f.fraction_bits);
    };
    const double unit = static_cast<double>(std::uint64_t{1} << align_bits);
    const double product = largest(rule.unit_a) * largest(rule.unit_b) * unit, start = 2.0 * unit;
    const double whole = block * product + start;
    if (whole < 0x1p31) return 0;
    if (block / 2 * product + start >= 0x1p31 || whole >= 0x1p32 - 1) return std::nullopt;
    return static_cast<std::uint32_t>(0x1p32 - whole);
}

}  // namespace

std::optional<simd::WalkShape> walk_shape(const DotRule& rule, int instruction_k) {
    const DotStep& first = rule.steps.front();
    simd::WalkShape shape;
    shape.align_bits = first.align_bits;
    shape.min_exponent_a = rule.unit_a.min_exponent();
    shape.min_exponent_b = rule.unit_b.min_exponent();
    if (first.kind != DotStep::Kind::fused_dot || rule.types.c != rule.types.d) return std::nullopt;
    if (rule.unit_a.fraction_bits > 10 || rule.unit_b.fraction_bits > 10 || first.align_bits > 25) return std::nullopt;
    const bool fp32_result = rule.types.d == fp32 && first.rounding == Rounding::toward_zero;
    if (fp32_result && first.keep == 23)
        shape.result = simd::Result::fp32;
    else if (fp32_result && first.keep == 13)
        shape.result = simd::Result::e8m13;
    else if (rule.types.d == fp16 && first.rounding == Rounding::nearest_even && first.keep == 10)
        shape.result = simd::Result::fp16;
    else
        return std::nullopt;

    int block = 0;
    if (rule.steps.size() == 1 && first.from == DotStep::From::c && first.select == DotStep::Select::all) {
        block = std::min(first.block, instruction_k);
        if (instruction_k % block != 0) return std::nullopt;
        shape.block = block;
    } else {
        if (rule.steps.size() != 3 || instruction_k % 4 != 0) return std::nullopt;
        DotStep second = first;
        second.select = DotStep::Select::high_pairs;
        second.from = DotStep::From::last;
        if (first.select != DotStep::Select::low_pairs || first.from != DotStep::From::zero ||
            rule.steps[1] != second || rule.steps[2].kind != DotStep::Kind::add_c || instruction_k / 2 > first.block)
            return std::nullopt;
        block = instruction_k / 2;
        shape.block = instruction_k;
        shape.halves = true;
    }
    const auto limit = wrap_limit(rule, block, first.align_bits);
    if (!limit) return std::nullopt;
    shape.wrap_limit = *limit;
    return shape;
}

WalkLayout walk_layout(const Plan& plan, const simd::WalkShape& shape, int instruction_k, std::int64_t depth) {
    WalkLayout out;
    const std::int64_t block = shape.block;
    const auto visit = [&](const auto& self, const Plan& node) -> void {
        for (const Plan& part : node.parts) self(self, part);
        if (node.kind != Plan::Kind::walk) return;
        const std::int64_t first = out.blocks;
        for (const Range& range : node.ranges) {
            const std::int64_t start = std::ssize(out.source);
            const std::int64_t count = (range.end - range.begin + block - 1) / block;
            out.source.resize(static_cast<std::size_t>(start + count * block), -1);
            std::int64_t low = start, high = start;
            for (std::int64_t k = range.begin; k < range.end; ++k) {
                const std::int64_t within = k - range.begin;
                std::int64_t at = start + within;
                if (shape.halves) {
                    if (within % instruction_k == 0) low = start + within, high = low + instruction_k / 2;
                    at = within % 4 < 2 ? low++ : high++;
                }
                out.source[static_cast<std::size_t>(at)] = k;
            }
            out.blocks += count;
        }
        out.leaves.push_back({first, out.blocks - first});
    };
    visit(visit, plan);
    out.identity = std::ssize(out.source) == depth;
    for (std::int64_t k = 0; k < std::ssize(out.source) && out.identity; ++k)
        out.identity = out.source[static_cast<std::size_t>(k)] == k;
    return out;
}

}  // namespace bitreplay
