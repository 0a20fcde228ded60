#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "emu/compare.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

/// The inputs of the captures: normal numbers, seeds 500, 501 and 502.
OpRequest request(const Format& format, const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& kv, int q_exp2) {
    OpRequest out{"case", "attention", find_gpu("h200"), "torch.flash2", {}, {}, {}, {}, {}, {}, {}};
    out.in["q"] = synthetic({.seed = 500, .exp2 = q_exp2, .format = format, .shape = q});
    out.in["k"] = synthetic({.seed = 501, .format = format, .shape = kv});
    out.in["v"] = synthetic({.seed = 502, .format = format, .shape = kv});
    return out;
}

}  // namespace

TEST_CASE("attention: flash outputs of an H200, every element") {
    const std::filesystem::path folder = test::captures() / "h200/ops";
    if (!std::filesystem::exists(folder / "attn.safetensors")) return test::skip("no captures");
    const SafetensorsFile file = SafetensorsFile::open(folder / "attn.safetensors");
    const nlohmann::json kernels = read_json(folder / "attn.json");
    std::int64_t compared = 0, different = 0;
    for (const auto& [name, list] : kernels.items()) {
        std::int64_t s = 0, h = 0, hk = 0, d = 0, causal = 0;
        REQUIRE(std::sscanf(name.c_str(), "fa_%ld_%ld_%ld_%ld_%ld", &s, &h, &hk, &d, &causal) == 5);
        OpRequest op = request(bf16, {1, h, s, d}, {1, hk, s, d}, 0);
        op.kernel = "";  // recognised by the recorded names
        for (const auto& kernel : list) op.kernel_names.push_back(kernel[0]);
        op.params.set("causal", causal != 0 ? "true" : "false");
        const OpResult result = find_op("attention")(op);
        for (const char* output : {"o", "lse"}) {
            const Comparison c = compare(file.tensor(name + (*output == 'o' ? "_out" : "_lse")), result.out.at(output));
            INFO(name << ' ' << output << ": " << c.different << " of " << c.compared << " differ");
            CHECK(c.different == 0);
            compared += c.compared;
            different += c.different;
        }
    }
    CHECK(different == 0);
    CHECK(compared == 64 * 129 + 2 * 200 * 129 + 2 * 512 * 65 + 1000 * 129 + 2 * 129);
}

TEST_CASE("attention: SHA-256 of 34 flash calls of an H200") {
    const std::filesystem::path path = test::captures() / "h200/ops/attn_hashes.json";
    if (!std::filesystem::exists(path)) return test::skip("no captures");
    const nlohmann::json document = read_json(path);
    int cases = 0;
    for (const nlohmann::json& c : document.at("cases")) {
        const std::string name = c.at("name");
        const Format& format = find_format(c.at("dt").get<std::string>())->format;
        const std::int64_t b = c.at("b"), h = c.at("h"), hk = c.at("hk"), sq = c.at("Sq"), sk = c.at("Sk"), d = c.at("hd");
        if (const char* only = std::getenv("ONLY"); only != nullptr && name != only) continue;
        OpRequest op = request(format, {b, h, sq, d}, {b, hk, sk, d}, c.at("qexp"));
        for (const auto& kernel : c.at("kernels")) op.kernel_names.push_back(kernel[0]);
        op.params.set("causal", c.at("causal") != 0 ? "true" : "false");
        op.params.set("multiprocessors", document.at("multiprocessors").dump());
        if (!c.at("scale").is_null()) op.params.set("scale", c.at("scale").dump());
        if (!c.at("win").is_null()) op.params.set("window", c.at("win").dump());
        const auto start = std::chrono::steady_clock::now();
        const OpResult result = find_op("attention")(op);
        std::cout << name << ' ' << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s\n";
        INFO(name);
        CHECK(sha256_hex(result.out.at("o").bytes()) == c.at("sha256_out"));
        CHECK(sha256_hex(result.out.at("lse").bytes()) == c.at("sha256_lse"));
        ++cases;
    }
    CHECK(cases == 34);
}
