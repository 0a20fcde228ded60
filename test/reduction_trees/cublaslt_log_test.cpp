#include "reduction_trees/cublaslt_log.hpp"

#include <catch2/catch.hpp>

#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"

using namespace bitreplay;

namespace {

/// As cuBLASLt 13.1 writes it, shortened by the pointers.
const std::string line =
    "[2026-11-29 20:00:00][cublasLt][4711][Trace][cublasLtTSTMatmul] A=0x7f A Adesc=[type=R_16BF rows=3198 cols=392 "
    "ld=3198] "
    "B=0x7e Bdesc=[type=R_16BF rows=3198 cols=12 ld=3198] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F "
    "transa=OP_T] "
    "algo=[algoId=23 tile=MATMUL_TILE_32x32 stages=MATMUL_STAGES_64x2 reductionScheme=REDUCTION_SCHEME_OUTPUT_TYPE "
    "numSplitsK=16] "
    "workSpace=0x7d workSpaceSizeInBytes=150528 beta=0 outOfPlace=1 stream=0x0";

RecipeValue n(std::int64_t value) { return value; }

}  // namespace

TEST_CASE("cublaslt log: a whole line, its fields alone and the attributes' spelling say the same") {
    const CublasLtFields whole = parse_cublaslt_log(line);
    CHECK(whole == CublasLtFields{{"algoId", "23"},
                                  {"tile", "32x32"},
                                  {"stages", "64x2"},
                                  {"reductionScheme", "OUTPUT_TYPE"},
                                  {"numSplitsK", "16"},
                                  {"computeType", "COMPUTE_32F"},
                                  {"scaleType", "R_32F"},
                                  {"transa", "OP_T"},
                                  {"types", "TST"},
                                  {"workSpaceSizeInBytes", "150528"}});
    CublasLtFields algorithm =
        parse_cublaslt_log("algoId=23 tile=TILE_32x32 stages=STAGES_64x2 reductionScheme=OUTPUT_TYPE numSplitsK=16");
    CHECK(algorithm.size() == 5);
    algorithm.insert(whole.begin(), whole.end());
    CHECK(algorithm == whole);
    CHECK(parse_cublaslt_log("ALGO_ID=23, TILE=32x32, STAGES=64x2, REDUCTION_SCHEME=4, SPLITK_NUM=16")
              .at("reductionScheme") == "OUTPUT_TYPE");
    CHECK(parse_cublaslt_log("ALGO_ID=13 CUSTOM_OPTION=75").at("customOption") == "75");
}

TEST_CASE("cublaslt log: what is not a line of it is refused") {
    CHECK_THROWS_AS(parse_cublaslt_log(""), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("tile=TILE_32x32"), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("algoId=23 algoId=24"), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("algoId=23 splits"), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("algoId="), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("algoId=" + std::string(1000000, '1')), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("[cublasLtMatmul] algo=[algoId=23"), InputError);
    CHECK_THROWS_AS(parse_cublaslt_log("[cublasLtMatmul] workSpace=0x7d"), InputError);
    CHECK(parse_cublaslt_log("algoId=23 algoId=23").size() == 1);
}

TEST_CASE("cublaslt log: the workspace stands outside of the lists") {
    const CublasLtFields fields =
        parse_cublaslt_log("[cublasLtSSSMatmul] computeDesc=[computeType=COMPUTE_32F] algo=[algoId=43] workSpace=0x7f01 workSpaceSizeInBytes=3146083 stream=0x0");
    CHECK(fields.at("workSpaceSizeInBytes") == "3146083");
    CHECK(parse_cublaslt_log("[cublasLtMatmul] algo=[algoId=43] workSpaceSizeInBytes=7").at("workSpaceSizeInBytes") == "7");
    CHECK_FALSE(parse_cublaslt_log("[cublasLtMatmul] algo=[algoId=43] outOfworkSpaceSizeInBytes=7").contains("workSpaceSizeInBytes"));
}

TEST_CASE("cublaslt log: the epilogue is read from the data") {
    const auto epilogue = [](const std::string& more) { return log_epilogue(parse_cublaslt_log("algoId=66" + more)); };
    CHECK_FALSE(epilogue("").bias);
    CHECK(epilogue(" epilogue=EPILOGUE_BIAS").bias);
    CHECK_FALSE(epilogue(" epilogue=EPILOGUE_BIAS").gelu);
    CHECK(epilogue(" epilogue=EPILOGUE_GELU_BIAS").gelu);
    CHECK(epilogue(" epilogue=EPILOGUE_RELU_BIAS").relu);
    CHECK_FALSE(epilogue(" epilogue=EPILOGUE_RELU_BIAS").gelu);
    CHECK_THROWS_AS(epilogue(" epilogue=EPILOGUE_GELU"), NotModelled);
    CHECK_THROWS_AS(epilogue(" epilogue=EPILOGUE_RELU"), NotModelled);
}

TEST_CASE("cublaslt log: gives parameters, with the kernel names or alone") {
    const Recipe& cutlass = find_recipe("cutlass.tensorop");
    const std::string kernel =
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_tn_align2>(P)";
    const std::vector<std::string> names{kernel, "void cublasLt::splitKreduce_kernel<32>(P)"};
    const CublasLtFields log = parse_cublaslt_log(line);
    const RecipeValues values = resolve(cutlass, {}, names, 16, &log);
    CHECK(values.at("split_k") == n(16));
    CHECK(values.at("reduction") == RecipeValue("output_type"));
    CHECK(values.at("block_k") == n(64));
    CHECK_THROWS_AS(resolve(cutlass, {{"split_k", n(8)}}, names, 16, &log), InputError);  // params contradict the log
    const CublasLtFields other =
        parse_cublaslt_log("algoId=23 stages=STAGES_128x2 reductionScheme=OUTPUT_TYPE numSplitsK=16");
    CHECK_THROWS_AS(resolve(cutlass, {}, names, 16, &other), InputError);  // the kernel name says 64
    const CublasLtFields unsplit = parse_cublaslt_log("algoId=23 stages=STAGES_64x2");
    CHECK_THROWS_AS(resolve(cutlass, {}, names, 16, &unsplit), InputError);  // a reduction ran
    CHECK(resolve(cutlass, {}, {kernel}, 16, &unsplit).at("split_k") == n(1));
    const CublasLtFields unknown = parse_cublaslt_log("algoId=23 reductionScheme=SOME_TYPE numSplitsK=2");
    CHECK_THROWS_AS(resolve(cutlass, {}, names, 16, &unknown), NotModelled);
    CHECK_THROWS_AS(resolve(cutlass, {}, {}, 16, &log), NotModelled);  // the instruction is in the kernel name only

    const CublasLtFields nvjet =
        parse_cublaslt_log("algoId=66 tile=TILE_64x16 stages=STAGES_128xAUTO numSplitsK=3 fastAccumulationFlag=1");
    const RecipeValues alone = resolve(find_recipe("cublas.nvjet"), {}, {}, 8, &nvjet);
    CHECK(alone.at("split_k") == n(3));
    CHECK(alone.at("tile_k") == n(128));
    CHECK(alone.at("fast_accum") == n(1));
    CHECK(alone.at("badd") == n(2));  // not known
}

TEST_CASE("cublaslt log: it and the kernel name must be of one product") {
    const auto verdict = [](const std::string& kernel, const std::string& text) -> std::string {
        const CublasLtFields log = parse_cublaslt_log(text);
        try {
            resolve(*match_recipe({kernel}), {}, {kernel}, 16, &log);
        } catch (const InputError&) {
            return "contradicts";
        } catch (const NotModelled&) {
            return "not modelled";
        }
        return "fits";
    };
    const std::string nvjet = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", desc = " computeDesc=[computeType=COMPUTE_32F transa=OP_T]",
                      call = "[cublasLtTSTMatmul]";
    CHECK(verdict(nvjet, call + desc + " algo=[algoId=66 tile=TILE_64x8 stages=STAGES_64xAUTO clusterShape=4x1x1]") == "fits");
    CHECK(verdict(nvjet, "[cublasLtMatmul]" + desc + " algo=[algoId=66 stages=STAGES_64xAUTO]") == "fits");
    CHECK(verdict(nvjet, "algoId=66 tile=64x8") == "fits");
    CHECK(verdict(nvjet, "algoId=66 tile=8x64") == "contradicts");
    CHECK(verdict(nvjet, "algoId=66 tile=64x16") == "contradicts");
    CHECK(verdict(nvjet, "algoId=66 clusterShape=2x1x1") == "contradicts");
    CHECK(verdict(nvjet, "[cublasLtHSHMatmul]" + desc + " algo=[algoId=66]") == "contradicts");
    CHECK(verdict("nvjet_sm90_tss_64x8_64x16_4x1_v_bz_TNT", call + desc + " algo=[algoId=66]") == "contradicts");

    const std::string cutlass = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x6_tn_align8>(Params)";
    CHECK(verdict(cutlass, call + desc + " algo=[algoId=23 tile=TILE_128x64 stages=STAGES_64x6]") == "fits");
    CHECK(verdict(cutlass, "algoId=23 tile=TILE_128x64 stages=STAGES_64x6") == "fits");  // which operand is transposed is not said
    CHECK(verdict(cutlass, "algoId=23 tile=TILE_64x128 stages=STAGES_64x6") == "contradicts");
    CHECK(verdict(cutlass, call + " computeDesc=[computeType=COMPUTE_32F] algo=[algoId=23 stages=STAGES_64x6]") == "not modelled");
    CHECK(verdict(cutlass, call + " computeDesc=[computeType=COMPUTE_32F transa=OP_T transb=OP_T] algo=[algoId=23 stages=STAGES_64x6]") == "not modelled");

    const std::string xmma = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas";
    CHECK(verdict(xmma, "algoId=43 tile=TILE_64x128") == "fits");  // rows of one are columns of the other
    CHECK(verdict(xmma, "algoId=43 tile=TILE_128x64") == "contradicts");
}

TEST_CASE("cublaslt log: an algorithm leads to recipes") {
    const auto found = [](const std::string& text) {
        std::vector<std::string> out;
        for (const Recipe* recipe : recipes_of(parse_cublaslt_log(text))) out.push_back(recipe->name);
        return out;
    };
    CHECK(found("algoId=66") == std::vector<std::string>{"cublas.nvjet"});
    CHECK(found("algoId=23 computeType=COMPUTE_32F") == std::vector<std::string>{"cutlass.tensorop"});
    CHECK(found("algoId=23 computeType=COMPUTE_32F_FAST_TF32") == std::vector<std::string>{"cutlass.tf32"});
    CHECK(found("algoId=43 computeType=COMPUTE_32F_FAST_TF32").size() == 2);  // with and without segments
    CHECK(found("algoId=9999").empty());
}

TEST_CASE("cublaslt log: what neither log nor names tell is not guessed") {
    const std::string line =
        " algo=[algoId=66 stages=64x7 numSplitsK=4] computeDesc=[computeType=COMPUTE_32F transa=OP_T]";
    CHECK(parse_cublaslt_log(line).at("numSplitsK") == "4");
    CHECK_THROWS_AS(parse_cublaslt_log(line + " algo=[algoId=66 numSplitsK=3]"), InputError);  // two products
    // A split in place runs no other kernel where a bias or c is added.
    const std::string kernel = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8>(Params)";
    const Recipe* const cutlass = match_recipe({kernel});
    REQUIRE(cutlass != nullptr);
    CHECK(std::get<std::int64_t>(resolve(*cutlass, {}, {kernel}, 16).at("split_k")) == 1);
    CHECK_THROWS_AS(resolve(*cutlass, {}, {kernel}, 16, nullptr, true), NotModelled);
    const RecipeValues told = resolve(*cutlass, {{"split_k", std::int64_t{3}}}, {kernel}, 16, nullptr, true);
    CHECK(std::get<std::int64_t>(told.at("split_k")) == 3);
}
