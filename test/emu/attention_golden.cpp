#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/attention.hpp"
#include "emu/compare.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

// The outputs and hashes of testdata/h200/attention are compared by the manifests there; here is what a manifest cannot say.
namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

/// [length, heads · d] or [length, heads, d] as [1, heads, length, d].
Tensor by_head(const Tensor& x, std::int64_t heads) {
    const std::int64_t length = x.dim(0), d = x.size() / length / heads;
    Tensor out(x.format(), {1, heads, length, d});
    for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t j = 0; j < d; ++j) out.set((h * length + i) * d + j, x.get((i * heads + h) * d + j));
    return out;
}

OpRequest attention_stage(const SafetensorsFile& file) {
    OpRequest op{.id = "attn", .op = "attention", .gpu = find_gpu("h200"), .kernel = {}, .kernel_names = {}, .params = {}, .in = {},
                 .out_format = {}, .recorded = {}, .rows = {}, .cols = {}};
    op.in["q"] = by_head(file.tensor("q_rope"), 8);
    op.in["k"] = by_head(file.tensor("k_rope"), 2);
    op.in["v"] = by_head(file.tensor("v"), 2);
    op.params.set("causal", "true");
    return op;
}

Comparison compare_stage(const SafetensorsFile& file, const OpRequest& op) {
    const Tensor expected = by_head(file.tensor("attn"), 8);
    return compare(expected, find_op("attention")(op).out.at("o"));
}

}  // namespace

TEST_CASE("attention: the flash stage of a recorded layer, recognised by its kernel names") {
    const std::filesystem::path folder = test::captures() / "h200/block";
    if (!std::filesystem::exists(folder)) return test::skip("no captures");
    const SafetensorsFile file = SafetensorsFile::open(folder / "block_small_sdpa.safetensors");
    OpRequest op = attention_stage(file);
    const nlohmann::json launches = read_json(folder / "block_small_sdpa.json").at("kernels");
    for (const auto& kernel : launches)
        if (const std::string name = kernel[0]; name.find("pytorch_flash") != std::string::npos) op.kernel_names.push_back(name);
    REQUIRE(op.kernel_names.size() == 2);
    const Comparison c = compare_stage(file, op);
    CHECK(c.compared == 192 * 1024);
    CHECK(c.different == 0);
}

TEST_CASE("attention: the eager stage of a recorded layer") {
    const std::filesystem::path folder = test::captures() / "h200/block";
    if (!std::filesystem::exists(folder)) return test::skip("no captures");
    const SafetensorsFile file = SafetensorsFile::open(folder / "block_small_eager.safetensors");
    OpRequest op = attention_stage(file);
    // The launches from the product before the softmax to the one after it.
    const nlohmann::json launches = read_json(folder / "block_small_eager.json").at("kernels");
    for (const auto& kernel : launches) {
        const std::string name = kernel[0];
        if (name.rfind("nvjet_sm90_tst_64x48", 0) != 0 && op.kernel_names.empty()) continue;
        op.kernel_names.push_back(name);
        if (name.rfind("nvjet_sm90_tst_32x64", 0) == 0) break;
    }
    REQUIRE(op.kernel_names.size() == 7);
    const Comparison c = compare_stage(file, op);
    CHECK(c.compared == 192 * 1024);
    CHECK(c.different == 0);
    op.kernel_names.clear();
    op.kernel = "torch.eager";
    CHECK(compare_stage(file, op).different == 0);
}

TEST_CASE("attention: the host rule chooses the recorded kernels, tiles and numbers of parts") {
    const std::filesystem::path path = test::captures() / "h200/ops/attn_hashes.json";
    if (!std::filesystem::exists(path)) return test::skip("no captures");
    const nlohmann::json document = read_json(path);
    int unsplit = 0, split = 0;
    for (const nlohmann::json& c : document.at("cases")) {
        const Format format = find_format(c.at("dt").get<std::string>())->format;
        const std::int64_t b = c.at("b"), h = c.at("h"), hk = c.at("hk"), sq = c.at("Sq"), sk = c.at("Sk"), d = c.at("hd");
        FlashCall call{find_gpu("h200"), *find_flash_build("torch.flash2"), Tensor(format, {b, h, sq, d}), Tensor(format, {b, hk, sk, d}),
                       Tensor(format, {b, hk, sk, d})};
        call.causal = c.at("causal") != 0;
        call.multiprocessors = document.at("multiprocessors");
        if (!c.at("win").is_null()) {
            call.window_left = c.at("win")[0];
            call.window_right = c.at("win")[1];
        }
        const FlashPlan plan = plan_flash(call);
        const auto& kernel = c.at("kernels")[0];
        const FlashKernelName name = parse_flash_kernel_name(kernel[0].get<std::string>());
        INFO(c.at("name"));
        CHECK(name.head_dim == plan.head_dim);
        CHECK(name.split == (plan.splits > 1));
        CHECK(name.tile == plan.tile);
        if (name.split) CHECK(plan.splits == kernel[1][1]);
        ++(name.split ? split : unsplit);
    }
    CHECK(unsplit == 16);
    CHECK(split == 18);
}

TEST_CASE("attention: cuDNN's kernels on inputs that no generator makes: no scores, and values that show each probability") {
    const std::filesystem::path base = test::testdata() / "h200/attention/cudnn";
    const SafetensorsFile file = SafetensorsFile::open(base.string() + ".safetensors");
    int calls = 0;
    std::int64_t compared = 0;
    for (const nlohmann::json& c : read_json(base.string() + ".json")) {
        if (!c.contains("probe")) continue;
        const std::string name = c.at("name");
        const Format format = find_format(c.at("dtype").get<std::string>())->format;
        const std::int64_t sq = c.at("Sq"), sk = c.at("Sk"), d = c.at("d");
        const CudnnKernel* kernel = match_cudnn_kernel({c.at("kernels")[0][0].get<std::string>()});
        REQUIRE(kernel != nullptr);
        const auto input = [&](std::uint64_t seed, std::int64_t length) { return synthetic({.seed = seed, .format = format, .shape = {1, 1, length, d}}); };
        CudnnCall call{find_gpu("h200"), *kernel, input(500, sq), input(501, sk), input(502, sk), c.at("causal").get<bool>()};
        if (c.at("probe") == "zero") {
            call.q = Tensor(format, call.q.shape());
        } else {
            const std::int64_t first = c.at("first");
            call.v = Tensor(format, call.v.shape());
            for (std::int64_t i = 0; i < std::min(d, sk - first); ++i) call.v.set((first + i) * d + i, format == bf16 ? 0x3F80 : 0x3C00);
        }
        const AttentionResult result = cudnn_attention(call);
        INFO(name);
        const Comparison lse = compare(file.tensor(name + ".lse"), result.lse);
        CHECK(lse.different == 0);
        // Large outputs were kept in part.
        const Tensor recorded = file.tensor(name + ".o");
        if (c.contains("rows")) {
            const auto rows = c.at("rows").get<std::vector<std::int64_t>>();
            Tensor part(format, recorded.shape());
            for (std::size_t r = 0; r < rows.size(); ++r)
                for (std::int64_t i = 0; i < d; ++i) part.set(static_cast<std::int64_t>(r) * d + i, result.o.get(rows[r] * d + i));
            CHECK(compare(recorded, part).different == 0);
        } else {
            CHECK(compare(recorded, result.o).different == 0);
        }
        compared += lse.compared + recorded.size();
        ++calls;
    }
    CHECK(calls == 16);
    CHECK(compared > 100'000);
}

TEST_CASE("attention: a layer whose attention has no model is refused there, and equal before") {
    int layers = 0;
    for (const auto& entry : std::filesystem::directory_iterator(test::testdata() / "h200/layers")) {
        if (!entry.path().string().ends_with(".open.json")) continue;
        const auto result = test::run(test::cli() + " replay " + entry.path().string() + " --json -");
        INFO(entry.path());
        REQUIRE(result.exit_code == 3);
        const nlohmann::json report = nlohmann::json::parse(result.output);
        CHECK(report.at("checks").size() >= 6);
        for (const auto& check : report.at("checks")) CHECK(check.at("different") == 0);
        ++layers;
    }
    CHECK(layers == 3);
}
