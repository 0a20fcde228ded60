#include "emu/gemm_fp64.hpp"

#include <catch2/catch.hpp>

#include "arch/gpu.hpp"
#include "emu/indices.hpp"
#include "test/emu/gemm_inputs.hpp"

using namespace bitreplay;

namespace {

Plan walk(std::vector<Range> ranges) { return {.kind = Plan::Kind::walk, .ranges = std::move(ranges), .parts = {}, .merge = {}}; }
Plan merge(std::vector<Plan> parts, Merge how = {}) {
    return {.kind = Plan::Kind::merge, .ranges = {}, .parts = std::move(parts), .merge = how};
}

}  // namespace

TEST_CASE("gemm: FP64 chains equal the scalar definition, plan by plan, NaN included") {
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f64.f64.f64.f64"));
    REQUIRE(is_fp64_chain(rule));
    REQUIRE_FALSE(is_fp64_chain(find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f32.bf16.bf16.f32"))));
    test::Random random(742);
    std::int64_t compared = 0, special = 0, inexact = 0;
    for (const std::string_view kind : test::gemm_kinds)
        for (const std::int64_t k : {1, 7, 40, 99}) {
            const Tensor x = test::gemm_input(random, kind, fp64, 5, k, 0), w = test::gemm_input(random, kind, fp64, 19, k, 1);
            const std::int64_t third = k / 3, half = k / 2;
            const Plan plans[] = {walk({{0, k}}),
                                  merge({walk({{0, third}}), walk({{third, k}})}),
                                  merge({walk({{0, third}, {half, k}}), walk({{third, half}})}),
                                  merge({walk({{0, third}}), merge({walk({{third, half}}), walk({{half, k}})})},
                                        {.order = Merge::Order::last_to_first, .from_zero = false, .parts = {}, .sums = {}}),
                                  merge({walk({{0, half}}), walk({{half, k}})},
                                        {.order = {}, .from_zero = true, .parts = Merge::Precision::result, .sums = Merge::Precision::result})};
            const std::vector<std::int64_t> rows{4, 0, 2}, cols = all_indices(19);
            for (const Plan& plan : plans) {
                const GemmTask task{rule, 16, plan, x, w, fp64, rows, cols};
                const Tensor fast = gemm_accumulators(task), slow = gemm_accumulators_scalar(task);
                for (std::int64_t i = 0; i < slow.size(); ++i) {
                    CHECK(fast.get(i) == slow.get(i));
                    special += (slow.get(i) & fp64.infinity()) == fp64.infinity() ? 1 : 0;
                    inexact += (slow.get(i) & 1) != 0 ? 1 : 0;
                    ++compared;
                }
            }
        }
    CHECK(compared == 12 * 4 * 5 * 3 * 19);
    CHECK(special > 100);
    CHECK(inexact > 1000);
}
