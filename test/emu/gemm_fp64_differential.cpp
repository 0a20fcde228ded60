#include "emu/gemm_fp64.hpp"

#include <catch2/catch.hpp>

#include <functional>

#include "arch/gpu.hpp"
#include "emu/indices.hpp"
#include "emu/parallel.hpp"
#include "reduction_trees/recipe.hpp"
#include "test/emu/gemm_inputs.hpp"
#include "test/oracle/rounding.hpp"

using namespace bitreplay;

namespace {

Plan walk(std::vector<Range> ranges) {
    return {.kind = Plan::Kind::walk, .ranges = std::move(ranges), .parts = {}, .merge = {}};
}
Plan merge(std::vector<Plan> parts, Merge how = {}) {
    return {.kind = Plan::Kind::merge, .ranges = {}, .parts = std::move(parts), .merge = how};
}

Plan plan_of(const std::string& recipe, const RecipeValues& recorded, std::int64_t k) {
    const Recipe& found = find_recipe(recipe);
    return make_plan(found, resolve(found, recorded, {}, 64), k);
}
RecipeValue n(std::int64_t value) { return value; }

/// FP64 sums of x[k]·w[k] by rationals, in orders that are written down here.
struct ExactSum {
    std::vector<std::uint64_t> x, w;

    static oracle::Rational value(std::uint64_t code) { return oracle::rational(oracle::value_of(fp64, code)); }
    static std::uint64_t add(std::uint64_t a, std::uint64_t b) {
        return oracle::round_rational(fp64, oracle::Rational(value(a) + value(b)), {});
    }
    std::uint64_t fma(std::size_t k, std::uint64_t acc) const {
        return oracle::round_rational(fp64, oracle::Rational(value(x[k]) * value(w[k]) + value(acc)), {});
    }

    /// `count` lanes that take `vector` products in turn.
    std::vector<std::uint64_t> lanes(std::size_t count, std::size_t vector) const {
        std::vector<std::uint64_t> out(count);
        for (std::size_t k = 0; k < x.size(); ++k) {
            std::uint64_t& lane = out[k / vector % count];
            lane = fma(k, lane);
        }
        return out;
    }
    static std::uint64_t halved(std::vector<std::uint64_t> terms) {
        for (std::size_t half = terms.size() / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) terms[i] = add(terms[i], terms[i + half]);
        return terms.front();
    }
    /// Parts one after the other, each in blocks that start from zero; sums from left to right.
    std::uint64_t parts(std::size_t count, std::size_t block) const {
        const std::size_t size = (x.size() + count - 1) / count;
        std::uint64_t sum = 0;
        for (std::size_t begin = 0; begin < x.size(); begin += size) {
            std::uint64_t part = 0;
            for (std::size_t k = begin; k < std::min(begin + size, x.size());) {
                std::uint64_t acc = 0;
                const std::size_t end = std::min({k + block, begin + size, x.size()});
                for (; k < end; ++k) acc = fma(k, acc);
                part = add(part, acc);
            }
            sum = add(sum, part);
        }
        return sum;
    }
    /// 128 threads of each block halve, one block of 128 threads sums the blocks.
    std::uint64_t dot(std::size_t blocks) const {
        const std::vector<std::uint64_t> threads = lanes(128 * blocks, 1);
        std::vector<std::uint64_t> last(128);
        for (std::size_t b = 0; b < blocks; ++b) {
            const auto first = threads.begin() + static_cast<std::ptrdiff_t>(128 * b);
            last[b % 128] = add(last[b % 128], halved({first, first + 128}));
        }
        for (const std::size_t half : {64U, 32U})
            for (std::size_t i = 0; i < half; ++i) last[i] = add(last[i], last[i + half]);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            std::uint64_t four = last[i];
            for (std::size_t j = 1; j < 8; ++j) four = add(four, last[i + 4 * j]);
            sum = i == 0 ? four : add(sum, four);
        }
        return sum;
    }
};

}  // namespace

TEST_CASE("gemm: FP64 chains equal the scalar definition, plan by plan, NaN included") {
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f64.f64.f64.f64"));
    REQUIRE(is_fp64_chain(rule));
    REQUIRE_FALSE(is_fp64_chain(find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f32.bf16.bf16.f32"))));
    test::Random random(742);
    std::int64_t compared = 0, special = 0, inexact = 0;
    for (const std::string_view kind : test::gemm_kinds)
        for (const std::int64_t k : {1, 7, 40, 99}) {
            const Tensor x = test::gemm_input(random, kind, fp64, 5, k, 0),
                         w = test::gemm_input(random, kind, fp64, 19, k, 1);
            const std::int64_t third = k / 3, half = k / 2;
            const Plan plans[] = {
                walk({{0, k}}),
                merge({walk({{0, third}}), walk({{third, k}})}),
                merge({walk({{0, third}, {half, k}}), walk({{third, half}})}),
                merge({walk({{0, third}}), merge({walk({{third, half}}), walk({{half, k}})})},
                      {.order = Merge::Order::last_to_first, .from_zero = false, .parts = {}, .sums = {}}),
                merge({walk({{0, half}}), walk({{half, k}})},
                      {.order = {},
                       .from_zero = true,
                       .parts = Merge::Precision::result,
                       .sums = Merge::Precision::result})};
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
    CHECK(compared == std::ssize(test::gemm_kinds) * 4 * 5 * 3 * 19);
    CHECK(special > 100);
    CHECK(inexact > 1000);
}

TEST_CASE("gemm: FP64 on CUDA cores equals the scalar definition for every order, operand and thread count") {
    const DotRule* const rule = cuda_core_rule(fp64, fp64);
    REQUIRE(rule != nullptr);
    REQUIRE(is_fp64_chain(*rule));
    REQUIRE(cuda_core_rule(fp64, fp32) == nullptr);
    test::Random random(745);
    std::int64_t compared = 0, special = 0;
    for (const std::string_view kind : test::gemm_kinds)
        for (const std::int64_t k : {1, 77, 300}) {
            const Plan plans[] = {plan_of("cublas.gemv_fp64", {{"custom_option", n(28)}}, k),
                                  plan_of("cublas.gemv_fp64", {{"custom_option", n(39)}, {"split_k", n(3)}}, k),
                                  plan_of("cublas.gemv_fp64", {{"custom_option", n(3)}}, k),
                                  plan_of("cublas.gemv_nsp_fp64", {{"threads_k", n(32)}}, k),
                                  plan_of("cublas.gemm_sn_tn_fp64", {}, k),
                                  plan_of("cublas.dot_fp64", {{"split_k", n(2)}, {"strided", n(0)}}, k),
                                  {.kind = Plan::Kind::walk,
                                   .ranges = {{0, k}},
                                   .parts = {},
                                   .merge = {},
                                   .lanes = {},
                                   .from_product = true}};
            const Tensor x = test::gemm_input(random, kind, fp64, 3, k, 0),
                         w = test::gemm_input(random, kind, fp64, 10, k, 1);
            const std::vector<std::int64_t> rows{2, 0}, cols = all_indices(10);
            for (const Plan& plan : plans) {
                INFO(kind << " K=" << k << " " << to_string(plan).substr(0, 200));
                const GemmTask task{*rule, 1, plan, x, w, fp64, rows, cols};
                const Tensor slow = gemm_accumulators_scalar(task);
                for (const int threads : {1, 3}) {
                    set_threads(threads);
                    const Tensor fast = gemm_accumulators(task);
                    for (std::int64_t i = 0; i < slow.size(); ++i) {
                        CHECK(fast.get(i) == slow.get(i));
                        special += (slow.get(i) & fp64.infinity()) == fp64.infinity() ? 1 : 0;
                        ++compared;
                    }
                }
            }
        }
    set_threads(0);
    CHECK(compared == std::ssize(test::gemm_kinds) * 3 * 7 * 2 * 20);
    CHECK(special > 100);
}

TEST_CASE("gemm: FP64 on CUDA cores equals exact arithmetic in orders written down by hand") {
    test::Random random(746);
    std::int64_t compared = 0, inexact = 0;
    for (const std::string_view kind : {"normal", "cancellation", "zero-heavy"})
        for (const std::int64_t k : {1, 50, 333, 700}) {
            const Tensor x = test::gemm_input(random, kind, fp64, 1, k, 0),
                         w = test::gemm_input(random, kind, fp64, 3, k, 1);
            const auto slice = [&](std::int64_t count) {
                return static_cast<std::size_t>(std::min<std::int64_t>(32, (k + count - 1) / count));
            };
            const std::pair<Plan, std::function<std::uint64_t(const ExactSum&)>> orders[] = {
                {plan_of("cublas.gemv_fp64", {{"custom_option", n(30)}}, k),
                 [&](const ExactSum& sum) { return ExactSum::halved(sum.lanes(4, slice(4))); }},
                {plan_of("cublas.gemv_fp64", {{"custom_option", n(26)}}, k),
                 [&](const ExactSum& sum) { return ExactSum::halved(sum.lanes(16, slice(16))); }},
                {plan_of("cublas.gemv_fp64", {{"custom_option", n(93)}}, k),
                 [](const ExactSum& sum) { return ExactSum::halved(sum.lanes(32, 1)); }},
                {plan_of("cublas.gemv_fp64", {{"custom_option", n(1)}}, k),
                 [](const ExactSum& sum) { return sum.parts(2, 256); }},
                {plan_of("cublas.gemv_nsp_fp64", {{"threads_k", n(32)}}, k),
                 [](const ExactSum& sum) { return ExactSum::halved(sum.lanes(32, 4)); }},
                {plan_of("cublas.gemm_sn_nn_fp64", {{"parts", n(4)}, {"custom_option", n(1)}}, k),
                 [](const ExactSum& sum) { return sum.parts(4, 128); }},
                {plan_of("cublas.magma_gemmex_fp64", {}, k),
                 [](const ExactSum& sum) { return sum.lanes(1, 1).front(); }},
                {plan_of("cublas.dot_fp64", {{"split_k", n(3)}, {"strided", n(0)}}, k),
                 [](const ExactSum& sum) { return sum.dot(3); }}};
            const std::vector<std::int64_t> rows{0}, cols = all_indices(3);
            for (const auto& [plan, exact] : orders) {
                const Tensor out = gemm_accumulators({*cuda_core_rule(fp64, fp64), 1, plan, x, w, fp64, rows, cols});
                for (std::int64_t j = 0; j < 3; ++j) {
                    ExactSum sum;
                    for (std::int64_t i = 0; i < k; ++i) {
                        sum.x.push_back(x.get(i));
                        sum.w.push_back(w.get(j * k + i));
                    }
                    INFO(kind << " K=" << k << " " << to_string(plan).substr(0, 200));
                    CHECK(out.get(j) == exact(sum));
                    inexact += (out.get(j) & 1) != 0 ? 1 : 0;
                    ++compared;
                }
            }
        }
    CHECK(compared == 3 * 4 * 8 * 3);
    CHECK(inexact > 50);
}
