#include "reduction_trees/recipe.hpp"

#include <catch2/catch.hpp>

#include "formats/error.hpp"

using namespace bitreplay;

namespace {

std::string tree(const std::string& recipe, RecipeValues values, std::int64_t k, int element_bits = 16) {
    const Recipe& found = find_recipe(recipe);
    return to_string(make_plan(found, resolve(found, std::move(values), {}, element_bits), k));
}

RecipeValue n(std::int64_t value) { return value; }

RecipeValues named(const std::string& kernel, RecipeValues recorded = {}, int element_bits = 16) {
    const Recipe* recipe = match_recipe({kernel});
    REQUIRE(recipe != nullptr);
    return resolve(*recipe, std::move(recorded), {kernel}, element_bits);
}

}  // namespace

TEST_CASE("recipe: every file loads, names are unique, each states its evidence") {
    CHECK(recipes().size() >= 9);
    for (const Recipe& recipe : recipes()) {
        CHECK_FALSE(recipe.evidence.empty());
        CHECK(&find_recipe(recipe.name) == &recipe);
    }
}

TEST_CASE("recipe: order of additions of every row of the GEMM table") {
    CHECK(tree("single_walk", {}, 100) == "walk 0:100");
    CHECK(tree("split_k_fp32", {{"split_k", n(3)}}, 640) == "(walk 0:256 + walk 256:512 + walk 512:640)");
    CHECK(tree("split_k_serial_bf16", {{"split_k", n(2)}}, 256) == "(walk 0:128 +r walk 128:256)");
    CHECK(tree("split_k_workspace_bf16", {{"split_k", n(2)}}, 256) == "(0 + r(walk 0:128) + r(walk 128:256))");
    CHECK(tree("sliced_k", {}, 128) == "(walk 0:32 64:96 + walk 32:64 96:128)");
    CHECK(tree("promote_128", {}, 300, 8) == "(walk 0:128 + walk 128:256 + walk 256:300)");
}

TEST_CASE("recipe: nvjet splits K in whole tiles, counted on the floor of K / S") {
    CHECK(tree("cublas.nvjet", {}, 4096) == "walk 0:4096");
    // chunk = 64 * ceil(floor(1000 / 3) / 64) = 384
    CHECK(tree("cublas.nvjet", {{"split_k", n(3)}}, 1000) == "(walk 0:384 + walk 384:768 + walk 768:1000)");
    CHECK(tree("cublas.nvjet", {}, 256, 8) == "(walk 0:128 + walk 128:256)");
    CHECK(tree("cublas.nvjet", {{"fast_accum", n(1)}}, 256, 8) == "walk 0:256");
    CHECK(tree("cublas.nvjet", {{"fast_accum", n(1)}, {"split_k", n(2)}}, 512, 8) == "(walk 0:256 + walk 256:512)");
    CHECK(tree("cublas.nvjet", {{"split_k", n(2)}}, 512, 8) == "((walk 0:128 + walk 128:256) + (walk 256:384 + walk 384:512))");
}

TEST_CASE("recipe: nvjet leaves out what lies beyond S chunks") {
    const Recipe& recipe = find_recipe("cublas.nvjet");
    const Plan plan = make_plan(recipe, resolve(recipe, {{"split_k", n(9)}}, {}, 16), 11528);
    CHECK(covered(plan) == 11520);
    CHECK(plan.parts.size() == 9);
}

TEST_CASE("recipe: CUTLASS takes the residue of K first, in each part") {
    CHECK(tree("cutlass.tensorop", {{"block_k", n(64)}}, 150) == "walk 0:22 22:150");
    // K % 64 != 0: parts are multiples of 8: ceil(ceil(150 / 2) / 8) * 8 = 80
    CHECK(tree("cutlass.tensorop", {{"split_k", n(2)}, {"block_k", n(32)}, {"reduction", std::string("output_type")}}, 150) ==
          "(0 + r(walk 0:16 16:80) + r(walk 80:86 86:150))");
    CHECK(tree("cutlass.tensorop", {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, 256) == "(walk 0:128 +r walk 128:256)");
    CHECK(tree("cutlass.tensorop", {{"slices", n(2)}}, 128) == "(walk 0:32 64:96 + walk 32:64 96:128)");
    CHECK_THROWS_AS(tree("cutlass.tensorop", {{"slices", n(2)}}, 120), NotModelled);
}

TEST_CASE("recipe: TF32 kernels") {
    // K % 32 != 0: parts are multiples of 4: ceil(ceil(150 / 2) / 4) * 4 = 76; residue of 32 first
    CHECK(tree("cutlass.tf32", {{"split_k", n(2)}}, 150, 32) == "(walk 0:12 12:76 + walk 76:86 86:150)");
    CHECK(tree("cutlass.tf32", {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, 128, 32) == "(walk 0:64 +r walk 64:128)");
    // Tiles of 64 dealt out in turn, the last one short.
    CHECK(tree("cublas.xmma_sm80_tf32", {{"split_k", n(2)}, {"tile_k", n(64)}}, 300, 32) ==
          "(walk 0:64 128:192 256:300 + walk 64:128 192:256)");
    CHECK(tree("cublas.xmma_sm90", {}, 300, 32) == "walk 0:300");
    // Five tiles of 32 cut into two segments, the last added first.
    const RecipeValues shared{{"segments", n(2)}, {"ctas", n(4)}, {"tile_m", n(64)}, {"tile_n", n(64)}, {"tile_k", n(32)}, {"cluster_m", n(1)}, {"swizzle", n(0)}};
    CHECK(tree("cublas.xmma_sm90_segments", shared, 150, 32) == "(walk 64:150 + walk 0:64)");
}

TEST_CASE("recipe: FP16 accumulation") {
    CHECK(tree("cutlass.fp16", {{"split_k", n(2)}, {"block_k", n(32)}}, 150) == "(walk 0:16 16:80 + walk 80:86 86:150)");
    CHECK(tree("cublas.xmma_sm90_fp16", {}, 150) == "walk 0:150");
    const Recipe* h16816 = match_recipe({"void cutlass::Kernel2<cutlass_80_tensorop_h16816gemm_128x64_32x6_tn_align2>(P)"});
    REQUIRE(h16816 != nullptr);
    CHECK(h16816->accumulator == "fp16");
    const Recipe* xmma = match_recipe({"sm90_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_on_kernel__5x_cublas"});
    REQUIRE(xmma == &find_recipe("cublas.xmma_sm90_fp16_segments"));
    CHECK(recipes_of(parse_cublaslt_log("algoId=23 computeType=COMPUTE_16F")) == std::vector<const Recipe*>{h16816});
}

TEST_CASE("recipe: the tiles of a partial round are shared, all others are not") {
    const Recipe& recipe = find_recipe("cublas.xmma_sm90_segments");
    const auto regions = [&](std::int64_t m, std::int64_t n_, std::int64_t ctas, std::int64_t cluster_m, std::int64_t swizzle) {
        const RecipeValues values{{"segments", n(1)}, {"ctas", n(ctas)}, {"tile_m", n(10)}, {"tile_n", n(20)}, {"tile_k", n(32)},
                                  {"cluster_m", n(cluster_m)}, {"swizzle", n(swizzle)}};
        std::string out;
        for (const OutputRegion& region : output_regions(recipe, values, m, n_))
            out += "[" + std::to_string(region.rows.begin) + ":" + std::to_string(region.rows.end) + "," + std::to_string(region.cols.begin) + ":" +
                   std::to_string(region.cols.end) + "]x" + std::to_string(std::get<std::int64_t>(region.values.at("segments")));
        return out;
    };
    // 3 x 2 tiles: all shared by two CTAs each; whole rounds only
    CHECK(regions(25, 40, 13, 1, 0) == "[0:25,0:40]x2");
    CHECK(regions(25, 40, 6, 1, 0) == "[0:25,0:40]x1");
    CHECK(regions(25, 40, 3, 1, 0) == "[0:25,0:40]x1");
    // One band of two rows of tiles, walked column by column: 2 x 5 tiles, the last two of them shared.
    CHECK(regions(20, 100, 4, 2, 0) == "[0:20,0:80]x1[0:20,80:100]x2");
    // Swizzled: bands of 8 rows of tiles, the second from the last column: 14 x 3 tiles, 30 of them whole.
    CHECK(regions(140, 60, 30, 1, 1) == "[0:80,0:60]x1[80:140,0:40]x2[80:140,40:60]x1");
    CHECK_THROWS_AS(regions(140, 60, 28, 1, 1), NotModelled);  // the round ends inside a column
    CHECK_THROWS_AS(regions(250, 60, 50, 1, 1), NotModelled);  // the third band
    CHECK_THROWS_AS(regions(40, 60, 8, 2, 0), NotModelled);    // two bands
    CHECK_THROWS_AS(regions(25, 60, 5, 1, 0), NotModelled);
    CHECK_THROWS_AS(regions(30, 60, 8, 2, 0), NotModelled);    // a cluster reaches beyond the output
    CHECK_THROWS_AS(regions(20, 40, 40, 2, 0), NotModelled);   // ten CTAs for a tile
    CHECK(output_regions(find_recipe("single_walk"), {}, 7, 9).size() == 1);
}

TEST_CASE("recipe: how bias, alpha and beta enter") {
    using Order = RecipeAddend::Order;
    const auto orders = [](const std::string& kernel, RecipeValues recorded = {}) {
        const Recipe* recipe = match_recipe({kernel});
        REQUIRE(recipe != nullptr);
        const RecipeAddend* addend = find_addend(*recipe, resolve(*recipe, std::move(recorded), {kernel}, 16));
        REQUIRE(addend != nullptr);
        return addend->orders;
    };
    CHECK(orders("nvjet_sm90_tst_64x8_64x16_4x1_v_badd_TNT") == std::vector{Order::rounded});
    CHECK(orders("nvjet_sm90_tst_64x8_64x16_4x1_v_bx_TNT") == std::vector{Order::fma_alpha});
    CHECK(orders("nvjet_sm90_tst_64x8_64x16_4x1_v_bx_splitK_TNT", {{"split_k", n(2)}}) == std::vector{Order::fma_beta});
    CHECK(find_addend(find_recipe("cublas.nvjet"), resolve(find_recipe("cublas.nvjet"), {}, {}, 16)) == nullptr);  // which kernel is not known
    CHECK(orders("cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_tn_align1") == std::vector{Order::fma_beta});
    CHECK(orders("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align2").size() == 3);  // not known: all must agree
    CHECK(orders("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x3_tn_align2", {{"split_k", n(2)}}) == std::vector{Order::fma_beta});
    const Recipe& cutlass = find_recipe("cutlass.tensorop");
    const RecipeBias* serial = find_bias(cutlass, resolve(cutlass, {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, {}, 16));
    REQUIRE(serial != nullptr);
    CHECK(serial->add == RecipeBias::Add::first_part);
}

TEST_CASE("recipe: parameters come from the kernel name") {
    CHECK(named("nvjet_sm90_tst_128x16_64x11_4x1_v_bz_TNT").at("tile_k") == n(64));
    CHECK(named("nvjet_sm90_qqtst_64x8_128x16_1x2_h_bz_algo2_TNT", {}, 8).at("fast_accum") == n(0));
    CHECK(named("nvjet_sm90_qqtst_64x8_128x16_1x2_h_bz_TNT", {}, 8).at("fast_accum") == n(1));
    const RecipeValues wmma = named("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align2>(P)");
    CHECK(wmma.at("block_k") == n(128));
    CHECK(wmma.at("instruction_k") == n(16));
    const RecipeValues ampere = named("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn");
    CHECK(ampere.at("slices") == n(2));
    CHECK(ampere.at("block_k") == n(64));
}

TEST_CASE("recipe: what has to be recorded is never guessed") {
    const std::string split = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT";
    CHECK_THROWS_AS(named(split), NotModelled);
    CHECK(named(split, {{"split_k", n(2)}}).at("split_k") == n(2));
    CHECK_THROWS_AS(named(split, {{"tile_k", n(32)}, {"split_k", n(2)}}), InputError);  // the name says 64
    CHECK_THROWS_AS(named(split, {{"split_k", n(0)}}), InputError);   // out of range
    CHECK_THROWS_AS(named(split, {{"splitk", n(2)}}), InputError);    // unknown
    CHECK(match_recipe({"nvjet_sm90_hhh_64x8_64x16_4x1_v_bz_TNT"}) == nullptr);
    CHECK(match_recipe({"ampere_h16816gemm_64x64_ldg8_stages_64x6_tn"}) == nullptr);  // fp16 accumulation is another order
    CHECK(match_recipe({"nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "some_other_kernel"}) == nullptr);
    CHECK(match_recipe({split, "void cublasLt::splitKreduce_kernel<32, 16, int>(P)"}) == &find_recipe("cublas.nvjet"));
    CHECK_THROWS_AS(find_recipe("cublas.nvjat"), NotModelled);
}

TEST_CASE("glob_match: stars match any run, everything else itself") {
    CHECK(glob_match("a*c", "abbbc"));
    CHECK(glob_match("*b*", "abc"));
    CHECK(glob_match("*", ""));
    CHECK_FALSE(glob_match("a*c", "abcd"));
    CHECK_FALSE(glob_match("", "a"));
    CHECK(glob_match("a*b*c", "a_b_b_c"));
}
