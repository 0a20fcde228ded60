#include "emu/gemm.hpp"

#include <catch2/catch.hpp>

#include "arch/fp32.hpp"
#include "emu/io/synthetic.hpp"
#include "formats/convert.hpp"

using namespace bitreplay;

namespace {

/// One output by the obvious loops, without the evaluator under test.
std::uint64_t by_hand(const DotRule& rule, const Tensor& x, const Tensor& w, std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end) {
    std::uint64_t acc = 0;
    for (std::int64_t k = begin; k < end; k += 16) {
        std::vector<Operand> a, b;
        for (std::int64_t l = k; l < std::min(k + 16, end); ++l) {
            a.push_back(decode_operand(bf16, bf16, x.get(i * x.cols() + l)));
            b.push_back(decode_operand(bf16, bf16, w.get(j * w.cols() + l)));
        }
        acc = dot_add(rule, a, b, acc);
    }
    return acc;
}

}  // namespace

TEST_CASE("gemm: the scalar evaluator walks and merges as the plan says") {
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("wgmma.m64n8k16.f32.bf16.bf16"));
    const Tensor x = synthetic({.seed = 5, .exp2 = 0, .plus = {}, .mirror = {}, .format = bf16, .shape = {9, 200}});
    const Tensor w = synthetic({.seed = 6, .exp2 = -2, .plus = {}, .mirror = {}, .format = bf16, .shape = {21, 200}});
    const auto walk = [](std::int64_t begin, std::int64_t end) { return Plan{Plan::Kind::walk, {{begin, end}}, {}, {}}; };
    const Plan single = walk(0, 200);
    Plan split{Plan::Kind::merge, {}, {walk(0, 64), walk(64, 200)}, {}};
    Plan workspace = split;
    workspace.merge = {.order = {}, .from_zero = true, .parts = Merge::Precision::result, .sums = {}};
    Plan reversed{Plan::Kind::merge, {}, {walk(0, 64), walk(64, 128), walk(128, 200)}, {.order = Merge::Order::last_to_first, .from_zero = false, .parts = {}, .sums = Merge::Precision::result}};
    const std::vector<std::int64_t> rows{8, 0, 3}, cols{20, 1, 2, 3, 4, 5, 6, 7, 8, 19};
    const auto round = [](std::uint64_t v) { return static_cast<std::uint32_t>(convert(bf16, fp32, convert(fp32, bf16, v))); };
    int compared = 0;
    for (const Plan* plan : std::initializer_list<const Plan*>{&single, &split, &workspace, &reversed}) {
        const Tensor acc = gemm_accumulators_scalar({rule, 16, *plan, x, w, bf16, rows, cols});
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (std::size_t j = 0; j < cols.size(); ++j) {
                const auto part = [&](std::int64_t b, std::int64_t e) { return static_cast<std::uint32_t>(by_hand(rule, x, w, rows[i], cols[j], b, e)); };
                std::uint32_t want = part(0, 200);
                if (plan == &split) want = f32::add(part(0, 64), part(64, 200));
                if (plan == &workspace) want = f32::add(f32::add(0, round(part(0, 64))), round(part(64, 200)));
                if (plan == &reversed) want = round(f32::add(round(f32::add(round(part(128, 200)), part(64, 128))), part(0, 64)));
                CHECK(acc.get(static_cast<std::int64_t>(i * cols.size() + j)) == want);
                ++compared;
            }
    }
    CHECK(compared == 4 * 30);
}
