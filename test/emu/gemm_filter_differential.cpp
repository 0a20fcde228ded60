#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <numeric>

#include "arch/gpu.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/gemm_filter.hpp"
#include "test/emu/gemm_inputs.hpp"

using namespace bitreplay;

namespace {

std::vector<std::int64_t> every(std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), 0);
    return out;
}

struct Counts {
    std::int64_t compared = 0, bounded = 0, decided = 0, wrong_bound = 0, different = 0;
    double tightest = 0;  ///< largest |exact - value| / error seen
};

/// Both paths on one product: the bound must hold for every output, and the filtered result must equal the rounded
/// exact one.
void check(const DotRule& rule,
           int depth,
           const Plan& plan,
           const Tensor& x,
           const Tensor& w,
           const Format& out,
           Counts& counts) {
    const auto rows = every(x.rows()), cols = every(w.rows());
    GemmTask task{rule, depth, plan, x, w, out, rows, cols};
    const Tensor exact = gemm_accumulators(task);
    const auto shape = walk_shape(rule, depth);
    const auto layout = filter_layout(task, *shape, walk_layout(plan, *shape, depth, x.cols()));
    REQUIRE(layout.has_value());
    const FilterColumns columns(w, cols, *layout, shape->block);
    FilterTrace trace;
    double redone = 0;
    const Tensor rounded = gemm_filtered(task, out, *layout, *shape, columns, redone, &trace);
    for (std::int64_t i = 0; i < exact.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto code = static_cast<std::uint32_t>(exact.get(i));
        ++counts.compared;
        if (rounded.get(i) != convert(fp32, out, code)) ++counts.different;
        if (!(trace.error[at] < std::numeric_limits<float>::infinity())) continue;
        ++counts.bounded;
        const double distance =
            std::abs(static_cast<double>(std::bit_cast<float>(code)) - static_cast<double>(trace.value[at]));
        if (!(distance <= static_cast<double>(trace.error[at])))
            ++counts.wrong_bound;
        else
            counts.tightest = std::max(counts.tightest, distance / static_cast<double>(trace.error[at]));
    }
    counts.decided += static_cast<std::int64_t>((1 - redone) * static_cast<double>(exact.size()));
}

const DotRule& rule_of(std::string_view gpu, std::string_view instruction) {
    return find_gpu(gpu).dot_rule(parse_instruction(instruction));
}
Plan walk(std::vector<Range> ranges) {
    return {.kind = Plan::Kind::walk, .ranges = std::move(ranges), .parts = {}, .merge = {}};
}

}  // namespace

TEST_CASE("gemm filter: the bound holds and the result is exact on every kind of data") {
    if (simd::filter_kernels() == nullptr) return test::skip("this CPU has no AVX-512 BF16");
    test::Random random(321);
    for (const std::string_view kind : test::gemm_kinds) {
        Counts counts;
        for (const auto& [gpu, instruction, depth] : {std::tuple{"h200", "wgmma.m64n64k16.f32.bf16.bf16", 16},
                                                      std::tuple{"a100", "mma.m16n8k16.f32.bf16.bf16.f32", 16}})
            for (const std::int64_t k : {16, 48, 512, 544, 1040, 2560}) {
                const std::int64_t m = k > 1000 ? 37 : 69, n = 131;
                const DotRule& rule = rule_of(gpu, instruction);
                const Tensor x = test::gemm_input(random, kind, bf16, m, k, 0),
                             w = test::gemm_input(random, kind, bf16, n, k, 1);
                check(rule, depth, walk({{0, k}}), x, w, k % 32 == 0 ? bf16 : fp16, counts);
            }
        INFO(kind << ": compared " << counts.compared << " bounded " << counts.bounded << " decided " << counts.decided
                  << " tightest " << counts.tightest);
        CHECK(counts.wrong_bound == 0);
        CHECK(counts.different == 0);
        CHECK(counts.compared >= 90000);
        // Where data is fit for it the filter must be at work, or the test shows nothing.
        if (kind == "normal" || kind == "zero-heavy" || kind == "all-maximal" || kind == "repeated")
            CHECK(counts.decided > counts.compared / 2);
        if (kind != "subnormal" && kind != "overflow" && kind != "any-code") {
            CHECK(counts.bounded > counts.compared / 2);
            CHECK(counts.tightest > 0.005);  // a bound that is never approached would hide a missing term
        }
    }
}

TEST_CASE("gemm filter: split sums") {
    if (simd::filter_kernels() == nullptr) return test::skip("this CPU has no AVX-512 BF16");
    test::Random random(322);
    Counts counts;
    const auto merge = [](std::vector<Plan> parts, Merge how) {
        return Plan{.kind = Plan::Kind::merge, .ranges = {}, .parts = std::move(parts), .merge = how};
    };
    for (const Plan& plan : {merge({walk({{0, 256}}), walk({{256, 512}}), walk({{512, 640}})}, {}),
                             merge({walk({{0, 320}}), walk({{320, 640}})}, {.order = Merge::Order::last_to_first}),
                             merge({walk({{0, 320}}), walk({{320, 640}})}, {.from_zero = true})})
        for (const std::string_view kind : {"normal", "cancellation", "zero-heavy", "nan-inf"}) {
            const Tensor x = test::gemm_input(random, kind, bf16, 40, 640, 0),
                         w = test::gemm_input(random, kind, bf16, 100, 640, 1);
            check(rule_of("h200", "wgmma.m64n64k16.f32.bf16.bf16"), 16, plan, x, w, bf16, counts);
        }
    CHECK(counts.wrong_bound == 0);
    CHECK(counts.different == 0);
    CHECK(counts.compared == 3 * 4 * 4000);
    CHECK(counts.decided > counts.compared / 3);
}
