#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/io/synthetic.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

TEST_CASE("synthetic: the weights and input of the captured transformer block have the recorded SHA-256") {
    const auto folder = test::captures() / "h200/block";
    if (!std::filesystem::exists(folder)) return test::skip("no captures");
    int compared = 0;
    for (const std::string tag : {"block_small_sdpa", "block_small_eager"}) {
        const nlohmann::json capture = nlohmann::json::parse(std::ifstream(folder / (tag + ".json")));
        for (const auto& [name, weight] : capture.at("weights").items()) {
            SyntheticSpec spec{
                .seed = weight.at("seed"), .exp2 = weight.at("exp2"), .format = bf16, .shape = weight.at("shape")};
            if (weight.at("kind") == "norm") spec.plus = 0x3F800000;
            INFO(tag << " " << name);
            CHECK(sha256_hex(synthetic(spec).bytes()) == weight.at("sha256"));
            ++compared;
        }
        const auto& input = capture.at("stages").at("hidden_in");
        const SyntheticSpec spec{.seed = capture.at("x").at("seed"),
                                 .exp2 = capture.at("x").at("exp2"),
                                 .format = bf16,
                                 .shape = input.at("shape")};
        CHECK(sha256_hex(synthetic(spec).bytes()) == input.at("sha256"));
        ++compared;
    }
    CHECK(compared == 2 * 12);
}

TEST_CASE("safetensors: every captured file opens, and stage bytes have the recorded SHA-256") {
    if (!std::filesystem::exists(test::captures() / "h200")) return test::skip("no captures");
    int files = 0, tensors = 0, hashes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(test::captures())) {
        if (entry.path().extension() != ".safetensors") continue;
        const SafetensorsFile file = SafetensorsFile::open(entry.path());
        tensors += static_cast<int>(file.names().size());
        ++files;
        if (entry.path().parent_path().filename() != "block") continue;
        auto beside = entry.path();
        const nlohmann::json capture = nlohmann::json::parse(std::ifstream(beside.replace_extension(".json")));
        for (const auto& [name, stage] : capture.at("stages").items()) {
            INFO(name);
            if (!file.contains(name)) continue;
            CHECK(sha256_hex(file.tensor(name).bytes()) == stage.at("sha256"));
            ++hashes;
        }
    }
    CHECK(files >= 40);
    CHECK(tensors > 1000);
    CHECK(hashes >= 40);
}
