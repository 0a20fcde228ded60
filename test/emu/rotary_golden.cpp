// The rotary table that transformers computes from a config, against the tables of the captured layers.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/blocks/config.hpp"
#include "emu/io/safetensors.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

TEST_CASE("rotary frequencies: of the config of every captured layer, default and llama3") {
    int default_tables = 0, llama3_tables = 0, different = 0, interpolated = 0;
    const auto folder = test::testdata() / "h200/layers";
    for (const auto& entry : std::filesystem::directory_iterator(folder / "capture")) {
        std::ifstream in(entry.path());
        const nlohmann::json capture = nlohmann::json::parse(in);
        const nlohmann::json& rope = capture.at("rope_parameters");
        const bool llama3 = rope.at("rope_type") == "llama3";
        const std::int64_t dim = capture.at("hd").get<std::int64_t>();
        // As transformers 5 writes it, and as older versions do.
        nlohmann::json old{{"rope_theta", rope.at("rope_theta")}, {"rope_scaling", nullptr}};
        if (llama3) {
            old["rope_scaling"] = rope;
            old["rope_scaling"].erase("rope_theta");
        }
        const Tensor want = SafetensorsFile::open(folder / (entry.path().stem().string() + ".safetensors")).tensor("inv_freq");
        const Tensor plain = rotary_frequencies(Params::parse(nlohmann::json{{"rope_theta", rope.at("rope_theta")}}.dump(), "c", ""), dim);
        for (const nlohmann::json& config : {nlohmann::json{{"rope_parameters", rope}}, old}) {
            const Tensor got = rotary_frequencies(Params::parse(config.dump(), "config", ""), dim);
            REQUIRE(got.size() == want.size());
            for (std::int64_t i = 0; i < want.size(); ++i) {
                different += got.get(i) != want.get(i) ? 1 : 0;
                // Neither as it was nor an eighth (three less in the exponent).
                interpolated += llama3 && got.get(i) != plain.get(i) && got.get(i) != plain.get(i) - (3U << 23) ? 1 : 0;
            }
            ++(llama3 ? llama3_tables : default_tables);
        }
    }
    CHECK(default_tables == 96);
    CHECK(llama3_tables == 42);
    CHECK(different == 0);
    CHECK(interpolated == 6 * llama3_tables);
}
