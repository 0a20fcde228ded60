#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/attention/flash_private.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

using detail::FlashBlock;
using detail::FlashProblem;

constexpr std::uint32_t one = 0x3F800000, log2e = 0x3FB8AA3B;
constexpr std::int64_t block_rows = 64;  // has no effect on numbers

bool any_special(const Tensor& x) {
    const Format& format = x.format();
    for (std::int64_t i = 0; i < x.size(); ++i)
        if ((x.get(i) & format.infinity()) == format.infinity()) return true;
    return false;
}

/// Refuses what the captures of the kernel do not cover.
const DotRule& find_rule(const CudnnCall& call) {
    const CudnnKernel& kernel = call.kernel;
    const Format& format = call.q.format();
    const auto refuse = [&](const std::string& what) { throw NotModelled(kernel.name + ": no capture has " + what); };
    if (std::find(kernel.sm.begin(), kernel.sm.end(), call.gpu.sm) == kernel.sm.end()) refuse("the GPU " + call.gpu.name);
    const DotRule* rule =
        call.gpu.find_dot_rule(kernel.instruction_family, {.d = fp32, .a = format, .b = format, .c = fp32}, kernel.instruction_k);
    if (rule == nullptr || (format != bf16 && format != fp16)) refuse("the format " + std::string(named(format).name));
    const std::int64_t queries = call.q.dim(2), keys = call.k.dim(2), d = call.q.dim(3);
    if (std::find(kernel.head_dims.begin(), kernel.head_dims.end(), d) == kernel.head_dims.end()) refuse("a head dimension of " + std::to_string(d));
    if (!kernel.queries.holds(queries)) refuse(std::to_string(queries) + " queries");
    if (!kernel.keys.holds(keys)) refuse(std::to_string(keys) + " keys");
    if (call.causal && queries != keys) refuse("a causal mask with " + std::to_string(queries) + " queries on " + std::to_string(keys) + " keys");
    if (any_special(call.q) || any_special(call.k) || any_special(call.v)) refuse("a NaN or an infinity");
    return *rule;
}

std::vector<FlashBlock> list_blocks(const CudnnCall& call, const FlashPlan& plan) {
    std::vector<FlashBlock> out;
    const std::int64_t heads = call.q.dim(1), queries = call.q.dim(2), key_heads = call.k.dim(1), keys = call.k.dim(2);
    const std::int64_t tile = plan.tile.key;
    for (std::int64_t n = 0; n < call.q.dim(0) * heads; ++n) {
        const std::int64_t kv_row = (n / heads * key_heads + n % heads / (heads / key_heads)) * keys;
        for (std::int64_t position = 0; position < queries; position += block_rows) {
            const std::int64_t rows = std::min(block_rows, queries - position), last = call.causal ? position + rows : keys;
            out.push_back({n * queries + position, rows, position, kv_row, queries, keys, 0, (last + tile - 1) / tile, 0});
        }
    }
    return out;
}

}  // namespace

AttentionResult cudnn_attention(const CudnnCall& call, const FlashEngine& engine) {
    detail::check_attention(call.q, call.k, call.v);
    const DotRule& rule = find_rule(call);
    const std::int64_t d = call.q.dim(3);
    FlashPlan plan{};
    plan.head_dim = d;
    plan.causal = call.causal;
    plan.splits = 1;
    plan.tile = {block_rows, call.kernel.key_tile};
    const std::uint32_t scale = default_attention_scale(d);
    const bool twice = call.kernel.scale_twice;
    const FlashProblem problem{call.q,  call.k, call.v, plan, rule, call.kernel.instruction_k, detail::FlashMath(call.gpu, false),
                               twice ? scale : one, twice ? log2e : f32::mul(scale, log2e), false, true};

    AttentionResult result{Tensor(call.q.format(), call.q.shape()), Tensor(fp32, {call.q.dim(0), call.q.dim(1), call.q.dim(2)})};
    run_flash_blocks(problem, engine, {list_blocks(call, plan)},
                     [&](const FlashBlock& block, std::size_t, std::span<const std::uint32_t> o, std::span<const std::uint32_t> lse) {
                         for (std::size_t i = 0; i < o.size(); ++i)
                             result.o.set(block.q_row * d + static_cast<std::int64_t>(i), convert(fp32, call.q.format(), o[i]));
                         for (std::size_t r = 0; r < lse.size(); ++r) result.lse.set(block.q_row + static_cast<std::int64_t>(r), lse[r]);
                     });
    return result;
}

}  // namespace bitreplay
