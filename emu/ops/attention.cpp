#include "emu/ops/attention.hpp"

#include <array>
#include <bit>

#include "emu/attention.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t far = std::int64_t{1} << 30;

/// The recorded forward kernel must be the one that the host rule chooses: its name holds head dimension and tile.
void check_names(const OpRequest& request, const FlashPlan& plan) {
    for (const std::string& name : request.kernel_names) {
        const FlashKernelName kernel = parse_flash_kernel_name(name);
        if (kernel.head_dim == 0 || kernel.combine) continue;
        const auto text = [](bool split, std::int64_t d, const FlashTile& tile) {
            return std::string(split ? "split" : "unsplit") + " " + std::to_string(d) + ", " + std::to_string(tile.query) + " x " +
                   std::to_string(tile.key);
        };
        const std::string expected = text(plan.splits > 1, plan.head_dim, plan.tile);
        const std::string recorded = text(kernel.split, kernel.head_dim, kernel.tile);
        if (expected != recorded) request.fail("the recorded kernel is " + recorded + ", but the host rule chooses " + expected);
    }
}

FlashCall call_of(const OpRequest& request, const FlashBuild& build) {
    FlashCall call{request.gpu, build, request.input("q"), request.input("k"), request.input("v")};
    call.causal = request.params.boolean("causal", false);
    call.scale = attention_scale(request);
    const std::vector<std::int64_t> window = request.params.integers("window");
    if (!window.empty()) {
        if (window.size() != 2) request.params.fail("window", "must be [left, right]");
        for (const std::int64_t side : window)
            if (side < -1 || side > far) request.params.fail("window", "must be from -1 (no limit) to " + std::to_string(far));
        call.window_left = window[0];
        call.window_right = window[1];
    }
    call.multiprocessors = request.params.integer("multiprocessors", request.gpu.multiprocessors, 1, 4096);
    call.splits = request.params.integer("splits", 0, 0, 128);
    call.bounds_q = request.params.integers("cu_seqlens_q");
    call.bounds_k = request.params.integers("cu_seqlens_k");
    request.params.finish();
    if (request.out_format && !(*request.out_format == call.q.format())) request.fail("out_dtype must be that of q");
    if (call.q.rank() != 4 || call.k.rank() != 4) request.fail("q, k and v must be [batch, heads, length, head dimension]");

    if (call.k.dim(1) != 0 && call.q.size() != 0) check_names(request, plan_flash(call));
    return call;
}

const FlashBuild* find_build(const OpRequest& request) {
    return request.kernel.empty() ? match_flash_build(request.kernel_names) : find_flash_build(request.kernel);
}

OpResult flash(const OpRequest& request, const FlashBuild& build) {
    AttentionResult result = flash_attention(call_of(request, build));
    OpResult out;
    out.main = "o";
    out.out["o"] = std::move(result.o);
    out.out["lse"] = std::move(result.lse);
    return out;
}

OpResult cudnn(const OpRequest& request, const CudnnKernel& kernel) {
    CudnnCall call{request.gpu, kernel, request.input("q"), request.input("k"), request.input("v")};
    call.causal = request.params.boolean("causal", false);
    if (attention_scale(request) != default_attention_scale(call.q.cols())) request.not_modelled(kernel.name + " with a scale other than 1/sqrt(head dimension)");
    if (request.params.has("window")) request.not_modelled(kernel.name + " with a window");
    request.params.finish();
    if (request.out_format && !(*request.out_format == call.q.format())) request.fail("out_dtype must be that of q");
    AttentionResult result = cudnn_attention(call);
    OpResult out;
    out.main = "o";
    out.out["o"] = std::move(result.o);
    out.out["lse"] = std::move(result.lse);
    return out;
}

}  // namespace

std::uint32_t attention_scale(const OpRequest& request) {
    if (!request.params.has("scale")) return default_attention_scale(request.input("q").cols());
    return static_cast<std::uint32_t>(convert(fp64, fp32, std::bit_cast<std::uint64_t>(request.params.real("scale", 0))));
}

FlashCall flash_call(const OpRequest& request) {
    const FlashBuild* build = find_build(request);
    if (build == nullptr) request.not_modelled("not a flash-attention kernel with a model");
    return call_of(request, *build);
}

OpResult run_attention(const OpRequest& request) {
    constexpr std::array<std::string_view, 4> names{"q", "k", "v", "mask?"};
    request.check_inputs(names);
    const FlashBuild* build = find_build(request);
    if (build != nullptr) {
        if (request.in.contains("mask")) request.not_modelled("kernel " + build->name + " with a mask tensor");
        return flash(request, *build);
    }
    const CudnnKernel* generated = request.kernel.empty() ? match_cudnn_kernel(request.kernel_names) : find_cudnn_kernel(request.kernel);
    if (generated != nullptr) {
        if (request.in.contains("mask")) request.not_modelled("kernel " + generated->name + " with a mask tensor");
        return cudnn(request, *generated);
    }
    // Manifests name it either way.
    const bool eager = request.kernel == "torch.eager" || request.kernel == "eager";
    if (eager || (request.kernel.empty() && is_eager_attention(request.kernel_names))) return run_eager_attention(request);
    if (!request.kernel.empty()) request.not_modelled("kernel \"" + request.kernel + "\" is not an attention kernel with a model");
    if (request.kernel_names.empty()) request.not_modelled("no kernel was recorded");
    request.not_modelled("no model for the recorded kernel " + request.kernel_names.front().substr(0, 120));
}

}  // namespace bitreplay
