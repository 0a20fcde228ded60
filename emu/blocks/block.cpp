#include "emu/blocks/block.hpp"

#include <cstring>

#include "emu/parallel.hpp"
#include "formats/error.hpp"

namespace bitreplay {

#define BITREPLAY_BLOCK(name, function) void function(LayerRun&);
#include "emu/blocks/blocks.inc"
#undef BITREPLAY_BLOCK

namespace {

struct Row {
    std::string_view name;
    BlockFunction function;
};
constexpr Row rows[] = {
#define BITREPLAY_BLOCK(name, function) {name, function},
#include "emu/blocks/blocks.inc"
#undef BITREPLAY_BLOCK
};

/// Old checkpoints hold the rotary table as well; transformers computes it anew.
constexpr std::string_view stored_table = "weights/self_attn.rotary_emb.inv_freq";

/// [M, n, d] as [1, n, M, d], or back.
Tensor swap_heads(const Tensor& x, std::int64_t outer, std::int64_t inner, std::int64_t d, std::vector<std::int64_t> shape) {
    Tensor out(x.format(), std::move(shape));
    const auto row = static_cast<std::size_t>(d * x.element_bytes());
    std::byte* to = out.mutable_bytes().data();
    const std::byte* from = x.bytes().data();
    parallel_for(inner, 8, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t j = first; j < last; ++j)
            for (std::int64_t i = 0; i < outer; ++i)
                std::memcpy(to + static_cast<std::size_t>(j * outer + i) * row, from + static_cast<std::size_t>(i * inner + j) * row, row);
    });
    return out;
}

std::string json_list(const std::vector<std::int64_t>& values) {
    std::string out = "[";
    for (const std::int64_t value : values) out += (out.size() == 1 ? "" : ",") + std::to_string(value);
    return out + "]";
}

}  // namespace

BlockFunction find_block(std::string_view model) noexcept {
    for (const Row& row : rows)
        if (row.name == model) return row.function;
    return nullptr;
}

LayerRun::LayerRun(const OpRequest& request, Callback callback)
    : request_(request),
      callback_(std::move(callback)),
      config_json_(request.params.has("config") || !request.config ? request.params.object("config") : *request.config),
      config_(LayerConfig::read(config_json_)),
      kernels_(request.params.object("kernels")) {
    const Tensor& x = hidden();
    if (x.rank() != 2 || x.cols() != config_.hidden) request.fail("input hidden is " + describe(x) + ", not [M, " + std::to_string(config_.hidden) + "]");
    for (const auto& [name, tensor] : request.in) {
        if (!name.starts_with("weights/") || name == stored_table) continue;
        const auto shape = config_.weight_shape(name.substr(8));
        if (!shape) request.fail("a layer has no weight \"" + name.substr(8) + "\"");
        if (tensor.shape() != *shape || !(tensor.format() == x.format()))
            request.fail(name + " is " + describe(tensor) + ", not " + std::string(named(x.format()).name) + " " + describe(*shape));
    }
    std::int64_t cached = 0;
    for (const char* name : {"k_cache", "v_cache"}) {
        if (!request.in.contains(name)) continue;
        const Tensor& cache = request.input(name);
        if (cache.rank() != 3 || cache.dim(0) != config_.kv_heads || cache.dim(2) != config_.head_dim)
            request.fail(std::string("input ") + name + " is " + describe(cache) + ", not [kv heads, cached, head dim]");
        cached = cache.dim(1);
    }
    if (request.in.contains("k_cache") != request.in.contains("v_cache")) request.fail("k_cache and v_cache belong together");
    if (cached != 0 && request.input("k_cache").dim(1) != request.input("v_cache").dim(1)) request.fail("k_cache and v_cache differ in length");
    positions_ = request.params.integers("positions");
    if (positions_.empty())
        for (std::int64_t i = 0; i < x.rows(); ++i) positions_.push_back(cached + i);
    if (std::ssize(positions_) != x.rows()) request.params.fail("positions", "must have one position per token");
}

const Tensor& LayerRun::weight(const std::string& name) const {
    used_.insert("weights/" + name);
    return request_.input("weights/" + name);
}

void LayerRun::check_all_used() const {
    for (const auto& [name, tensor] : request_.in)
        if (name.starts_with("weights/") && !used_.contains(name) && name != stored_table)
            request_.fail(name + ": this model has no such weight");
}

OpResult LayerRun::call(const std::string& stage, const std::string& op, Inputs in, const Params& params) const {
    const OpFunction function = find_op(op);
    if (function == nullptr) request_.not_modelled("op " + op + " of stage " + stage + " is not modelled yet");
    OpRequest request{.id = request_.id + "." + stage, .op = op, .gpu = request_.gpu, .kernel = {}, .kernel_names = {}, .params = params,
                      .in = std::move(in), .out_format = hidden().format(), .recorded = {}, .rows = {}, .cols = {}};
    request.take_kernel(kernels_.object(stage));
    if (op == "attention" && request.kernel.empty()) request.kernel = request_.params.text("attention", "");
    if (request_.observe) request_.observe(stage, request);
    return function(request);
}

Tensor LayerRun::stage(const std::string& name, const std::vector<std::int64_t>& shape, const std::function<Tensor()>& compute) {
    const auto recorded = request_.recorded.find(name);
    const bool replaced = recorded != request_.recorded.end();
    try {
        const Tensor out = compute().reshape(shape);
        callback_(name, out);
        return replaced ? recorded->second.reshape(shape) : out;
    } catch (const NotModelled& error) {
        if (!replaced) throw;
        missing_[name] = error.what();
        return recorded->second.reshape(shape);
    }
}

Tensor LayerRun::run(const std::string& name, const std::string& op, Inputs in, const Params& params, const std::vector<std::int64_t>& shape) {
    return stage(name, shape, [&] {
        OpResult result = call(name, op, std::move(in), params);
        return result.out.at(result.main);
    });
}

Tensor LayerRun::linear(const std::string& stage, const Tensor& x, const std::string& name) {
    const Tensor& w = weight(name + ".weight");
    Inputs in{{"x", x.reshape({x.rows(), x.cols()})}, {"w", w}};
    if (request_.in.contains("weights/" + name + ".bias")) in["bias"] = weight(name + ".bias");
    return run(stage, "linear", std::move(in), {}, {x.rows(), w.rows()});
}

Tensor LayerRun::rms_norm(const std::string& stage, const Tensor& x, const std::string& name) {
    Params params;
    params.set("eps", config_json_.json_of("rms_norm_eps"));
    params.set("style", "\"hf\"");
    return run(stage, "rms_norm", {{"x", x.reshape({x.rows(), x.cols()})}, {"w", weight(name)}}, params, x.shape());
}

void LayerRun::make_rope_table() {
    if (cos_.rank() == 2) return;
    const bool recorded = request_.in.contains("inv_freq");
    const Tensor frequencies = recorded ? request_.input("inv_freq") : rotary_frequencies(config_json_, config_.head_dim);
    Params params;
    params.set("positions", json_list(positions_));
    OpResult table = call("rope_table", "rope_table", {{"inv_freq", frequencies}}, params);
    cos_ = table.out.at("cos");
    sin_ = table.out.at("sin");
}

Tensor LayerRun::rope(const std::string& stage, const Tensor& x) {
    make_rope_table();
    Params params;
    params.set("style", "\"hf\"");
    return run(stage, "rope", {{"x", x}, {"cos", cos_}, {"sin", sin_}}, params, x.shape());
}

/// The cached rows and the new ones [M, kv heads, d] as [1, kv heads, cached + M, d].
Tensor LayerRun::with_cache(const std::string& cache, const Tensor& x) const {
    const std::int64_t n = config_.kv_heads, d = config_.head_dim, fresh = x.dim(0);
    const Tensor swapped = swap_heads(x, fresh, n, d, {1, n, fresh, d});
    if (!request_.in.contains(cache)) return swapped;
    const Tensor& old = request_.input(cache);
    const std::int64_t cached = old.dim(1);
    Tensor out(x.format(), {1, n, cached + fresh, d});
    const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count * d * x.element_bytes()); };
    for (std::int64_t head = 0; head < n; ++head) {
        std::byte* to = out.mutable_bytes().data() + bytes(head * (cached + fresh));
        std::memcpy(to, old.bytes().data() + bytes(head * cached), bytes(cached));
        std::memcpy(to + bytes(cached), swapped.bytes().data() + bytes(head * fresh), bytes(fresh));
    }
    return out;
}

Tensor LayerRun::attention(const std::string& stage, const Tensor& q, const Tensor& k, const Tensor& v) {
    const std::int64_t m = q.dim(0), h = config_.heads, d = config_.head_dim;
    Params params;
    params.set("causal", m > 1 ? "true" : "false");
    for (const char* product : {"scores", "context"})  // of eager attention
        if (kernels_.has(product)) params.set(product, kernels_.json_of(product));
    return this->stage(stage, {m, h * d}, [&] {
        Inputs in{{"q", swap_heads(q, m, h, d, {1, h, m, d})}, {"k", with_cache("k_cache", k)}, {"v", with_cache("v_cache", v)}};
        OpResult result = call(stage, "attention", std::move(in), params);
        return swap_heads(result.out.at(result.main), h, m, d, {m, h * d});
    });
}

Tensor LayerRun::silu(const std::string& stage, const Tensor& x) {
    Params params;
    params.set("fn", "\"silu\"");
    return run(stage, "unary", {{"x", x}}, params, x.shape());
}

Tensor LayerRun::multiply(const std::string& stage, const Tensor& a, const Tensor& b) { return run(stage, "mul", {{"a", a}, {"b", b}}, {}, a.shape()); }

Tensor LayerRun::add(const std::string& stage, const Tensor& a, const Tensor& b) { return run(stage, "add", {{"a", a}, {"b", b}}, {}, a.shape()); }

Tensor LayerRun::heads(const Tensor& x) const { return x.reshape({x.rows(), x.cols() / config_.head_dim, config_.head_dim}); }

}  // namespace bitreplay
