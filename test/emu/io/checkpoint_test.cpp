#include "emu/io/checkpoint.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "emu/io/atomic_file.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/replay.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

Tensor values(std::uint64_t seed, std::vector<std::int64_t> shape, const Format& format = bf16) {
    return synthetic({.seed = seed, .exp2 = -2, .plus = {}, .mirror = {}, .format = format, .shape = std::move(shape)});
}

void write(const std::filesystem::path& path, const std::string& text) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
}

const std::string index_name = "model.safetensors.index.json";

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace

TEST_CASE("checkpoint: one file or shards, each tensor by name") {
    const std::filesystem::path folder = test::scratch("checkpoint");
    const Tensor a = values(1, {2, 8}), b = values(2, {8});
    write_safetensors(folder / "model.safetensors", {{"m.a", a}, {"m.b", b}, {"n", b}});
    Checkpoint single(folder);
    CHECK(single.names("m.") == std::vector<std::string>{"m.a", "m.b"});
    CHECK(single.tensor("m.a").get(3) == a.get(3));

    std::filesystem::remove(folder / "model.safetensors");
    write_safetensors(folder / "model-1.safetensors", {{"m.a", a}});
    write(folder / "model-2.safetensors", "not read unless a tensor of it is asked for");
    write(folder / index_name, R"({"metadata": {"total_size": 1}, "weight_map": {"m.a": "model-1.safetensors", "m.b": "model-2.safetensors", "m.c": "model-1.safetensors"}})");
    Checkpoint shards(folder);
    const Tensor kept = shards.tensor("m.a");
    shards.close();
    CHECK(kept.get(15) == a.get(15));
    CHECK(shards.tensor("m.a").get(0) == a.get(0));
    CHECK(message_of([&] { shards.tensor("m.b"); }).find("model-2.safetensors: ") != std::string::npos);
    CHECK(message_of([&] { shards.tensor("m.c"); }).ends_with("model-1.safetensors: m.c: no such tensor"));
    CHECK(message_of([&] { shards.tensor("m.d"); }).ends_with("m.d: no such tensor"));
    CHECK(message_of([&] { shards.config(); }).ends_with("config.json: cannot be opened"));
}

TEST_CASE("checkpoint: hostile folders are refused with the place") {
    const std::filesystem::path folder = test::scratch("checkpoint");
    const auto refused = [&] { return message_of([&] { Checkpoint{folder}; }); };
    const auto has = [](const std::string& part) { return Catch::Matchers::Contains(part); };
    CHECK_THAT(refused(), has("neither of model.safetensors and"));
    CHECK_THAT(message_of([&] { Checkpoint{folder / "absent"}; }), has("neither of model.safetensors and"));
    const auto index = [&](const std::string& text) {
        write(folder / index_name, text);
        return refused();
    };
    write_safetensors(folder / "a.safetensors", {{"a", values(1, {4})}});
    write_safetensors(folder.parent_path() / "outside.safetensors", {{"a", values(1, {4})}});
    std::filesystem::create_directory(folder / "d.safetensors");
    const auto shard = [&](const std::string& name) { return index(R"({"weight_map": {"x/y": ")" + name + "\"}}"); };
    for (const char* name : {"../outside.safetensors", "/etc/passwd", "a.bin", ".safetensors", "", "..\\\\a.safetensors", "./a.safetensors"})
        CHECK_THAT(shard(name), has(index_name + ": /weight_map/x~1y: is not the name of a safetensors file"));
    CHECK_THAT(shard("b.safetensors"), has(index_name + ": /weight_map/x~1y: there is no such file"));
    CHECK_THAT(shard("d.safetensors"), has("there is no such file"));
    CHECK(shard("a.safetensors") == "accepted");
    CHECK_THAT(index(R"({"weight_map": {"a": "a.safetensors", "a": "a.safetensors"}})"), has("duplicate key \"a\""));
    CHECK_THAT(index(R"({"weight_map": {"a": 3}})"), has("/weight_map/a: must be a string"));
    CHECK_THAT(index(R"({"weight_map": []})"), has("/weight_map: must be an object"));
    CHECK_THAT(index("{}"), has("missing key \"weight_map\""));
    CHECK_THAT(index(R"({"weight_map": {}, "more": 1})"), has("/more: unknown key"));
    CHECK_THAT(index("{"), has("not JSON"));
    write_safetensors(folder / "model.safetensors", {{"a", values(1, {4})}});
    CHECK_THAT(index(R"({"weight_map": {}})"), has("both of model.safetensors and"));
}

namespace {

/// A checkpoint of one small llama layer, and replays of manifests that name it.
struct SmallLayer {
    std::filesystem::path folder = test::scratch("layer");
    std::map<std::string, Tensor> weights;
    std::string config = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 96,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": null, "torch_dtype": "bfloat16")";

    SmallLayer() {
        const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
            weights["model.layers.3." + name] = values(weights.size(), std::move(shape));
        };
        for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) add(norm, {64});
        add("self_attn.q_proj.weight", {64, 64});
        add("self_attn.k_proj.weight", {32, 64});
        add("self_attn.v_proj.weight", {32, 64});
        add("self_attn.o_proj.weight", {64, 64});
        add("mlp.gate_proj.weight", {96, 64});
        add("mlp.up_proj.weight", {96, 64});
        add("mlp.down_proj.weight", {64, 96});
    }

    static std::string linears() {
        std::string out;
        for (const char* stage : {"q", "k", "v", "o", "gate", "up", "down"})
            out += (out.empty() ? "\"" : ", \"") + std::string(stage) + R"(": {"kernel": "single_walk"})";
        return out;
    }

    /// The first line of the outcome; expects a digest that cannot be right, so that a run that works is "different".
    std::string outcome(const std::string& params = "", const std::string& prefix = "small/model.layers.3.") const {
        write_safetensors(folder / "model.safetensors", weights);
        write(folder / "config.json", config + "}");
        const std::string text = R"({"bitreplay": 1, "gpu": "h200", "checkpoints": {"small": {"folder": "."}},
            "tensors": {"x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": [5, 64]}},
            "ops": [{"id": "layer", "op": "decoder_layer", "in": {"hidden": "x", "weights": ")" + prefix + R"("},
            "params": {"attention": "torch.flash2", "kernels": {)" + linears() + "}" + params + R"(},
            "expect": {"out": {"sha256": ")" + std::string(64, '0') + "\"}}}]}";
        try {
            const ReplayReport report = replay(parse_manifest(text, folder / "m.json"), {});
            return report.not_modelled.empty() ? report.result() : report.not_modelled.front().reason;
        } catch (const InputError& error) {
            return error.what();
        }
    }
};

}  // namespace

TEST_CASE("checkpoint: a layer takes weights, model and config from it") {
    SmallLayer layer;
    CHECK(layer.outcome() == "different");
    layer.weights["model.layers.3.self_attn.rotary_emb.inv_freq"] = values(1, {16}, fp32);
    layer.weights["model.embed_tokens.weight"] = values(1, {3, 64});
    CHECK(layer.outcome() == "different");
}

TEST_CASE("checkpoint: a layer that does not fit its config is refused") {
    const auto has = [](const std::string& part) { return Catch::Matchers::Contains(part); };
    const auto with = [](const std::string& name, const Tensor& tensor) {
        SmallLayer layer;
        layer.weights["model.layers.3." + name] = tensor;
        return layer.outcome();
    };
    CHECK_THAT(with("self_attn.q_proj.weight", values(1, {32, 64})), has("m.json: op layer: weights/self_attn.q_proj.weight is bf16 [32, 64], not bf16 [64, 64]"));
    CHECK_THAT(with("self_attn.k_proj.weight", values(1, {32, 64}, fp16)), has("is fp16 [32, 64], not bf16 [32, 64]"));
    CHECK_THAT(with("input_layernorm.weight", values(1, {64, 1})), has("not bf16 [64]"));
    CHECK_THAT(with("mlp.down_proj.bias", values(1, {96})), has("not bf16 [64]"));
    CHECK_THAT(with("self_attn.sinks", values(1, {2})), has("a layer has no weight \"self_attn.sinks\""));
    CHECK_THAT(with("self_attn.q_norm.weight", values(1, {32})), has("weights/self_attn.q_norm.weight: this model has no such weight"));
    SmallLayer layer;
    CHECK_THAT(layer.outcome("", "small/model.layers.4."), has("m.json: op layer: input \"weights\": the checkpoint has no tensor \"small/model.layers.4.\""));
    CHECK_THAT(layer.outcome(R"(, "model": "mamba")"), has("model \"mamba\""));
    layer.config += R"(, "quantization_config": {})";
    CHECK_THAT(layer.outcome(), has("config.json: /quantization_config: unknown key") && !has("m.json"));
    layer.weights.erase("model.layers.3.mlp.up_proj.weight");
    layer.config = SmallLayer().config;
    CHECK_THAT(layer.outcome(), has("missing input \"weights/mlp.up_proj.weight\""));
    layer.config += R"(, "head_dim": 16)";
    CHECK_THAT(layer.outcome(), has("not bf16 [16, 64]"));
}

TEST_CASE("checkpoint: names in a manifest") {
    const auto parse = [](const std::string& checkpoints, const std::string& tensors) {
        return message_of([&] { parse_manifest(R"({"bitreplay": 1, "gpu": "h200", "checkpoints": {)" + checkpoints + R"(}, "tensors": {)" + tensors + R"(}, "ops": []})", "m.json"); });
    };
    const std::string tensor = R"({"file": "f", "key": "k"})";
    CHECK(parse(R"("a": {"folder": "x"})", "\"b/c\": " + tensor) == "accepted");
    CHECK(parse(R"("a": {"folder": "x"})", "\"a/c\": " + tensor) == "m.json: /tensors/a~1c: names a tensor of the checkpoint \"a\"");
    CHECK(parse(R"("a/b": {"folder": "x"})", "").starts_with("m.json: /checkpoints/a~1b: the name of a checkpoint"));
    CHECK(parse(R"("a": {"path": "x"})", "").starts_with("m.json: /checkpoints/a: missing key \"folder\""));
    CHECK(parse(R"("a": {"folder": "x", "file": "y"})", "") == "m.json: /checkpoints/a/file: unknown key");
}
