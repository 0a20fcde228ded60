#include <catch2/catch.hpp>

#include "emu/blocks/config.hpp"
#include "formats/error.hpp"

using namespace bitreplay;

namespace {

Params config(const std::string& more) {
    return Params::parse(R"({"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "rms_norm_eps": 1e-6)" + more + "}", "config.json", "");
}

}  // namespace

TEST_CASE("layer config: defaults, and what a layer here does not have") {
    const LayerConfig plain = LayerConfig::read(config(""));
    CHECK(plain.kv_heads == 4);
    CHECK(plain.head_dim == 16);
    CHECK(LayerConfig::read(config(R"(, "head_dim": null)")).head_dim == 16);
    const LayerConfig grouped = LayerConfig::read(config(R"(, "head_dim": 32, "num_key_value_heads": 2)"));
    CHECK(grouped.weight_shape("self_attn.k_proj.weight") == std::vector<std::int64_t>{64, 64});
    CHECK(grouped.weight_shape("self_attn.o_proj.weight") == std::vector<std::int64_t>{64, 128});
    CHECK(grouped.weight_shape("self_attn.q_norm.weight") == std::vector<std::int64_t>{32});
    CHECK(grouped.weight_shape("mlp.down_proj.bias") == std::vector<std::int64_t>{64});
    CHECK_FALSE(grouped.weight_shape("self_attn.sinks"));
    CHECK_THROWS_AS(LayerConfig::read(config(R"(, "sliding_window": 128)")), NotModelled);
    CHECK_THROWS_AS(LayerConfig::read(config(R"(, "hidden_act": "gelu")")), NotModelled);
    CHECK_THROWS_WITH(LayerConfig::read(config(R"(, "num_key_value_heads": 3)")), "config.json: /num_key_value_heads: must divide num_attention_heads");
    CHECK_THROWS_WITH(LayerConfig::read(config(R"(, "quantization_config": {})")), "config.json: /quantization_config: unknown key");
}

TEST_CASE("rotary frequencies: a config that does not say how is refused, not guessed") {
    const auto table = [](const std::string& more) { return rotary_frequencies(config(more), 16); };
    CHECK(table(R"(, "rope_theta": 10000)").size() == 8);
    CHECK(table(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4})").get(1) == table(R"(, "rope_theta": 10000)").get(1));
    CHECK_THROWS_AS(table(""), NotModelled);
    CHECK_THROWS_AS(table(R"(, "rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 4.0})"), NotModelled);
    CHECK_THROWS_AS(table(R"(, "rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0})"), NotModelled);
    CHECK_THROWS_AS(table(R"(, "rope_theta": 1e4, "partial_rotary_factor": 0.5)"), NotModelled);
    CHECK_THROWS_AS(table(R"(, "rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_theta": 1e4})"), NotModelled);
    CHECK_THROWS_AS(table(R"(, "rope_theta": 0)"), NotModelled);
    const std::string llama = R"(, "rope_theta": 1e4, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, )";
    CHECK(table(llama + R"("high_freq_factor": 4, "original_max_position_embeddings": 64})").get(0) == 0x3F800000);
    CHECK_THROWS_AS(table(llama + R"("high_freq_factor": 4})"), InputError);
    CHECK_THROWS_AS(table(llama + R"("high_freq_factor": 1, "original_max_position_embeddings": 64})"), InputError);
    CHECK_THROWS_AS(table(llama + R"("high_freq_factor": -4, "original_max_position_embeddings": 64})"), InputError);
}
