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
    // Options of the xmma kernels: parts summed in half as many buffers, or in one, before the last part takes them in.
    const auto option = [](std::int64_t value) {
        return tree("cublas.xmma_sm80_tf32", {{"split_k", n(4)}, {"tile_k", n(64)}, {"custom_option", n(value)}}, 256, 32);
    };
    CHECK(option(0) == "(walk 0:64 + walk 64:128 + walk 128:192 + walk 192:256)");
    CHECK(option(1) == "(walk 192:256 + (walk 0:64 + walk 128:192) + walk 64:128)");
    CHECK(option(2) == "(walk 192:256 + (walk 0:64 + walk 64:128 + walk 128:192))");
    CHECK_THROWS_AS(option(3), NotModelled);
}

TEST_CASE("recipe: segments are as even as tiles allow and summed in pairs, the last 2^n and those before them") {
    const auto shared = [](std::int64_t segments, std::int64_t k) {
        return tree("cublas.xmma_sm90_segments",
                    {{"segments", n(segments)}, {"ctas", n(4)}, {"tile_m", n(64)}, {"tile_n", n(64)}, {"tile_k", n(32)},
                     {"cluster_m", n(1)}, {"cluster_n", n(1)}, {"swizzle", n(0)}},
                    k, 32);
    };
    CHECK(shared(1, 150) == "walk 0:150");
    CHECK(shared(2, 150) == "(walk 64:150 + walk 0:64)");
    CHECK(shared(3, 8 * 32) == "((walk 160:256 + walk 64:160) + walk 0:64)");
    CHECK(shared(4, 4 * 32) == "((walk 96:128 + walk 64:96) + (walk 32:64 + walk 0:32))");
    CHECK(shared(7, 7 * 32) == "(((walk 192:224 + walk 160:192) + (walk 128:160 + walk 96:128)) + ((walk 64:96 + walk 32:64) + walk 0:32))");
    CHECK_THROWS_AS(shared(5, 4 * 32), NotModelled);
}

TEST_CASE("recipe: FP64 kernels") {
    // K % 16 != 0: parts are multiples of 2; a chain has no residue.
    CHECK(tree("cutlass.fp64", {{"split_k", n(3)}}, 200, 64) == "(walk 0:68 + walk 68:136 + walk 136:200)");
    CHECK(tree("cutlass.fp64", {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, 64, 64) == "(walk 0:32 +r walk 32:64)");
    CHECK(tree("cublas.xmma_fp64", {{"split_k", n(2)}, {"tile_k", n(32)}}, 80, 64) == "(walk 0:32 64:80 + walk 32:64)");
    CHECK(tree("cublas.xmma_fp64", {{"split_k", n(3)}, {"tile_k", n(16)}, {"custom_option", n(1)}}, 48, 64) ==
          "(walk 32:48 + walk 0:16 + walk 16:32)");
}

TEST_CASE("recipe: FP16 accumulation and 16-bit xmma kernels") {
    CHECK(tree("cutlass.fp16", {{"split_k", n(2)}, {"reduction", std::string("inplace")}}, 128) == "(walk 0:64 +r walk 64:128)");
    CHECK(named("cutlass_75_tensorop_h1688gemm_128x128_tn_align1").at("instruction_k") == n(8));
    CHECK(named("cutlass_80_wmma_tensorop_h161616gemm_16x16_128x1_tn_align8").at("instruction_k") == n(16));
    const Recipe* odd = match_recipe({"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cgasize1x1x1_warpgroupsize1x1x1_"
                                      "aligna2_alignc2_execute_segment_k_off_kernel__5x_cublas"});
    REQUIRE(odd == &find_recipe("cublas.xmma_sm90_half"));
    CHECK(to_string(make_plan(*odd, resolve(*odd, {}, {}, 16), 300)) == "walk 0:300");
}

TEST_CASE("recipe: GELU where the kernel has it, where another kernel follows, and nowhere else") {
    const auto gelu = [](const std::vector<std::string>& names, RecipeValues recorded = {}) {
        const Recipe* recipe = match_recipe(names);
        REQUIRE(recipe != nullptr);
        RecipeValues values = resolve(*recipe, std::move(recorded), names, 16);
        values["gelu"] = std::int64_t{1};
        const RecipeBias* bias = find_bias(*recipe, values);
        return std::string(any_applies(recipe->gelu_in_kernel, values) ? "own" : any_applies(recipe->gelu, values) ? "after" : "none") +
               (bias == nullptr ? "" : bias->add == RecipeBias::Add::rounded ? " rounded" : " accumulator");
    };
    const std::string reduce = "void cublasLt::splitKreduce_kernel<32, 16, int>(P)", own = "void cublasLt::epilogue::impl::globalKernel<8, 32>(P)";
    CHECK(gelu({"nvjet_sm90_tst_64x8_64x16_4x1_v_bz_gelubias_TNT"}) == "own accumulator");
    CHECK(gelu({"nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_gelubias_TNT", reduce}, {{"split_k", n(2)}}) == "after accumulator");
    const std::string cutlass = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align2";
    CHECK(gelu({cutlass, reduce}, {{"split_k", n(2)}, {"reduction", std::string("compute_type")}}) == "after rounded");
    CHECK(gelu({cutlass, reduce}, {{"split_k", n(2)}, {"reduction", std::string("output_type")}}) == "after rounded");
    CHECK(gelu({cutlass}) == "none rounded");
    const std::string odd = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_cgasize1x1x1_aligna2_execute_segment_k_off_kernel_";
    CHECK(gelu({odd, own}) == "after rounded");
    CHECK(gelu({odd}) == "none rounded");
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
    struct Launch {
        std::int64_t m, n, ctas, cluster_m, cluster_n, workspace, swizzle = 0, along_k = 1;
    };
    const auto regions = [&](const Launch& launch) {
        const RecipeValues values{{"segments", n(1)}, {"ctas", n(launch.ctas)}, {"tile_m", n(10)}, {"tile_n", n(10)}, {"tile_k", n(32)},
                                  {"cluster_m", n(launch.cluster_m)}, {"cluster_n", n(launch.cluster_n)}, {"swizzle", n(launch.swizzle)},
                                  {"along_k", n(launch.along_k)}, {"workspace", n(launch.workspace)}};
        std::string out;
        for (const OutputRegion& region : output_regions(recipe, values, launch.m, launch.n))
            out += "[" + std::to_string(region.rows.begin) + ":" + std::to_string(region.rows.end) + "," + std::to_string(region.cols.begin) + ":" +
                   std::to_string(region.cols.end) + "]x" + std::to_string(std::get<std::int64_t>(region.values.at("segments")));
        return out;
    };
    // Clusters of one CTA, 3 x 2 tiles: all shared by two each; whole rounds only.
    CHECK(regions({25, 20, 13, 1, 1, 0}) == "[0:25,0:20]x2");
    CHECK(regions({25, 20, 6, 1, 1, 0}) == "[0:25,0:20]x1");
    CHECK(regions({25, 20, 3, 1, 1, 0}) == "[0:25,0:20]x1");
    // Clusters of two rows over three: 2 of them in 5 slots, though 10 CTAs would do for 3 tiles thrice.
    CHECK(regions({25, 10, 10, 2, 1, 0}) == "[0:25,0:10]x2");
    CHECK_THROWS_AS(regions({25, 10, 8, 2, 1, 0, 0, 0}), NotModelled);  // an operand along n
    // 3 x 4 tiles and 5 CTAs: after two rounds the last 2 of the third row, which begins at the left.
    const std::int64_t tile = 10 * 10 * 4;
    CHECK(regions({30, 40, 5, 1, 1, 2 * 2 * tile + 131 + 4 * 9}) == "[0:20,0:40]x1[20:30,0:20]x1[20:30,20:40]x2");
    // 2 x 4 tiles and 6 CTAs: the second row is walked backwards.
    CHECK(regions({20, 40, 6, 1, 1, 3 * 2 * tile + 200}) == "[0:10,0:40]x1[10:20,0:20]x3[10:20,20:40]x1");
    // A row of clusters of two rows; its order is the same swizzled.
    CHECK(regions({20, 50, 8, 2, 1, 4 * 2 * tile + 160}) == "[0:20,0:40]x1[0:20,40:50]x4");
    CHECK(regions({20, 50, 8, 2, 1, 4 * 2 * tile + 160, 1}) == "[0:20,0:40]x1[0:20,40:50]x4");
    CHECK_THROWS_AS(regions({20, 50, 8, 2, 1, 0}), NotModelled);                        // no workspace recorded
    CHECK_THROWS_AS(regions({20, 50, 8, 2, 1, 1048576}), NotModelled);                  // not what the library asked for
    CHECK_THROWS_AS(regions({20, 50, 8, 2, 1, 8 * 2 * tile + 160}), NotModelled);       // more CTAs than there are
    CHECK_THROWS_AS(regions({20, 50, 8, 2, 1, 4 * 2 * tile + 160, 0, 0}), NotModelled);  // an operand along n
    CHECK_THROWS_AS(regions({30, 40, 5, 1, 1, 2 * 2 * tile + 131, 1}), NotModelled);    // swizzled
    CHECK_THROWS_AS(regions({30, 80, 10, 1, 2, 2 * 2 * tile + 131}), NotModelled);      // wide clusters
    CHECK_THROWS_AS(regions({30, 40, 5, 2, 1, 0}), InputError);                         // 5 CTAs are no clusters of 2
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
    CHECK(orders("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_tn_align2") == std::vector{Order::fma_alpha});
    CHECK(orders("cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_tn_align1") == std::vector{Order::fma_alpha});
    CHECK(orders("cutlass_75_tensorop_s1688gemm_bf16_128x128_tn_align1") == std::vector{Order::fma_beta});  // FP32 output
    CHECK(orders("cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4") == std::vector{Order::fma_alpha});   // TF32
    CHECK(orders("cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align1") == std::vector{Order::fma_beta});
    const RecipeValues serially{{"split_k", n(2)}, {"reduction", std::string("inplace")}};
    CHECK(orders("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x3_tn_align2", serially) == std::vector{Order::serial_fma_alpha});
    CHECK(orders("cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align1", serially) == std::vector{Order::serial_fma_beta});
    CHECK(find_addend(find_recipe("cutlass.tensorop"), resolve(find_recipe("cutlass.tensorop"), {}, {}, 16))->orders.size() == 2);  // no name: both must agree
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
