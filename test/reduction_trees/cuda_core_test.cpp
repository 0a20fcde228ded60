// The order in which each CUDA-core kernel adds, spelled out: the tree of names that a plan builds against one written
// down here from the kernel's description (MODELS 2b).

#include <catch2/catch.hpp>

#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"
#include "test/reduction_trees/symbols.hpp"

using namespace bitreplay;
using test::left_to_right;
using test::Symbols;

namespace {

using Terms = std::vector<std::string>;

RecipeValue n(std::int64_t value) { return value; }
RecipeValue word(const char* text) { return std::string(text); }

Plan plan_of(const std::string& recipe, const RecipeValues& recorded, std::int64_t k) {
    const Recipe& found = find_recipe(recipe);
    return make_plan(found, resolve(found, recorded, {}, 32), k);
}

std::string sum(const std::string& recipe, const RecipeValues& recorded, std::int64_t k) {
    return test::symbolic(plan_of(recipe, recorded, k));
}

/// The names of begin, begin + step, … below end.
Terms names(std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
    Terms out;
    for (std::int64_t k = begin; k < end; k += step) out.push_back(std::to_string(k));
    return out;
}
std::string chain(std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
    return left_to_right(names(begin, end, step));
}

/// The sums of `count` lanes over [begin, end), `vector` consecutive summands in turn.
Terms lanes(std::int64_t begin, std::int64_t end, std::size_t count, std::int64_t vector = 1) {
    Terms out(count);
    for (std::int64_t k = begin; k < end; ++k) {
        std::string& lane = out[static_cast<std::size_t>((k - begin) / vector) % count];
        lane = Symbols::sum(lane, std::to_string(k));
    }
    return out;
}

/// Left to right, the running sum rounded to the output after every term.
std::string rounded_in_turn(const Terms& terms) {
    std::string out;
    for (const std::string& term : terms) out = "r[" + Symbols::sum(out, term) + "]";
    return out;
}

/// Lanes that start again every `restart` summands.
Terms restarted(std::int64_t end, std::size_t count, std::int64_t restart) {
    Terms out(count);
    for (std::int64_t from = 0; from < end; from += restart) {
        const Terms part = lanes(from, std::min(end, from + restart), count);
        for (std::size_t i = 0; i < count; ++i) out[i] = Symbols::sum(out[i], part[i]);
    }
    return out;
}

}  // namespace

TEST_CASE("simt_sgemm: a chain per part, parts of a multiple of 32 if K is one, else of 4") {
    CHECK(sum("cublas.simt_sgemm", {{"split_k", n(1)}}, 5) == "((((0+1)+2)+3)+4)");
    CHECK(sum("cublas.simt_sgemm", {{"split_k", n(2)}}, 160) == left_to_right({chain(0, 96), chain(96, 160)}));
    CHECK(sum("cublas.simt_sgemm", {{"split_k", n(3)}}, 50) ==
          left_to_right({chain(0, 20), chain(20, 40), chain(40, 50)}));
    CHECK(sum("cublas.simt_sgemm", {{"split_k", n(132)}}, 10) ==
          left_to_right({chain(0, 4), chain(4, 8), chain(8, 10)}));
    CHECK(sum("cublas.simt_sgemm", {{"split_k", n(2)}, {"reduction", word("inplace")}}, 64) ==
          rounded_in_turn({chain(0, 32), chain(32, 64)}));
    CHECK_THROWS_AS(sum("cublas.simt_sgemm", {}, 64), NotModelled);  // the split is never guessed
}

TEST_CASE("ffma: tiles of 8 dealt to the parts in turn, merged through as many buffers as the option says") {
    const auto part = [](std::int64_t p, std::int64_t parts, std::int64_t k) {
        Terms out;
        for (std::int64_t from = 8 * p; from < k; from += 8 * parts)
            for (const std::string& name : names(from, std::min(k, from + 8))) out.push_back(name);
        return left_to_right(out);
    };
    for (const std::int64_t k : {1, 8, 20, 100, 333}) {
        INFO("K = " << k);
        CHECK(sum("cublas.ffma", {{"split_k", n(1)}, {"custom_option", n(0)}}, k) == chain(0, k));
        CHECK(sum("cublas.ffma", {{"split_k", n(3)}, {"custom_option", n(0)}}, k) ==
              left_to_right({part(0, 3, k), part(1, 3, k), part(2, 3, k)}));
        // 5 parts, 3 buffers: the last part adds 0 + 3, 1 + 4 would be the next, 2
        CHECK(sum("cublas.ffma", {{"split_k", n(5)}, {"custom_option", n(1)}}, k) ==
              left_to_right({part(4, 5, k), Symbols::sum(part(0, 5, k), part(3, 5, k)), part(1, 5, k), part(2, 5, k)}));
        CHECK(sum("cublas.ffma", {{"split_k", n(8)}, {"custom_option", n(1)}}, k) ==
              left_to_right({part(7, 8, k),
                             Symbols::sum(part(0, 8, k), part(4, 8, k)),
                             Symbols::sum(part(1, 8, k), part(5, 8, k)),
                             Symbols::sum(part(2, 8, k), part(6, 8, k)),
                             part(3, 8, k)}));
        CHECK(sum("cublas.ffma", {{"split_k", n(4)}, {"custom_option", n(2)}}, k) ==
              Symbols::sum(part(3, 4, k), left_to_right({part(0, 4, k), part(1, 4, k), part(2, 4, k)})));
    }
    CHECK_THROWS_AS(sum("cublas.ffma", {{"split_k", n(4)}, {"custom_option", n(3)}}, 64), NotModelled);
    CHECK_THROWS_AS(sum("cublas.ffma", {{"split_k", n(4)}, {"custom_option", n(2)}, {"buffers", word("half")}}, 64),
                    InputError);
}

TEST_CASE("sgemm_largek: parts of floor(K / S) rounded up to 8, as many as K needs, in order") {
    CHECK(sum("cublas.sgemm_largek", {{"split_k", n(5)}}, 29) ==
          rounded_in_turn({chain(0, 8), chain(8, 16), chain(16, 24), chain(24, 29)}));
    CHECK(sum("cublas.sgemm_largek", {{"split_k", n(2)}}, 100) == rounded_in_turn({chain(0, 56), chain(56, 100)}));
    CHECK(sum("cublas.sgemm_largek", {{"split_k", n(5)}}, 43) ==  // six parts
          rounded_in_turn({chain(0, 8), chain(8, 16), chain(16, 24), chain(24, 32), chain(32, 40), chain(40, 43)}));
    CHECK(sum("cublas.sgemm_largek", {{"split_k", n(4)}}, 7) == chain(0, 7));
    CHECK_THROWS_AS(sum("cublas.sgemm_largek", {{"split_k", n(4)}}, 3), NotModelled);
}

TEST_CASE("magma_sgemmEx, ffma of fp16: one chain") {
    CHECK(sum("cublas.magma_sgemmex", {}, 100) == chain(0, 100));
    CHECK(sum("cublas.ffma_fp16", {{"split_k", n(1)}}, 100) == chain(0, 100));
    CHECK_THROWS_AS(sum("cublas.ffma_fp16", {{"split_k", n(2)}}, 100), InputError);
}

TEST_CASE("gemmSN: 16 lanes from zero again every 256 (TN), contiguous parts in blocks (NN)") {
    for (const std::int64_t k : {3, 16, 100, 256, 700}) {
        INFO("K = " << k);
        CHECK(sum("cublas.gemm_sn_tn", {}, k) == left_to_right(restarted(k, 16, 256)));
    }
    CHECK(sum("cublas.gemm_sn_nn", {{"parts", n(2)}, {"custom_option", n(0)}}, 22) ==
          left_to_right({chain(0, 11), chain(11, 22)}));
    CHECK(sum("cublas.gemm_sn_nn", {{"parts", n(4)}, {"custom_option", n(1)}}, 601) ==
          left_to_right({left_to_right({chain(0, 128), chain(128, 151)}),
                         left_to_right({chain(151, 279), chain(279, 302)}),
                         left_to_right({chain(302, 430), chain(430, 453)}),
                         left_to_right({chain(453, 581), chain(581, 601)})}));
    CHECK_THROWS_AS(sum("cublas.gemm_sn_tn", {{"custom_option", n(1)}}, 22), NotModelled);
    CHECK_THROWS_AS(sum("cublas.gemm_sn_nn", {{"parts", n(2)}, {"custom_option", n(2)}}, 22), NotModelled);
    CHECK_THROWS_AS(sum("cublas.gemm_sn_nn", {{"custom_option", n(0)}}, 22),
                    NotModelled);  // the kernel's name counts the parts
}

/// `count` contiguous parts of [begin, end), each in blocks from zero, all added left to right.
std::string parts_of_blocks(std::int64_t begin, std::int64_t end, std::int64_t count, std::int64_t block) {
    Terms parts;
    const std::int64_t length = (end - begin + count - 1) / count;
    for (std::int64_t from = begin; from < end; from += length) {
        Terms blocks;
        for (std::int64_t at = from; at < std::min(end, from + length); at += block)
            blocks.push_back(chain(at, std::min({end, from + length, at + block})));
        parts.push_back(left_to_right(blocks));
    }
    return left_to_right(parts);
}

TEST_CASE("gemv: every custom option") {
    // Lanes of each pair of options from `first` on: the even one takes slices, the odd one turns.
    struct Pairs {
        std::int64_t first;
        std::vector<std::size_t> lanes;
    };
    const Pairs slices_and_turns[] = {{24, {8, 16, 32, 4, 8, 16, 32, 2, 4, 8, 16, 32, 2, 4, 8, 16, 2, 4, 8, 2, 4}},
                           {66, {8, 4, 8}},
                           {72, {16, 32, 4, 8, 16, 32, 2, 4, 8, 16, 32, 2, 4, 8, 16, 2, 4, 8, 2, 4, 8, 4}}};
    struct Parts {
        std::int64_t option, count, block;
    };
    const Parts parts[] = {{0, 1, 512}, {1, 2, 256}, {2, 4, 128}, {3, 8, 64}, {5, 32, 16}, {6, 1, 256}, {7, 1, 256}, {8, 1, 256}};
    for (const std::int64_t k : {1, 7, 33, 130, 515, 3000}) {
        std::int64_t options = 0;
        for (const Pairs& row : slices_and_turns)
            for (std::size_t i = 0; i < row.lanes.size(); ++i, options += 2) {
                const std::int64_t option = row.first + 2 * static_cast<std::int64_t>(i);
                INFO("options " << option << " and " << option + 1 << ", K = " << k);
                const auto count = static_cast<std::int64_t>(row.lanes[i]), slice = std::min<std::int64_t>(64, (k + count - 1) / count);
                CHECK(sum("cublas.gemv", {{"custom_option", n(option)}}, k) == test::halving(lanes(0, k, row.lanes[i], slice)));
                CHECK(sum("cublas.gemv", {{"custom_option", n(option + 1)}}, k) == test::halving(lanes(0, k, row.lanes[i])));
            }
        for (const Parts& row : parts) {
            INFO("option " << row.option << ", K = " << k);
            CHECK(sum("cublas.gemv", {{"custom_option", n(row.option)}}, k) == parts_of_blocks(0, k, row.count, row.block));
            ++options;
        }
        INFO("K = " << k);
        CHECK(sum("cublas.gemv", {{"custom_option", n(11)}}, k) == left_to_right(restarted(k, 16, 512)));
        for (const std::int64_t option : {12, 13, 14})
            CHECK(sum("cublas.gemv", {{"custom_option", n(option)}}, k) == left_to_right(restarted(k, 16, 256)));
        CHECK(options + 4 == 104);
    }
    // Contiguous parts are counted in each split part on its own.
    CHECK(sum("cublas.gemv", {{"custom_option", n(1)}, {"split_k", n(3)}}, 700) ==
          left_to_right({parts_of_blocks(0, 234, 2, 256), parts_of_blocks(234, 468, 2, 256), parts_of_blocks(468, 700, 2, 256)}));
    // More split parts than K needs: the last ones are +0.
    CHECK(sum("cublas.gemv", {{"custom_option", n(5)}, {"split_k", n(7)}}, 5) == chain(0, 5));
    // The last, shorter part takes slices of the others' length.
    CHECK(sum("cublas.gemv", {{"custom_option", n(56)}, {"split_k", n(2)}}, 13) ==
          Symbols::sum(test::halving({chain(0, 4), chain(4, 7)}), test::halving({chain(7, 11), chain(11, 13)})));
    CHECK(sum("cublas.gemv", {{"custom_option", n(75)}, {"split_k", n(264)}}, 515) == [] {
        Terms pairs;
        for (int k = 0; k < 515; k += 2) pairs.push_back(test::halving(lanes(k, std::min(k + 2, 515), 32)));
        return left_to_right(pairs);
    }());
    try {
        sum("cublas.gemv", {{"custom_option", n(9)}}, 128);
        FAIL("option 9 is not known");
    } catch (const NotModelled& error) {
        CHECK(std::string(error.what()).find("custom_option = 9") != std::string::npos);
    }
    CHECK_THROWS_AS(sum("cublas.gemv", {}, 128), NotModelled);
    CHECK_THROWS_AS(sum("cublas.gemv", {{"custom_option", n(75)}, {"lanes", n(16)}}, 128), InputError);
}

TEST_CASE("gemv_nsp: a lane of four per thread along k, halved as 32") {
    for (const std::int64_t k : {3, 72, 97, 600})
        for (const std::size_t threads : {8U, 12U, 20U, 24U, 26U, 32U}) {
            INFO(threads << " threads, K = " << k);
            Terms terms = lanes(0, k, threads, 4);
            terms.resize(32);
            CHECK(sum("cublas.gemv_nsp", {{"threads_k", n(static_cast<std::int64_t>(threads))}}, k) == test::halving(terms));
        }
    CHECK_THROWS_AS(sum("cublas.gemv_nsp", {}, 72), NotModelled);  // only the launch tells the threads
    const std::string kernel = "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024, false, T>(P)";
    const Recipe* recipe = match_recipe({kernel});
    REQUIRE(recipe != nullptr);
    CHECK(recipe->name == "cublas.gemv_nsp");
    CHECK(resolve(*recipe, {}, {kernel}, 16).at("threads_k") == n(32));  // unless its name does
}

TEST_CASE("dot: threads of a block halve, one block folds the blocks") {
    for (const auto& [k, blocks, vector] :
         {std::tuple{1, 16, 2}, {1026, 16, 2}, {3000, 4, 2}, {5000, 496, 1}, {100000, 300, 2}, {2561, 31, 1}}) {
        INFO("K = " << k << ", " << blocks << " blocks, vectors of " << vector);
        Terms partial;  // of the blocks
        for (std::int64_t block = 0; block < blocks; ++block) {
            Terms threads;
            for (std::int64_t thread = 0; thread < 128; ++thread) {
                Terms accumulators;
                for (std::int64_t v = 0; v < vector; ++v)
                    accumulators.push_back(
                        chain(block * 128 * vector + thread * vector + v, k, std::int64_t{blocks} * 128 * vector));
                threads.push_back(left_to_right(accumulators));
            }
            partial.push_back(test::halving(threads));
        }
        Terms last(128);
        for (std::size_t i = 0; i < partial.size(); ++i) last[i % 128] = Symbols::sum(last[i % 128], partial[i]);
        for (std::size_t half = 64; half >= 32; half /= 2)
            for (std::size_t i = 0; i < half; ++i) last[i] = Symbols::sum(last[i], last[i + half]);
        Terms four;
        for (std::size_t i = 0; i < 4; ++i)
            four.push_back(left_to_right({last[i],
                                          last[i + 4],
                                          last[i + 8],
                                          last[i + 12],
                                          last[i + 16],
                                          last[i + 20],
                                          last[i + 24],
                                          last[i + 28]}));
        CHECK(sum("cublas.dot", {{"split_k", n(blocks)}, {"strided", n(vector == 2 ? 0 : 1)}}, k) ==
              left_to_right(four));
    }
    CHECK_THROWS_AS(sum("cublas.dot", {{"split_k", n(16)}}, 100),
                    NotModelled);  // how the operands lie is never guessed
}

TEST_CASE("gemmk1: one product") {
    CHECK(sum("cublas.gemmk1", {}, 1) == "0");
    CHECK(to_string(plan_of("cublas.gemmk1", {}, 1)) == "walk from product 0:1");
    CHECK_THROWS_AS(sum("cublas.gemmk1", {}, 2), NotModelled);
}

TEST_CASE("lanes: printed, counted and covered") {
    const Plan plan = plan_of("cublas.gemv", {{"custom_option", n(11)}, {"split_k", n(2)}}, 1100);
    CHECK(to_string(plan) == "(lanes 0:550 1x16 restart 512, serial 16 + lanes 550:1100 1x16 restart 512, serial 16)");
    CHECK(to_string(plan_of("cublas.dot", {{"split_k", n(4)}, {"strided", n(0)}}, 1500)) ==
          "lanes 0:1500 1x1024, serial 2, halving 128, serial 1 by 128, halving 4 by 32, serial 8 by 4, serial 4");
    CHECK(covered(plan) == 1100);
    CHECK(leaves(plan) == 2);
    CHECK(has_lanes(plan));
    CHECK_FALSE(has_lanes(plan_of("cublas.ffma", {{"split_k", n(3)}, {"custom_option", n(0)}}, 100)));
}

TEST_CASE("kernel names: which recipe, and what they say") {
    const auto recipe_of = [](const std::vector<std::string>& kernels) -> std::string {
        const Recipe* found = match_recipe(kernels);
        return found == nullptr ? "" : found->name;
    };
    const std::string gemvx = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, ";
    CHECK(recipe_of({gemvx + "__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 7, false, "
                             "cublasGemvParamsEx<int> >(P)"}) == "cublas.gemv");
    CHECK(recipe_of({"std::enable_if<true, void>::type internal::gemvx::kernel<long, long, __half, float, float, "
                     "float, true, true, false, false, 9, false, T>(P)",
                     "void cublasLt::splitKreduce_kernel<32, 16, int, float>(P)"}) == "cublas.gemv");
    CHECK(
        recipe_of({gemvx +
                   "__half, __half, __half, __half, false, true, true, false, 7, false, cublasGemvParamsEx<int> >(P)"})
            .empty());
    CHECK(recipe_of({"void dot_kernel<double, 128, 0, cublasDotParams<T> >(P)",
                     "void reduce_1Block_kernel<double, 128, 7, T>(P)"}) == "cublas.dot_fp64");
    CHECK(recipe_of({"void dot_kernel<float, 128, 0, cublasDotParams<T> >(P)",
                     "void reduce_1Block_kernel<float, 128, 7, T>(P)"}) == "cublas.dot");
    CHECK(recipe_of({"void gemmSN_TN_kernel<float, 128, 16, 4, 4, 2, 2, true, T>(P)"})
              .empty());  // other tiles: not known
    CHECK(recipe_of({"Memset (Device)",
                     "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_"
                     "execute_kernel__5x_cublas"}) == "cublas.ffma");
    const std::string
        tn = "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, T>(P)",
        epilogue = "void cublasLt::epilogue::impl::globalKernel<8, 32, __half, __half, float, true, false, 1>(P)";
    const auto bias_after = [&](const std::vector<std::string>& kernels) {
        const Recipe* found = match_recipe(kernels);
        REQUIRE(found != nullptr);
        return find_bias(*found, resolve(*found, {}, kernels, 16))->add;
    };
    CHECK(bias_after({tn}) == RecipeBias::Add::accumulator);
    CHECK(bias_after({tn, epilogue}) == RecipeBias::Add::rounded);  // a kernel of its own reads the rounded output
    const std::string nn = "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 3, 4, false, T>(P)";
    REQUIRE(recipe_of({nn}) == "cublas.gemm_sn_nn");
    CHECK(resolve(*match_recipe({nn}), {{"custom_option", n(1)}}, {nn}, 32).at("parts") == n(4));
}
