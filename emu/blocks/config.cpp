#include "emu/blocks/config.hpp"

#include <bit>
#include <string_view>

#include "arch/fp32.hpp"
#include "emu/torch_cpu.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

/// Keys of a config.json that do not change what a layer computes, given its weights, positions and rotary table.
constexpr std::string_view neutral_keys[] = {
    "_name_or_path", "architectures", "attention_dropout", "bos_token_id", "dtype", "eos_token_id", "initializer_range",
    "layer_types", "max_position_embeddings", "max_window_layers", "model_type", "num_hidden_layers", "pad_token_id",
    "pretraining_tp", "rope_parameters", "rope_scaling", "rope_theta", "tie_word_embeddings", "torch_dtype",
    "transformers_version", "use_cache", "vocab_size"};

bool given(const Params& config, const std::string& key) { return config.has(key) && config.json_of(key) != "null"; }

std::uint32_t single(double value) noexcept { return f64::to_f32(std::bit_cast<std::uint64_t>(value)); }

/// What config.json says of the rotary embedding: transformers 5 puts everything into rope_parameters, older versions the
/// base beside a rope_scaling that is absent or null where nothing is scaled.
struct Rope {
    Params parameters;
    std::string type;
    double theta;
};

Rope read_rope(const Params& config) {
    if (given(config, "rope_parameters") && given(config, "rope_scaling"))
        throw NotModelled("config: rope_parameters beside rope_scaling");
    const std::string key = given(config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    Rope rope{given(config, key) ? config.object(key) : Params(), "", 0};
    rope.type = rope.parameters.text("rope_type", rope.parameters.text("type", "default"));
    const Params& holder = rope.parameters.has("rope_theta") ? rope.parameters : config;
    if (!holder.has("rope_theta")) throw NotModelled("inv_freq was not recorded and config names no rope_theta to compute it from");
    rope.theta = holder.real("rope_theta", 0);
    for (const Params& place : {config, rope.parameters})
        if (place.has("partial_rotary_factor") && place.real("partial_rotary_factor", 1) != 1)
            throw NotModelled("config: partial_rotary_factor is not modelled");
    return rope;
}

}  // namespace

LayerConfig LayerConfig::read(const Params& config) {
    LayerConfig out{};
    constexpr std::int64_t most = 1 << 24;
    const auto required = [&](const char* key) {
        if (!config.has(key)) config.fail(key, "missing key");
        return config.integer(key, 0, 1, most);
    };
    out.hidden = required("hidden_size");
    out.heads = required("num_attention_heads");
    out.kv_heads = config.integer("num_key_value_heads", out.heads, 1, most);
    if (out.heads % out.kv_heads != 0) config.fail("num_key_value_heads", "must divide num_attention_heads");
    out.head_dim = out.hidden / out.heads;
    if (given(config, "head_dim")) out.head_dim = config.integer("head_dim", 0, 1, most);
    config.ignore("head_dim");
    out.intermediate = required("intermediate_size");
    if (!config.has("rms_norm_eps")) config.fail("rms_norm_eps", "missing key");
    out.rms_norm_eps = config.real("rms_norm_eps", 0);
    if (config.text("hidden_act", "silu") != "silu") throw NotModelled("config: hidden_act other than silu is not modelled");
    // Biases follow the weights that are there.
    config.boolean("attention_bias", false);
    config.boolean("mlp_bias", false);
    if (config.boolean("use_sliding_window", false)) throw NotModelled("config: sliding windows are not modelled");
    // Qwen files name a window and switch it off; others mean the window they name.
    if (given(config, "sliding_window") && !config.has("use_sliding_window"))
        throw NotModelled("config: sliding windows are not modelled");
    config.ignore("sliding_window");
    for (const std::string_view key : neutral_keys) config.ignore(std::string(key));
    config.finish();
    return out;
}

std::optional<std::vector<std::int64_t>> LayerConfig::weight_shape(const std::string& name) const {
    const std::int64_t q = heads * head_dim, kv = kv_heads * head_dim;
    const struct {
        std::string_view name;
        std::int64_t out, in;
    } linears[] = {{"self_attn.q_proj", q, hidden},          {"self_attn.k_proj", kv, hidden},       {"self_attn.v_proj", kv, hidden},
                   {"self_attn.o_proj", hidden, q},          {"mlp.gate_proj", intermediate, hidden}, {"mlp.up_proj", intermediate, hidden},
                   {"mlp.down_proj", hidden, intermediate}};
    for (const auto& linear : linears) {
        if (name == std::string(linear.name) + ".weight") return std::vector{linear.out, linear.in};
        if (name == std::string(linear.name) + ".bias") return std::vector{linear.out};
    }
    if (name == "input_layernorm.weight" || name == "post_attention_layernorm.weight") return std::vector{hidden};
    if (name == "self_attn.q_norm.weight" || name == "self_attn.k_norm.weight") return std::vector{head_dim};
    return std::nullopt;
}

Tensor rotary_frequencies(const Params& config, std::int64_t head_dim) {
    const Rope rope = read_rope(config);
    std::vector<std::uint32_t> values = torch_cpu::inverse_frequencies(single(rope.theta), head_dim);
    if (rope.type == "llama3") {
        const auto number = [&](const char* key) {
            if (!rope.parameters.has(key)) rope.parameters.fail(key, "missing key");
            const double value = rope.parameters.real(key, 0);
            if (value <= 0) rope.parameters.fail(key, "must be positive");
            return value;
        };
        const torch_cpu::Llama3Scaling scaling{number("factor"), number("low_freq_factor"), number("high_freq_factor"),
                                               number("original_max_position_embeddings")};
        if (scaling.high_factor <= scaling.low_factor) rope.parameters.fail("high_freq_factor", "must be above low_freq_factor");
        torch_cpu::scale_llama3(values, scaling);
    } else if (rope.type != "default") {
        throw NotModelled("inv_freq was not recorded and rope_type \"" + rope.type + "\" is not modelled");
    }
    Tensor out(fp32, {std::ssize(values)});
    for (std::size_t i = 0; i < values.size(); ++i) out.set(static_cast<std::int64_t>(i), values[i]);
    return out;
}

}  // namespace bitreplay
