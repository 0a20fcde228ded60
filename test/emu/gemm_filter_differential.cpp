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
std::uint64_t power_of_two(bool negative, int exponent) {
    return (negative ? 0x8000U : 0U) | static_cast<std::uint64_t>(exponent + 127) << 7;
}

/// One side of a product whose first operands, product 0, decide how much of the other products is lost.
struct Depths {
    int first;  ///< exponent of the first operand
    int top;    ///< largest exponent of the others
    int span;   ///< between the largest and the least of these
    int low;    ///< significand bits of theirs that are zero
};
Tensor depths(test::Random& random, std::int64_t rows, std::int64_t k, const Depths& side) {
    Tensor out(bf16, {rows, k});
    const bool signs = random.below(2) == 0, few = random.below(2) == 0;
    for (std::int64_t i = 0; i < out.size(); ++i) {
        const int below = few ? (random.below(8) == 0 ? 0 : side.span)
                              : static_cast<int>(random.below(static_cast<std::uint64_t>(side.span) + 1));
        const std::uint64_t fraction = random.below(128) >> side.low << side.low;
        out.set(i,
                i % k == 0 ? power_of_two(false, side.first)
                           : power_of_two(signs && random.below(2) == 0, side.top - below) | fraction);
    }
    return out;
}

float block_sum(const std::uint16_t* a, const std::uint16_t* b, int block) {
    const auto value = [](std::uint16_t code) { return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16); };
    const int chains = simd::filter_chains(block);
    float chain[4] = {};
    for (int i = 0; i < block; i += 2) {
        float& sum = chain[i / 2 % chains];
        sum = std::fma(value(a[i]), value(b[i]), std::fma(value(a[i + 1]), value(b[i + 1]), sum));
    }
    return chains == 4 ? (chain[0] + chain[1]) + (chain[2] + chain[3]) : chain[0] + chain[1];
}

float add_toward_zero(float x, float y) {
    const float sum = x + y, rest = sum - x, lost = (x - (sum - rest)) + (y - rest);
    return lost != 0 && (lost < 0) != (sum < 0) ? std::nextafter(sum, 0.0F) : sum;
}

struct Derived {
    float value = 0;
    double bound = 0;
};
/// v and the bound of D (FILTER.md, step 7) for one walk, with the counts n and the exponent ep of its own products: no
/// larger than the filter's, which come from tables. Operands and sums must be far from underflow.
Derived derive(const std::uint16_t* a, const std::uint16_t* b, std::int64_t k, const simd::WalkShape& shape) {
    const auto value = [](std::uint16_t code) {
        return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16));
    };
    const auto exponent = [](std::uint16_t code) { return static_cast<int>(code >> 7 & 0xFF) - 127; };
    const auto lowest = [&](std::uint16_t code) { return exponent(code) - 7 + std::countr_zero(code | 0x80U); };
    const auto binade = [](float x) {  // 2^e'
        return static_cast<double>(
            std::bit_cast<float>((std::bit_cast<std::uint32_t>(std::abs(x)) + (1U << 17)) & 0x7F800000U));
    };
    const auto unit = [&](double power) { return std::ldexp(power, -shape.align_bits); };
    Derived out;
    double sizes = 0, rest = 0;  // S; the other terms
    for (std::int64_t begin = 0; begin < k; begin += simd::segment_products) {
        const std::int64_t end = std::min<std::int64_t>(begin + simd::segment_products, k);
        double largest = binade(out.value), product = 0, norm_a = 0, norm_b = 0;
        for (std::int64_t i = begin; i < end; i += shape.block) {
            out.value = add_toward_zero(out.value, block_sum(a + i, b + i, shape.block));
            sizes += binade(out.value);
            largest = std::max(largest, binade(out.value));
        }
        for (std::int64_t i = begin; i < end; ++i) {
            product = std::max(product, std::ldexp(1.0, exponent(a[i]) + exponent(b[i])));
            const int roundings = simd::filter_roundings(shape.block, static_cast<int>(i % shape.block));
            norm_a += roundings * value(a[i]) * value(a[i]);
            norm_b += roundings * value(b[i]) * value(b[i]);
        }
        largest = std::max(largest, product);
        int quarters = 0;  // 2 n(J) + n(J + 1) + n(J + 2)
        for (std::int64_t i = begin; i < end; ++i) {
            const int deep = std::ilogb(unit(largest)) - lowest(a[i]) - lowest(b[i]);
            quarters += deep > 2 ? 4 : deep == 2 ? 3 : deep == 1 ? 2 : 0;
        }
        rest += std::ldexp(std::sqrt(norm_a * norm_b), -24) + quarters * unit(largest) / 4 +
                static_cast<double>((end - begin) / shape.block) * unit(product);
    }
    const auto blocks = static_cast<double>(k / shape.block);
    out.bound = (std::ldexp(sizes, -23) + rest) / (1 - blocks * (std::exp2(-15.98) + std::ldexp(12.0, -24)));
    return out;
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

// |exact - value| stays so far below the bound that the tests above miss a term that is too small. This one does not.
TEST_CASE("gemm filter: the error is what the derivation asks for") {
    if (simd::filter_kernels() == nullptr) return test::skip("this CPU has no AVX-512 BF16");
    test::Random random(324);
    const auto between = [&](int least, int most) {
        return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least + 1)));
    };
    std::int64_t compared = 0, wrong_value = 0, too_small = 0, sharp = 0;
    for (int round = 0; round < 2000; ++round) {
        DotRule rule = rule_of("h200", "wgmma.m64n64k16.f32.bf16.bf16");
        rule.steps[0].block = 4 << between(0, 2);
        rule.steps[0].align_bits = between(23, 25);
        const std::int64_t k = round % 4 == 0 ? 16 * between(33, 80) : 16 * between(1, 12), m = 3, n = 40;
        const int first = between(-10, 20), rest = first - rule.steps[0].align_bits + between(-6, 45);
        const int one = between(-5, 5), top = between(-8, 8);
        const auto side = [&](std::int64_t count, int exponent, int largest) {
            const int span = between(0, 1) * between(0, 33), low = std::min(7, between(0, 11));
            return depths(random, count, k, {.first = exponent, .top = largest, .span = span, .low = low});
        };
        Tensor x = side(m, one, top), w = side(n, first - one, std::min(rest, first) - top);
        if (k > 512 &&
            between(0, 1) == 0)  // a sum that falls in the first block of a segment by products that are smaller
            for (std::int64_t i = 0, block = rule.steps[0].block; i < block - 1; ++i) {
                for (std::int64_t row = 0; row < m; ++row)
                    x.set(row * k + 512 + i, power_of_two(true, one - std::ilogb(static_cast<double>(block))));
                for (std::int64_t col = 0; col < n; ++col) w.set(col * k + 512 + i, power_of_two(false, first - one));
            }
        const auto rows = all_indices(m), cols = all_indices(n);
        const Plan plan = walk({{0, k}});
        const GemmTask task{rule, 16, plan, x, w, bf16, rows, cols};
        const auto shape = walk_shape(rule, 16);
        const auto layout = filter_layout(task, *shape, walk_layout(plan, *shape, 16, k));
        REQUIRE(layout.has_value());
        FilterTrace trace;
        double redone = 0;
        gemm_filtered(task, bf16, *layout, *shape, FilterColumns(w, cols, *layout, shape->block), redone, &trace);
        for (std::int64_t i = 0; i < m * n; ++i) {
            const float error = trace.error[static_cast<std::size_t>(i)];
            if (!(error < std::numeric_limits<float>::infinity())) continue;
            const Derived derived = derive(codes_of(x, i / n), codes_of(w, i % n), k, *shape);
            ++compared;
            if (derived.value != trace.value[static_cast<std::size_t>(i)]) ++wrong_value;
            if (!(static_cast<double>(error) >= derived.bound)) ++too_small;
            if (static_cast<double>(error) <= derived.bound * 1.01) ++sharp;
        }
    }
    INFO("compared " << compared << " sharp " << sharp);
    CHECK(wrong_value == 0);
    CHECK(too_small == 0);
    CHECK(compared > 200000);
    CHECK(sharp > 300);
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
