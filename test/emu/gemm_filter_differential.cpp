#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "arch/gpu.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/gemm_filter.hpp"
#include "emu/indices.hpp"
#include "test/emu/gemm_inputs.hpp"

using namespace bitreplay;

namespace {

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
    const auto rows = all_indices(x.rows()), cols = all_indices(w.rows());
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
        if (!(trace.error[at] >= 0)) ++counts.wrong_bound;
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
            for (const std::int64_t k : {16, 48, 512, 544, 1040, 2080, 2560}) {
                const std::int64_t m = k > 1000 ? 41 : 77, n = 131;
                const DotRule& rule = rule_of(gpu, instruction);
                const Tensor x = test::gemm_input(random, kind, bf16, m, k, 0),
                             w = test::gemm_input(random, kind, bf16, n, k, 1);
                check(rule, depth, walk({{0, k}}), x, w, k % 32 == 0 ? bf16 : fp16, counts);
            }
        INFO(kind << ": compared " << counts.compared << " bounded " << counts.bounded << " decided " << counts.decided
                  << " tightest " << counts.tightest);
        CHECK(counts.wrong_bound == 0);
        CHECK(counts.different == 0);
        CHECK(counts.compared >= 100000);
        // Where data is fit for it the filter must be at work, or the test shows nothing.
        if (kind == "normal" || kind == "zero-heavy" || kind == "all-maximal" || kind == "repeated" ||
            kind == "binade-edge" || kind == "zero-padded")
            CHECK(counts.decided > counts.compared / 2);
        if (kind.find("subnormal") == kind.npos && kind != "smallest" && kind != "overflow" && kind != "any-code") {
            CHECK(counts.bounded > counts.compared / 2);
            CHECK(counts.tightest > 0.005);  // a bound that is never approached would hide a missing term
        }
    }
}

TEST_CASE("gemm filter: the tables of a segment count what they say") {
    const simd::FilterKernels* const kernels = simd::filter_kernels();
    if (kernels == nullptr) return test::skip("this CPU has no AVX-512 BF16");
    test::Random random(323);
    std::int64_t compared = 0, unfit = 0;
    for (const std::string_view kind : test::gemm_kinds)
        for (const int block : {4, 8, 16})
            for (int round = 0; round < 12; ++round) {
                const std::int64_t size =
                    round == 0
                        ? simd::segment_products
                        : block *
                              (1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(512 / block))));
                const Tensor codes = test::gemm_input(random, kind, bf16, 1, size, 0);
                simd::FilterSegment got;
                kernels->describe(codes_of(codes, 0), size, block, got);
                int top = 1, count = 0;
                bool bad = false;
                double norm = 0;
                std::vector<int> lowest;  // place of the lowest bit, biased as the field is
                for (std::int64_t k = 0; k < size; ++k) {
                    const auto code = static_cast<unsigned>(codes.get(k)) & 0x7FFFU;
                    if (code == 0) continue;
                    const int field = static_cast<int>(code >> 7);
                    bad |= field == 0 || field > 127 + simd::filter_exponent;
                    top = std::max(top, field);
                    ++count;
                    lowest.push_back(field - 7 + std::countr_zero((code & 0x7F) | 0x80));
                    const double value = std::ldexp(static_cast<double>((code & 0x7F) | 0x80), field - 134);
                    norm += simd::filter_roundings(block, static_cast<int>(k) % block) * value * value;
                }
                INFO(kind << " block " << block << " size " << size);
                CHECK(got.unfit == bad);
                if (bad) {
                    ++unfit;
                    continue;
                }
                CHECK(got.top_field == top);
                CHECK(got.count == count);
                CHECK(static_cast<double>(got.norm) >= std::sqrt(norm));
                CHECK(static_cast<double>(got.norm) <= std::sqrt(norm) * (1 + 1e-4) + 1e-18);
                std::uint16_t lower[simd::depth_levels];
                got.relative_to(top + 3, lower);
                for (int i = 0; i < simd::depth_levels; ++i, compared += 2) {
                    const auto deeper = [&](int from) {
                        return std::count_if(
                            lowest.begin(), lowest.end(), [&](int place) { return from - place > i - 1; });
                    };
                    CHECK(got.deeper[i] == deeper(top));
                    CHECK(lower[i] == deeper(top + 3));
                }
            }
    CHECK(compared > 10000);
    CHECK(unfit > 36);
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
