#include "emu/identify.hpp"

#include <catch2/catch.hpp>

#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/ops/op.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// An op whose recorded output this program computed: what is tested is the search, on GPU outputs it is tested
/// elsewhere. Inputs are mirrored where they can be, so that outputs are pure rounding and few of them tell orders
/// apart.
RecordedOp make(const std::string& op,
                const std::string& gpu,
                const std::string& kernel,
                const std::string& params,
                std::map<std::string, Tensor> in,
                const Format& out) {
    OpRequest request{.id = "it",
                      .op = op,
                      .gpu = find_gpu(gpu),
                      .kernel = kernel,
                      .kernel_names = {},
                      .params = Params::parse(params, "test", ""),
                      .in = std::move(in),
                      .out_format = out,
                      .recorded = {},
                      .rows = {},
                      .cols = {}};
    const OpResult result = find_op(op)(request);
    RecordedOutput recorded{.name = result.main,
                            .values = result.out.at(result.main),
                            .sha256 = {},
                            .exact_nan = true,
                            .rows = {},
                            .cols = {}};
    return {"it", "", std::move(request), {std::move(recorded)}};
}

Tensor numbers(std::uint64_t seed, Mirror mirror, const Format& format, std::vector<std::int64_t> shape) {
    return synthetic(
        {.seed = seed, .exp2 = 0, .plus = {}, .mirror = mirror, .format = format, .shape = std::move(shape)});
}

std::map<std::string, Tensor> product(const Format& format, std::int64_t m, std::int64_t n, std::int64_t k) {
    return {{"x", numbers(1, Mirror::even, format, {m, k})}, {"w", numbers(2, Mirror::odd, format, {n, k})}};
}

bool names(const CandidateGroup& group, const std::string& gpu, const std::string& kernel, const std::string& params) {
    return std::any_of(group.names.begin(), group.names.end(), [&](const CandidateName& name) {
        return name.kernel == kernel && name.params == params &&
               std::find(name.gpus.begin(), name.gpus.end(), gpu) != name.gpus.end();
    });
}

}  // namespace

TEST_CASE("identify: finds the GPU, recipe and split of a product, and nothing else") {
    struct Case {
        std::string gpu, kernel, params, plainest;
        Format in, out;
    };
    const Case cases[] = {
        {"h200", "cublas.nvjet", R"({"split_k": 3})", R"({"split_k":3})", bf16, bf16},
        {"h200", "cublas.nvjet", "{}", "{}", fp16, fp32},
        {"a100",
         "cutlass.tensorop",
         R"({"split_k": 4, "reduction": "inplace"})",
         R"({"reduction":"inplace","split_k":4})",
         bf16,
         bf16},
        {"v100", "single_walk", "{}", "{}", fp16, fp16},
        {"l40", "single_walk", "{}", "{}", e4m3, fp32},
    };
    for (const Case& c : cases) {
        INFO(c.gpu << " " << c.kernel << " " << c.params);
        const IdentifyReport report =
            identify(make("linear", c.gpu, c.kernel, c.params, product(c.in, 6, 40, 1000), c.out), {});
        CHECK(report.exit_code() == 0);
        REQUIRE(report.found.size() == 1);
        CHECK(names(report.found.front(), c.gpu, c.kernel, c.plainest));
        CHECK(report.recorded == 240);
        CHECK(report.compared == 240);
        CHECK(report.separation > 0);
        REQUIRE_FALSE(report.runners_up.empty());
        CHECK(report.separation == report.runners_up.front().different);
        CHECK(report.distinct > 100);
    }
}

TEST_CASE("identify: outputs that nothing computes are found by nothing") {
    RecordedOp op = make("linear", "h200", "cublas.nvjet", "{}", product(bf16, 5, 30, 640), fp32);
    Tensor wrong(fp32, op.outputs.front().values.shape());
    for (std::int64_t i = 0; i < wrong.size(); ++i)
        wrong.set(i, op.outputs.front().values.get(i) ^ (i % 7 == 0 ? 1U : 0U));
    op.outputs.front().values = wrong;
    const IdentifyReport report = identify(op, {});
    CHECK(report.exit_code() == 1);
    CHECK(report.found.empty());
    CHECK(report.runners_up.front().different == 22);  // of 150, every seventh
}

TEST_CASE("identify: data that cannot tell orders apart leave them all standing") {
    std::map<std::string, Tensor> zeros{{"x", Tensor(bf16, {3, 256})}, {"w", Tensor(bf16, {4, 256})}};
    const IdentifyReport report = identify(make("linear", "h200", "cublas.nvjet", R"({"split_k": 2})", zeros, bf16),
                                           {.gpu = "h200", .kernel = "cublas.nvjet"});
    CHECK(report.found.size() > 3);
    CHECK(report.separation == 0);
}

TEST_CASE("identify: a digest alone decides between few candidates, and confirms a sample") {
    RecordedOp op = make("linear", "h200", "cublas.nvjet", R"({"split_k": 2})", product(bf16, 5, 30, 640), bf16);
    const std::string digest = sha256_hex(op.outputs.front().values.bytes());
    const IdentifyReport sampled = identify(op, {.gpu = "h200", .kernel = "cublas.nvjet", .sha256 = digest});
    REQUIRE(sampled.found.size() == 1);
    CHECK(sampled.found.front().digest == true);
    CHECK(identify(op, {.gpu = "h200", .kernel = "cublas.nvjet", .sha256 = std::string(64, '0')}).found.empty());

    op.outputs.front().values = Tensor(fp32, {0});
    op.outputs.front().sha256 = digest;
    CHECK_THROWS_AS(identify(op, {}), InputError);
    const IdentifyReport report =
        identify(op, {.gpu = "h200", .kernel = "cublas.nvjet", .fixed = {{"tile_k", "64"}, {"split_k", "2"}}});
    REQUIRE(report.found.size() == 1);
    CHECK(report.found.front().digest == true);
    CHECK(identify(op, {.gpu = "h200", .kernel = "cublas.nvjet", .fixed = {{"tile_k", "64"}, {"split_k", "3"}}})
              .exit_code() == 1);
}

TEST_CASE("identify: finds the split of an attention's keys and the tiles of its GPU") {
    const std::map<std::string, Tensor> in{{"q", numbers(1, Mirror::none, fp16, {1, 2, 40, 128})},
                                           {"k", numbers(2, Mirror::none, fp16, {1, 2, 700, 128})},
                                           {"v", numbers(3, Mirror::none, fp16, {1, 2, 700, 128})}};
    const IdentifyReport report = identify(make("attention", "h200", "torch.flash2", R"({"splits": 3})", in, fp16), {});
    REQUIRE(report.found.size() == 1);
    CHECK(names(report.found.front(), "h200", "torch.flash2", R"({"splits":3})"));
    CHECK_FALSE(names(report.found.front(), "a100", "torch.flash2", R"({"splits":3})"));
    CHECK(report.separation > 0);
}

TEST_CASE("identify: finds the alignment of a row sum") {
    const std::map<std::string, Tensor> in{
        {"x",
         synthetic(
             {.seed = 1, .exp2 = 0, .plus = 0x3DCCCCCD, .mirror = Mirror::none, .format = fp32, .shape = {40, 4000}})}};
    const IdentifyReport report =
        identify(make("reduce", "h200", "", R"({"fn": "sum", "storage_offset": 3})", in, fp32), {});
    REQUIRE_FALSE(report.found.empty());
    for (const CandidateGroup& group : report.found)
        CHECK(group.effect.find("starting 3 after a boundary") != std::string::npos);
    CHECK(names(report.found.front(), "h200", "torch.2.11", R"({"storage_offset":3})"));
}
