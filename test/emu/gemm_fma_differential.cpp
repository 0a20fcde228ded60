// The vector engine for multiply-add chains against the scalar definition, and the scalar definition against the
// arithmetic of arch/fp32.hpp.

#include <catch2/catch.hpp>

#include <map>

#include "arch/fp32.hpp"
#include "emu/gemm.hpp"
#include "emu/indices.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "reduction_trees/recipe.hpp"
#include "test/emu/gemm_inputs.hpp"

using namespace bitreplay;

namespace {

Plan plan_of(const std::string& recipe, const RecipeValues& recorded, std::int64_t k) {
    const Recipe& found = find_recipe(recipe);
    return make_plan(found, resolve(found, recorded, {}, 32), k);
}

std::vector<Plan> plans_of(std::int64_t k) {
    const auto n = [](std::int64_t value) -> RecipeValue { return value; };
    return {
        plan_of("cublas.simt_sgemm", {{"split_k", n(1)}}, k),
        plan_of("cublas.simt_sgemm", {{"split_k", n(3)}}, k),
        plan_of("cublas.simt_sgemm", {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, k),
        plan_of("cublas.ffma", {{"split_k", n(5)}, {"custom_option", n(1)}}, k),
        plan_of("cublas.sgemm_largek", {{"split_k", n(1)}}, k),
        plan_of("cublas.gemm_sn_tn", {}, k),
        plan_of("cublas.gemm_sn_nn", {{"parts", n(4)}, {"custom_option", n(1)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(75)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(74)}, {"split_k", n(3)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(56)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(35)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(111)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(5)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(1)}, {"split_k", n(3)}}, k),
        plan_of("cublas.gemv_nsp", {{"threads_k", n(24)}}, k),
        plan_of("cublas.gemv_nsp", {{"threads_k", n(12)}, {"split_k", n(2)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(12)}}, k),
        plan_of("cublas.gemv", {{"custom_option", n(7)}}, k),
        plan_of("cublas.dot", {{"split_k", n(2)}, {"strided", n(0)}}, k),
        plan_of("cublas.dot", {{"split_k", n(300)}, {"strided", n(1)}}, k),
        {.kind = Plan::Kind::walk, .ranges = {{0, k}}, .parts = {}, .merge = {}, .lanes = {}, .from_product = true},
    };
}

std::int64_t differences(const Tensor& got, const Tensor& want) {
    REQUIRE(got.shape() == want.shape());
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) different += got.get(i) != want.get(i) ? 1 : 0;
    return different;
}

}  // namespace

TEST_CASE("fma engine: every kernel row equals the scalar definition for every plan and kind of data") {
    const std::pair<Format, Format> types[] = {{fp32, fp32}, {bf16, bf16}, {fp16, fp16}, {fp32, bf16}};
    const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 70}, {5, 3}, {7, 65}, {70, 2}, {1, 1}, {3, 4}, {33, 1}};
    std::map<std::string_view, std::int64_t> compared;
    test::Random random(741);
    std::size_t turn = 0;
    for (const std::int64_t k : {1, 8, 77, 600})
        for (const Plan& plan : plans_of(k))
            for (const std::string_view kind : test::gemm_kinds) {
                if (k == 600 && turn % 4 != 0 && ++turn != 0) continue;
                const auto& [a, b] = types[turn % std::size(types)];
                const auto& [m, n] = shapes[turn++ / 3 % std::size(shapes)];
                const Tensor x = test::gemm_input(random, kind, a, m, k, 0),
                             w = test::gemm_input(random, kind, b, n, k, 1);
                const auto rows = all_indices(m), cols = all_indices(n);
                const DotRule* const rule = cuda_core_rule(a, b);
                REQUIRE(rule != nullptr);
                GemmTask task{*rule, 1, plan, x, w, bf16, rows, cols};
                const Tensor want = gemm_accumulators_scalar(task);
                for (const Fp32Kernels* row : fp32_kernel_rows()) {
                    task.kernel = row->name;
                    INFO(row->name << " " << kind << " K=" << k << " " << m << "x" << n << " "
                                   << to_string(plan).substr(0, 200));
                    CHECK(differences(gemm_accumulators(task), want) == 0);
                    compared[row->name] += want.size();
                }
            }
    CHECK(compared.size() == fp32_kernel_rows().size());
    for (const auto& [name, count] : compared) {
        INFO(name);
        CHECK(count >= 40000);
    }
}

TEST_CASE("fma engine: the scalar definition is f32::fma in order, NaN canonical") {
    test::Random random(742);
    std::int64_t compared = 0, nan = 0, infinite = 0;
    for (const std::string_view kind : test::gemm_kinds) {
        const std::int64_t k = 50;
        const Tensor x = test::gemm_input(random, kind, fp32, 6, k, 0),
                     w = test::gemm_input(random, kind, fp16, 20, k, 1);
        const auto rows = all_indices(6), cols = all_indices(20);
        const Plan plan{.kind = Plan::Kind::walk, .ranges = {{0, k}}, .parts = {}, .merge = {}};
        const Tensor out = gemm_accumulators_scalar({*cuda_core_rule(fp32, fp16), 1, plan, x, w, fp32, rows, cols});
        for (std::int64_t i = 0; i < 6; ++i)
            for (std::int64_t j = 0; j < 20; ++j) {
                std::uint32_t acc = 0;
                for (std::int64_t c = 0; c < k; ++c)
                    acc = f32::fma(static_cast<std::uint32_t>(x.get(i * k + c)),
                                   static_cast<std::uint32_t>(convert(fp16, fp32, w.get(j * k + c))),
                                   acc);
                CHECK(out.get(i * 20 + j) == acc);
                ++compared;
                nan += acc == 0x7FFFFFFF ? 1 : 0;
                infinite += (acc & 0x7FFFFFFF) == 0x7F800000 ? 1 : 0;
            }
    }
    CHECK(compared == std::ssize(test::gemm_kinds) * 6 * 20);
    CHECK(nan > 10);
    CHECK(infinite > 0);
}

TEST_CASE("fma engine: chosen rows and columns, any number of threads, deep sums") {
    test::Random random(743);
    const std::int64_t k = 2561;
    const Tensor x = test::gemm_input(random, "normal", bf16, 140, k, 0),
                 w = test::gemm_input(random, "normal", bf16, 200, k, 1);
    const std::vector<std::int64_t> rows{139, 0, 7, 7, 64}, few{199, 3}, many = all_indices(200), all_rows = all_indices(140);
    for (const Plan& plan : {plan_of("cublas.gemv", {{"custom_option", std::int64_t{75}}}, k),
                             plan_of("cublas.simt_sgemm", {{"split_k", std::int64_t{1}}}, k),
                             plan_of("cublas.dot", {{"split_k", std::int64_t{31}}, {"strided", std::int64_t{0}}}, k)}) {
        INFO(to_string(plan));
        GemmTask task{*cuda_core_rule(bf16, bf16), 1, plan, x, w, bf16, rows, few};
        CHECK(differences(gemm_accumulators(task), gemm_accumulators_scalar(task)) == 0);
        task.rows = all_rows;
        task.cols = many;
        set_threads(1);
        const Tensor one = gemm_accumulators(task);
        set_threads(3);
        const Tensor three = gemm_accumulators(task);
        set_threads(0);
        CHECK(differences(one, three) == 0);
        task.cols = few;
        const Tensor part = gemm_accumulators(task);  // the operands change sides
        std::int64_t different = 0;
        for (std::int64_t i = 0; i < 140; ++i)
            for (std::size_t j = 0; j < few.size(); ++j)
                different += part.get(i * 2 + static_cast<std::int64_t>(j)) != one.get(i * 200 + few[j]) ? 1 : 0;
        CHECK(different == 0);
        task.engine = GemmEngine::scalar;
        CHECK(differences(gemm_accumulators(task), part) == 0);
    }
}

TEST_CASE("gemm: lanes on a tensor core fall back to the definition") {
    test::Random random(744);
    const Plan plan = plan_of("cublas.gemv", {{"custom_option", std::int64_t{75}}}, 128);
    const Tensor x = test::gemm_input(random, "normal", bf16, 3, 128, 0),
                 w = test::gemm_input(random, "normal", bf16, 66, 128, 1);
    const auto rows = all_indices(3), cols = all_indices(66);
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("wgmma.m64n8k16.f32.bf16.bf16"));
    const GemmTask task{rule, 16, plan, x, w, bf16, rows, cols};
    CHECK(differences(gemm_accumulators(task), gemm_accumulators_scalar(task)) == 0);
}
