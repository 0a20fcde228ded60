#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/attention.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

std::int64_t ceil_div(std::int64_t x, std::int64_t y) noexcept { return (x + y - 1) / y; }

std::uint32_t single(std::int64_t value) noexcept {
    return static_cast<std::uint32_t>(round_pack(fp32, {false, static_cast<Uint128>(value), 0}));
}

/// ceil of a positive finite fp32 number below 2^31.
std::int64_t ceil_single(std::uint32_t bits) noexcept {
    const Number x = decode(fp32, bits);
    const int drop = fp32.fraction_bits - x.exponent;
    if (drop <= 0) return static_cast<std::int64_t>(x.significand << -drop);
    if (drop >= 62) return 1;
    const auto significand = static_cast<std::int64_t>(x.significand);
    return (significand + (std::int64_t{1} << drop) - 1) >> drop;
}

}  // namespace

std::int64_t flash_splits(std::int64_t blocks, std::int64_t slots, std::int64_t key_tiles, std::int64_t max_splits) {
    // The host code compares blocks >= 0.8f * slots in float, and the efficiencies in double against 0.85 * the best;
    // codes of positive numbers compare like the numbers.
    if (single(blocks) >= f32::mul(0x3F4CCCCD, single(slots))) return 1;
    const std::int64_t limit = std::min({max_splits, slots, key_tiles});
    const auto eligible = [&](std::int64_t n) { return n == 1 || ceil_div(key_tiles, n) != ceil_div(key_tiles, n - 1); };
    std::vector<std::uint32_t> efficiency;  // of 1, 2, … parts: thread blocks over the slots of all waves
    for (std::int64_t n = 1; n <= limit; ++n) {
        const std::uint32_t waves = f32::div(single(blocks * n), single(slots));
        efficiency.push_back(eligible(n) ? f32::div(waves, single(ceil_single(waves))) : 0);
    }
    if (efficiency.empty()) return 1;
    const std::uint32_t best = *std::max_element(efficiency.begin(), efficiency.end());
    const std::uint64_t enough = f64::mul(0x3FEB333333333333, convert(fp32, fp64, best));  // 0.85
    for (std::int64_t n = 1; n <= limit; ++n)
        if (eligible(n) && convert(fp32, fp64, efficiency[static_cast<std::size_t>(n - 1)]) >= enough) return n;
    return 1;
}

std::uint32_t default_attention_scale(std::int64_t head_dim) noexcept {
    const std::uint64_t d = round_pack(fp64, {false, static_cast<Uint128>(head_dim), 0});
    return static_cast<std::uint32_t>(convert(fp64, fp32, f64::div(0x3FF0000000000000, f64::sqrt(d))));
}

FlashPlan plan_flash(const FlashCall& call) {
    const FlashRecipe& recipe = flash_recipe();
    const std::int64_t batch = call.q.dim(0), heads = call.q.dim(1), d = call.q.dim(3), key_heads = call.k.dim(1);
    const bool variable = !call.bounds_q.empty();
    std::int64_t queries = call.q.dim(2), keys = call.k.dim(2);  // the longest sequence
    if (variable) {
        queries = keys = 0;
        for (std::size_t i = 0; i + 1 < call.bounds_q.size(); ++i) {
            queries = std::max(queries, call.bounds_q[i + 1] - call.bounds_q[i]);
            keys = std::max(keys, call.bounds_k[i + 1] - call.bounds_k[i]);
        }
    }
    FlashPlan plan{};
    plan.head_dim = recipe.head_dim(d);
    bool causal = call.causal && queries != 1;
    std::int64_t left = call.window_left >= keys ? -1 : call.window_left;
    std::int64_t right = call.window_right >= keys ? -1 : call.window_right;
    plan.groups_as_rows = queries == 1 && heads > key_heads && left < 0 && right < 0 && d % 8 == 0 && !variable;
    if (causal) right = 0;
    plan.causal = left < 0 && right == 0;
    if (left < 0 && right >= 0) left = keys;
    if (left >= 0 && right < 0) right = keys;
    plan.local = !plan.causal && (left >= 0 || right >= 0);
    plan.window_left = left;
    plan.window_right = right;

    const FlashTile split = recipe.split_tile(plan.head_dim);
    const std::int64_t rows = plan.groups_as_rows ? heads / key_heads : queries;
    const std::int64_t row_heads = plan.groups_as_rows ? key_heads : heads;
    plan.splits = call.splits;
    if (variable) plan.splits = 1;
    if (plan.splits == 0)
        plan.splits = flash_splits(batch * row_heads * ceil_div(rows, split.query),
                                   call.multiprocessors * recipe.blocks_per_multiprocessor, ceil_div(keys, split.key),
                                   recipe.max_splits);
    plan.tile = plan.splits > 1 ? split : recipe.forward_tile(call.gpu.sm, plan.head_dim, plan.causal);
    return plan;
}

}  // namespace bitreplay
