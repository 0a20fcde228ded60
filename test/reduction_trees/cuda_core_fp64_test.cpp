// What the orders of FP64 on CUDA cores have of their own: slices of 32, dot products one at a time, fewer options.

#include <catch2/catch.hpp>

#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"
#include "test/reduction_trees/symbols.hpp"

using namespace bitreplay;
using test::Symbols;

namespace {

RecipeValue n(std::int64_t value) { return value; }

std::string sum(const std::string& recipe, const RecipeValues& recorded, std::int64_t k) {
    const Recipe& found = find_recipe(recipe);
    return test::symbolic(make_plan(found, resolve(found, recorded, {}, 64), k));
}

/// The sums of `count` lanes over [0, k), `vector` consecutive summands in turn.
std::vector<std::string> lanes(std::int64_t k, std::size_t count, std::int64_t vector) {
    std::vector<std::string> out(count);
    for (std::int64_t i = 0; i < k; ++i) {
        std::string& lane = out[static_cast<std::size_t>(i / vector) % count];
        lane = Symbols::sum(lane, std::to_string(i));
    }
    return out;
}

}  // namespace

TEST_CASE("FP64 gemv: lanes take slices of 32, or one product, in turn") {
    for (const std::int64_t k : {1, 7, 64, 65, 600})
        for (const auto& [option, count] : {std::pair{38, 2}, {30, 4}, {24, 8}, {26, 16}, {28, 32}}) {
            INFO("option " << option << ", K = " << k);
            const auto width = static_cast<std::size_t>(count);
            const std::int64_t slice = std::min<std::int64_t>(32, (k + count - 1) / count);
            CHECK(sum("cublas.gemv_fp64", {{"custom_option", n(option)}}, k) == test::halving(lanes(k, width, slice)));
            CHECK(sum("cublas.gemv_fp64", {{"custom_option", n(option + 1)}}, k) == test::halving(lanes(k, width, 1)));
        }
}

TEST_CASE("FP64 on CUDA cores: every other order is the one of FP32") {
    std::int64_t compared = 0;
    const auto same = [&](const std::string& recipe, const std::string& fp32, const RecipeValues& recorded) {
        for (const std::int64_t k : {1, 40, 300, 1100}) {
            INFO(recipe << " K = " << k);
            CHECK(sum(recipe, recorded, k) == sum(fp32, recorded, k));
            ++compared;
        }
    };
    for (const std::int64_t option : {1, 3, 39, 31, 25, 27, 29, 115})
        for (const std::int64_t parts : {1, 3})
            same("cublas.gemv_fp64", "cublas.gemv", {{"custom_option", n(option)}, {"split_k", n(parts)}});
    same("cublas.gemv_nsp_fp64", "cublas.gemv_nsp", {{"threads_k", n(32)}});
    same("cublas.gemm_sn_tn_fp64", "cublas.gemm_sn_tn", {});
    same("cublas.gemm_sn_nn_fp64", "cublas.gemm_sn_nn", {{"parts", n(2)}, {"custom_option", n(0)}});
    same("cublas.gemm_sn_nn_fp64", "cublas.gemm_sn_nn", {{"parts", n(4)}, {"custom_option", n(1)}});
    same("cublas.magma_gemmex_fp64", "cublas.magma_sgemmex", {});
    for (const std::int64_t blocks : {1, 2, 300})  // one product a turn, which FP32 has of strided operands only
        for (const std::int64_t k : {1, 567, 3000})
            for (const std::int64_t strided : {0, 1}) {
                CHECK(sum("cublas.dot_fp64", {{"split_k", n(blocks)}, {"strided", n(strided)}}, k) ==
                      sum("cublas.dot", {{"split_k", n(blocks)}, {"strided", n(1)}}, k));
                ++compared;
            }
    CHECK(sum("cublas.gemmk1_fp64", {}, 1) == "0");
    CHECK(compared == (8 * 2 + 5) * 4 + 18);
}

TEST_CASE("FP64 on CUDA cores: kernels and options that too few captures show are refused") {
    for (const std::int64_t option : {0, 2, 5, 6, 11, 12})
        CHECK_THROWS_AS(sum("cublas.gemv_fp64", {{"custom_option", n(option)}}, 100), NotModelled);
    const auto recipe_of = [](const std::vector<std::string>& kernels) -> std::string {
        const Recipe* found = match_recipe(kernels);
        return found == nullptr ? "" : found->name;
    };
    const std::string gemvx =
        "std::enable_if<true, void>::type internal::gemvx::kernel<int, int, double, double, double, double, true, "
        "true, true, false, 8, false, T>(P)";
    CHECK(recipe_of({gemvx}) == "cublas.gemv_fp64");
    CHECK(recipe_of({gemvx, "void cublasLt::splitKreduce_kernel<32, 16, int, double>(P)"}) == "cublas.gemv_fp64");
    CHECK(recipe_of({"void gemvNSP_kernel<double, double, double, double, 1, 32, 4, 1024, false, T>(P)"}) ==
          "cublas.gemv_nsp_fp64");
    CHECK(recipe_of({"void gemvNSP_kernel<double, double, double, double, 1, 16, 4, 1024, false, T>(P)"}).empty());
    CHECK(recipe_of(
              {"void gemv2T_kernel_val<int, int, double, double, double, double, 128, 16, 4, 4, false, false, T>(P)"})
              .empty());
    CHECK(recipe_of({"void gemmSN_TN_kernel<double, 128, 16, 2, 4, 8, 9, false, T>(P)"}) == "cublas.gemm_sn_tn_fp64");
    CHECK(recipe_of({"void gemmSN_TN_kernel<double, 128, 16, 2, 4, 8, 9, false, T>(P)",
                     "void cublasLt::epilogue::impl::globalKernel<8, 32, double, double, double, true, false, 1>(P)"})
              .empty());
    CHECK(find_addend(find_recipe("cublas.gemmk1_fp64"), {}) == nullptr);
}
