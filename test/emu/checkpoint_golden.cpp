// A captured layer once more, its weights out of a checkpoint folder as Hugging Face writes it.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/io/atomic_file.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/replay.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using nlohmann::json;

namespace {

json read(const std::filesystem::path& path) {
    std::ifstream in(path);
    return json::parse(in);
}

void write(const std::filesystem::path& path, const json& value) {
    AtomicFile file(path);
    file.write(value.dump());
    file.commit();
}

}  // namespace

TEST_CASE("checkpoint: the captured Qwen3-4B layer from two shards, every stage by its SHA-256") {
    const std::filesystem::path folder = test::scratch("checkpoint");
    json manifest = read(test::testdata() / "h200/layers/qwen3_4b_flash_m17.json");
    const Manifest original = parse_manifest(manifest.dump(), folder / "original.json");

    std::map<std::string, Tensor> shards[2];
    json index{{"metadata", {{"total_size", 0}}}};
    for (const auto& [name, source] : original.tensors) {
        if (!name.starts_with("layer.")) continue;
        const std::string key = "model.layers.7." + name.substr(6);
        const bool second = name.find(".mlp.") != std::string::npos;
        shards[second][key] = synthetic(*source.synthetic);
        index["weight_map"][key] = second ? "model-00002-of-00002.safetensors" : "model-00001-of-00002.safetensors";
        manifest["tensors"].erase(name);
    }
    REQUIRE(shards[0].size() + shards[1].size() == 11);
    write_safetensors(folder / "model-00001-of-00002.safetensors", shards[0]);
    write_safetensors(folder / "model-00002-of-00002.safetensors", shards[1]);
    for (auto& shard : shards) shard.clear();
    write(folder / "model.safetensors.index.json", index);

    json& op = manifest["ops"][0];
    json config = op["params"]["config"];
    config.update(json{{"architectures", {"Qwen3ForCausalLM"}}, {"attention_bias", false}, {"hidden_act", "silu"}, {"max_position_embeddings", 40960},
                       {"model_type", "qwen3"}, {"num_hidden_layers", 36}, {"rope_scaling", nullptr}, {"rope_theta", 1000000}, {"sliding_window", nullptr},
                       {"tie_word_embeddings", true}, {"torch_dtype", "bfloat16"}, {"use_sliding_window", false}, {"vocab_size", 151936}});
    config.erase("rope_parameters");  // as transformers 4 wrote it
    write(folder / "config.json", config);
    for (const char* key : {"config", "model"}) op["params"].erase(key);
    op["in"]["weights"] = "qwen/model.layers.7.";
    manifest["checkpoints"] = {{"qwen", {{"folder", "."}}}};

    const ReplayReport report = replay(parse_manifest(manifest.dump(), folder / "m.json"), {});
    CHECK(report.not_modelled.empty());
    CHECK(report.checks.size() == 18);
    std::int64_t compared = 0;
    for (const Check& check : report.checks) {
        INFO(check.output);
        CHECK(check.comparison.different == 0);
        compared += check.comparison.compared;
    }
    CHECK(compared > 17 * 60000);
    CHECK(report.exit_code() == 0);
}
