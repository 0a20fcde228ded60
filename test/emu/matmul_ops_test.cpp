// Shapes, batches and kernel choice of the matrix product ops; their numbers are compared with GPU captures elsewhere.

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>

#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"

using namespace bitreplay;

namespace {

using Inputs = std::map<std::string, Tensor>;

Tensor random(std::uint64_t seed, std::vector<std::int64_t> shape, Format format = bf16) {
    return synthetic({.seed = seed, .exp2 = 0, .plus = {}, .mirror = {}, .format = format, .shape = std::move(shape)});
}

OpRequest request(const std::string& op,
                  Inputs in,
                  const std::string& params = "{}",
                  const std::string& kernel = "single_walk") {
    return {.id = "p",
            .op = op,
            .gpu = find_gpu("h200"),
            .kernel = kernel,
            .kernel_names = {},
            .params = Params::parse(params, "m.json", "/ops/0/params"),
            .in = std::move(in),
            .out_format = {},
            .recorded = {},
            .rows = {},
            .cols = {}};
}

Tensor run(const OpRequest& what) { return find_op(what.op)(what).out.at(""); }

Tensor part(const Tensor& batch, std::int64_t entry) {
    Tensor out(batch.format(), {batch.dim(1), batch.dim(2)});
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, batch.get(entry * out.size() + i));
    return out;
}

bool same(const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() && std::ranges::equal(x.bytes(), y.bytes());
}

std::string failure(const OpRequest& what) {
    try {
        run(what);
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

const std::string badd = "nvjet_sm90_tst_64x8_64x16_4x1_v_badd_TNT", bx = "nvjet_sm90_tst_64x8_64x16_4x1_v_bx_TNT";

}  // namespace

TEST_CASE("products: a batch is its entries one by one, whichever op names it") {
    const Tensor a = random(1, {3, 4, 40}), b = random(2, {3, 40, 5}), w = random(3, {3, 6, 40});
    const Tensor bmm = run(request("bmm", {{"a", a}, {"b", b}})), linear = run(request("linear", {{"x", a}, {"w", w}}));
    CHECK(bmm.shape() == std::vector<std::int64_t>{3, 4, 5});
    CHECK(linear.shape() == std::vector<std::int64_t>{3, 4, 6});
    CHECK(same(bmm, run(request("matmul", {{"a", a}, {"b", b}}))));
    for (std::int64_t entry = 0; entry < 3; ++entry) {
        CHECK(same(part(bmm, entry), run(request("mm", {{"a", part(a, entry)}, {"b", part(b, entry)}}))));
        CHECK(same(part(linear, entry), run(request("linear", {{"x", part(a, entry)}, {"w", part(w, entry)}}))));
    }
    OpRequest sampled = request("bmm", {{"a", a}, {"b", b}});
    sampled.batch = {2, 0};
    sampled.rows = {3};
    sampled.cols = {1, 4};
    const OpResult chosen = find_op("bmm")(sampled);
    REQUIRE(chosen.selected);
    REQUIRE(chosen.out.at("").shape() == std::vector<std::int64_t>{2, 1, 2});
    CHECK(chosen.out.at("").get(1) == bmm.get((2 * 4 + 3) * 5 + 4));
    CHECK(chosen.out.at("").get(2) == bmm.get(3 * 5 + 1));
    CHECK(run(request("matmul", {{"a", random(4, {2, 3, 4, 40})}, {"b", random(5, {2, 3, 40, 5})}})).shape() ==
          std::vector<std::int64_t>{2, 3, 4, 5});
}

TEST_CASE("products: vectors on either side") {
    const Tensor a = random(1, {4, 40}), b = random(2, {40, 5});
    const Tensor v = random(3, {40});
    CHECK(run(request("mv", {{"a", a}, {"b", v}})).shape() == std::vector<std::int64_t>{4});
    CHECK(run(request("matmul", {{"a", v}, {"b", b}})).shape() == std::vector<std::int64_t>{5});
    CHECK(run(request("matmul", {{"a", v}, {"b", v}})).shape().empty());
    CHECK(run(request("mv", {{"a", a}, {"b", v}})).get(2) ==
          run(request("mm", {{"a", a}, {"b", v.reshape({40, 1})}})).get(2));
}

TEST_CASE("products: c enters as the kernel's recipe says, broadcast to the output") {
    const Tensor a = random(1, {4, 40}), b = random(2, {40, 6}), c = random(3, {6});
    OpRequest plain = request("mm", {{"a", a}, {"b", b}}, "{}", "");
    plain.kernel_names = {badd};
    const Tensor product = run(plain);
    OpRequest add = request("addmm", {{"a", a}, {"b", b}, {"c", c}}, "{}", "");
    add.kernel_names = {badd};
    const Tensor sum = run(add);
    for (std::int64_t i = 0; i < sum.size(); ++i) {  // the badd kernel rounds the product first
        const auto wide = [&](std::uint64_t code) {
            return std::bit_cast<float>(static_cast<std::uint32_t>(convert(bf16, fp32, code)));
        };
        const float expected = wide(product.get(i)) + wide(c.get(i % 6));
        CHECK(sum.get(i) == convert(fp32, bf16, std::bit_cast<std::uint32_t>(expected)));
    }
    const auto with = [&](const std::string& params, const std::string& kernel) {
        OpRequest out = request("addmm", {{"a", a}, {"b", b}, {"c", c}}, params, "");
        out.kernel_names = {kernel};
        return out;
    };
    CHECK_FALSE(same(run(with(R"({"alpha": 2})", badd)), sum));
    CHECK_THROWS_AS(run(with(R"({"beta": 2})", badd)), NotModelled);
    CHECK_NOTHROW(run(with(R"({"alpha": 1.3, "beta": 0.7})", bx)));
    CHECK_THROWS_AS(run(request("addmm", {{"a", a}, {"b", b}, {"c", c}}, "{}", "cublas.nvjet")),
                    NotModelled);  // badd or bx is not known
}

TEST_CASE("products: the cuBLASLt log chooses the kernel and must fit what else was recorded") {
    const Tensor x = random(1, {4, 200}), w = random(2, {6, 200});
    const auto logged = [&](const std::string& line, const std::string& params = "{}") {
        OpRequest out = request("linear", {{"x", x}, {"w", w}}, params, "");
        out.cublaslt = parse_cublaslt_log(line);
        return out;
    };
    const Tensor split = run(logged("algoId=66 stages=STAGES_64xAUTO numSplitsK=3"));
    CHECK(same(split, run(request("linear", {{"x", x}, {"w", w}}, R"({"split_k": 3})", "cublas.nvjet"))));
    CHECK_THAT(failure(logged("algoId=66 stages=STAGES_64xAUTO numSplitsK=3", R"({"split_k": 2})")),
               Catch::Matchers::Contains("contradicts the cuBLASLt log"));
    OpRequest named = logged("algoId=23 stages=STAGES_64x3");
    named.kernel_names = {bx};
    CHECK_THROWS_WITH(run(named), Catch::Matchers::Contains("kernel cublas.nvjet under cuBLASLt's algoId=23"));
    CHECK_THAT(failure(logged("algoId=66 epilogue=EPILOGUE_BIAS")),
               Catch::Matchers::Contains("the log has a bias, the op has none") ||
                   Catch::Matchers::Contains("has a bias, the op has none"));
    const auto reason = [&](const std::string& line) {
        try {
            run(logged(line));
        } catch (const NotModelled& error) {
            return std::string(error.what());
        }
        return std::string("modelled");
    };
    CHECK_THAT(reason("algoId=9999"), Catch::Matchers::Contains("algoId=9999 is not modelled"));
    CHECK_THAT(reason("algoId=66 epilogue=EPILOGUE_RELU"), Catch::Matchers::Contains("EPILOGUE_RELU"));
    CHECK_THAT(reason("algoId=43"), Catch::Matchers::Contains("algoId=43 is not modelled"));  // not with bf16 operands
    CHECK_THAT(reason("algoId=23 stages=STAGES_64x3"), Catch::Matchers::Contains("instruction_k"));
    OpRequest single =
        request("linear", {{"x", random(1, {4, 200}, fp32)}, {"w", random(2, {6, 200}, fp32)}}, "{}", "");
    single.cublaslt = parse_cublaslt_log("algoId=43 computeType=COMPUTE_32F_FAST_TF32");
    CHECK_THROWS_WITH(run(single), Catch::Matchers::Contains("record the kernel names"));  // with or without segments
    CHECK_THAT(reason("algoId=66 numSplitsK=many"), Catch::Matchers::Contains("numSplitsK=many"));
}

TEST_CASE("products: a bias that the log does not name was a c") {
    const Tensor x = random(1, {4, 200}), w = random(2, {6, 200}), bias = random(3, {6});
    const auto run_with = [&](const std::string& op_input, const std::string& line) {
        OpRequest out = request("linear", {{"x", x}, {"w", w}, {op_input, bias}}, "{}", "");
        out.kernel_names = {badd};
        out.cublaslt = parse_cublaslt_log(line);
        return run(out);
    };
    CHECK(same(run_with("bias", "algoId=66"), run_with("c", "algoId=66")));
}

TEST_CASE("products: TF32 kernels round FP32 operands to nearest even first") {
    const Tensor x = random(1, {2, 24}, fp32), w = random(2, {3, 24}, fp32);
    Tensor rounded_x(fp32, x.shape());
    for (std::int64_t i = 0; i < x.size(); ++i) rounded_x.set(i, convert(tf32, fp32, convert(fp32, tf32, x.get(i))));
    Tensor finer(fp32, x.shape());  // 2^-11 of the last kept bit more: the same after rounding
    for (std::int64_t i = 0; i < x.size(); ++i) finer.set(i, rounded_x.get(i) + 1);
    const Tensor y = run(request("linear", {{"x", rounded_x}, {"w", w}}, "{}", "cublas.xmma_sm90"));
    CHECK(same(y, run(request("linear", {{"x", finer}, {"w", w}}, "{}", "cublas.xmma_sm90"))));
    CHECK(y.format() == fp32);
    CHECK_THROWS_AS(run(request("linear", {{"x", x}, {"w", w}}, "{}", "cublas.nvjet")),
                    NotModelled);  // FP32 operands as they are
}

TEST_CASE("products: FP64 kernels take FP64 operands, and no other kernel does") {
    for (const Format& format : {bf16, fp32, fp64})
        for (const char* kernel : {"cutlass.fp64", "cublas.nvjet"}) {
            const OpRequest product =
                request("linear", {{"x", random(1, {2, 24}, format)}, {"w", random(2, {3, 24}, format)}}, "{}", kernel);
            const bool fits = format == (std::string_view(kernel) == "cutlass.fp64" ? fp64 : bf16);
            if (fits)
                CHECK(run(product).size() == 6);
            else
                CHECK_THROWS_AS(run(product), NotModelled);
        }
}

TEST_CASE("products: CUDA-core kernels take the operands that they were captured with") {
    for (const char* kernel : {"cublas.simt_sgemm", "cublas.sgemm_largek"}) {
        const auto product = [&](const Format& format) {
            return request("linear",
                           {{"x", random(1, {2, 24}, format)}, {"w", random(2, {3, 24}, format)}},
                           R"({"split_k": 1})",
                           kernel);
        };
        CHECK(run(product(fp32)).size() == 6);
        CHECK_THROWS_AS(run(product(bf16)), NotModelled);
    }
}

TEST_CASE("products: the tiles of a partial round have their own order, wherever they are asked for") {
    const Tensor x = random(1, {20, 128}, fp32), w = random(2, {24, 128}, fp32);
    const std::string params =
        R"({"ctas": 6, "tile_m": 8, "tile_n": 8, "tile_k": 32, "cluster_m": 3, "cluster_n": 1, "swizzle": 0, "along_k": 1, "workspace": 1700})";
    const OpRequest all = request("linear", {{"x", x}, {"w", w}}, params, "cublas.xmma_sm90_segments");
    const Tensor y = run(all), single = run(request("linear", {{"x", x}, {"w", w}}, "{}", "cublas.xmma_sm90"));
    std::int64_t differing = 0;
    for (std::int64_t i = 0; i < 20; ++i)
        for (std::int64_t j = 0; j < 24; ++j)
            if (y.get(i * 24 + j) != single.get(i * 24 + j)) {
                ++differing;
                CHECK(j >= 16);  // 3 x 3 tiles, the first two columns of them in a whole round
            }
    CHECK(differing > 0);
    OpRequest some = all;
    some.rows = {19, 3, 17};
    some.cols = {23, 0, 18};
    const Tensor chosen = run(some);
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j)
            CHECK(chosen.get(static_cast<std::int64_t>(3 * i + j)) == y.get((*some.rows)[i] * 24 + (*some.cols)[j]));
}

TEST_CASE("products: FP64 on CUDA cores is refused where no capture shows the result") {
    const auto refusal = [](const OpRequest& what) -> std::string {
        try {
            run(what);
        } catch (const NotModelled& error) {
            return error.what();
        }
        return "accepted";
    };
    const Tensor x = random(1, {1, 40}, fp64), w = random(2, {6, 40}, fp64);
    const std::string option = R"({"custom_option": 39})", chosen = "cublas.gemv_fp64";
    CHECK(refusal(request("linear", {{"x", x}, {"w", w}}, option, chosen)) == "accepted");
    CHECK(
        refusal(request("linear", {{"x", x}, {"w", w}}, R"({"custom_option": 2})", chosen)).find("custom_option = 2") !=
        std::string::npos);
    CHECK(refusal(request("linear", {{"x", x}, {"w", w}}, option, "cublas.gemv")).find("with fp64 operands") !=
          std::string::npos);
    CHECK(refusal(request("linear", {{"x", x}, {"w", w}}, R"({"split_k": 1})", "cublas.simt_sgemm"))
              .find("with fp64 operands") != std::string::npos);
    const Inputs single{{"x", random(1, {1, 40}, fp32)}, {"w", random(2, {6, 40}, fp32)}};
    CHECK(refusal(request("linear", single, option, chosen)).find("with fp32 operands") != std::string::npos);
    const auto with = [&](std::uint64_t code) {
        Tensor changed(fp64, {1, 40});
        changed.set(7, code);
        return refusal(request("linear", {{"x", changed}, {"w", w}}, option, chosen));
    };
    CHECK(with(0) == "accepted");
    CHECK(with(fp64.infinity() + 1).find("a NaN or -0") != std::string::npos);
    CHECK(with(fp64.infinity()).find("a NaN or -0") == std::string::npos);  // the other products are zeros: ±infinity
    const Tensor tiny_x(fp64, {1, 1}), tiny_w(fp64, {1, 1});
    Tensor least = tiny_x, negative = tiny_w;
    least.set(0, 1);
    negative.set(0, fp64.sign_mask() | 1);
    CHECK(refusal(request("linear", {{"x", least}, {"w", negative}}, "{}", "cublas.gemmk1_fp64")).find("a NaN or -0") !=
          std::string::npos);
}

TEST_CASE("products: a kernel with operands that it never has is refused") {
    const auto refused = [](const std::string& kernel, const Format& format) {
        OpRequest what = request("linear", {{"x", random(1, {2, 64}, format)}, {"w", random(2, {3, 64}, format)}}, "{}", "");
        what.kernel_names = {kernel};
        if (format == e4m3) what.out_format = bf16;
        try {
            run(what);
        } catch (const NotModelled& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    struct Case {
        std::string kernel;
        Format fits;
    };
    const Case cases[] = {
        {"nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", bf16},
        {"nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_TNT", fp16},
        {"nvjet_sm90_qqtst_128x128_128x6_1x1_h_bz_TNT", e4m3},
        {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8>(P)", bf16},
        {"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_64x6_tn_align8>(P)", fp16},
        {"void cutlass::Kernel2<cutlass_80_tensorop_h16816gemm_64x64_64x6_tn_align8>(P)", fp16},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", bf16},
        {"ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_tn", bf16},
    };
    for (const Case& one : cases)
        for (const Format& format : {bf16, fp16, e4m3, fp32, fp64}) {
            INFO(one.kernel << " " << named(format).name);
            CHECK((refused(one.kernel, format) == "accepted") == (format == one.fits));
        }
    for (const char* kernel : {"cublas.gemv", "cublas.gemmk1", "cublas.dot"})  // CUDA cores
        CHECK_THROWS_WITH(run(request("linear", {{"x", random(1, {1, 64}, e4m3)}, {"w", random(2, {1, 64}, e4m3)}}, "{}", kernel)),
                          Catch::Matchers::Contains("with e4m3 operands"));
    std::int64_t named_formats = 0;
    for (const Recipe& recipe : recipes()) {
        for (const std::string& name : recipe.operands) CHECK(find_format(name) != nullptr);
        for (const auto& [glob, name] : recipe.named_operands) {
            ++named_formats;
            CHECK(std::find(recipe.operands.begin(), recipe.operands.end(), name) != recipe.operands.end());
        }
        CHECK((recipe.operands.empty() || !recipe.families.empty()));
    }
    CHECK(named_formats >= 9);
}

TEST_CASE("products: what is not known of an epilogue comes with what to record") {
    const Tensor x = random(1, {4, 64}), w = random(2, {6, 64}), c = random(3, {6});
    const auto refusal = [&](const std::string& kernel, Inputs in) {
        in.emplace("x", x);
        in.emplace("w", w);
        OpRequest what = request("linear", std::move(in), "{}", kernel.starts_with("nvjet") ? "" : kernel);
        if (what.kernel.empty()) what.kernel_names = {kernel};
        try {
            run(what);
        } catch (const NotModelled& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    CHECK_THAT(refusal("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_gelubias_TNT", {{"bias", c}}), Catch::Matchers::Contains("record cuBLASLt's log line"));
    CHECK_THAT(refusal("nvjet_sm90_tst_64x8_64x16_4x1_v_badd_splitK_TNT", {{"c", c}}), Catch::Matchers::Contains("record cuBLASLt's log line"));
    CHECK_THAT(refusal("cublas.nvjet", {{"c", c}}), Catch::Matchers::Contains("record its kernel names"));
}

TEST_CASE("products: malformed requests are refused") {
    const Tensor a = random(1, {4, 40}), b = random(2, {40, 6}), c = random(3, {6});
    CHECK_THAT(failure(request("addmm", {{"a", a}, {"b", b}})), Catch::Matchers::Contains("missing input \"c\""));
    CHECK_THAT(failure(request("mm", {{"a", a}, {"b", b}}, R"({"alpha": 2})")),
               Catch::Matchers::Contains("alpha needs an input c"));
    CHECK_THAT(failure(request("bmm", {{"a", a}, {"b", b}})), Catch::Matchers::Contains("three dimensions"));
    CHECK_THAT(failure(request("addmm", {{"a", a}, {"b", b}, {"c", random(3, {5})}})),
               Catch::Matchers::Contains("does not broadcast"));
    CHECK_THAT(failure(request("linear", {{"x", random(1, {2, 4, 40})}, {"w", random(2, {3, 6, 40})}})),
               Catch::Matchers::Contains("batches differ"));
    CHECK_THAT(failure(request("mm", {{"a", Tensor(bf16, {4, 0})}, {"b", Tensor(bf16, {0, 6})}})),
               Catch::Matchers::Contains("K is 0"));
    CHECK_THAT(failure(request("linear", {{"x", a}, {"w", random(2, {6, 40})}}, R"({"epilogue": "tanh"})")),
               Catch::Matchers::Contains("none, gelu or relu"));
    CHECK_THROWS_AS(run(request("linear", {{"x", a}, {"w", random(2, {6, 40})}, {"c", c}, {"bias", c}})), NotModelled);
}
