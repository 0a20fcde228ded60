// The trace of one element of a flash-attention call, from what the scalar definition reports.

#include <algorithm>
#include <cstring>

#include "emu/attention.hpp"
#include "emu/explain_private.hpp"
#include "emu/identify_private.hpp"
#include "emu/ops/attention.hpp"
#include "formats/convert.hpp"

namespace bitreplay::detail {
namespace {

TraceValue single(std::uint32_t bits) { return {fp32, bits}; }

class FlashTrace : public FlashObserver {
public:
    using FlashObserver::FlashObserver;

    void step(const DotEvent& event) override { steps_.push_back(step_of(event, fp32)); }

    void tile(const FlashTileEvent& event) override {
        TraceNode node{
            .title = "keys " + std::to_string(event.first_key) + ":" + std::to_string(event.first_key + event.keys),
            .value = single(event.after),
            .steps = std::move(steps_),
            .summands = {},
            .parts = {},
            .sums = {},
            .facts = {}};
        steps_.clear();
        for (std::int64_t j = 0; j < event.keys; ++j) {
            const std::string key = std::to_string(event.first_key + j);
            node.facts.push_back({"score of key " + key, single(event.scores[static_cast<std::size_t>(j)])});
        }
        node.facts.push_back({"maximum", single(event.max)});
        if (!event.first) node.facts.push_back({"rescaling of what came before", single(event.rescale)});
        for (std::int64_t j = 0; j < event.keys; ++j)
            node.facts.push_back({"weight of key " + std::to_string(event.first_key + j),
                                  single(event.weights[static_cast<std::size_t>(j)])});
        for (std::size_t lane = 0; lane < event.sums.size(); ++lane)
            node.facts.push_back({"partial sum of weights " + std::to_string(lane), single(event.sums[lane])});
        node.facts.push_back({"output before the tile, rescaled", single(event.before)});
        tiles_.push_back(std::move(node));
    }

    void part(std::uint32_t sum, std::uint32_t factor, std::uint32_t lse, std::uint32_t value) override {
        TraceNode node{.title = std::to_string(tiles_.size()) +
                                (tiles_.size() == 1 ? " tile of keys" : " tiles of keys, last to first"),
                       .value = single(value),
                       .steps = {},
                       .summands = {},
                       .parts = std::move(tiles_),
                       .sums = {},
                       .facts = {}};
        tiles_.clear();
        node.facts = {{"sum of weights", single(sum)}, {"1/sum", single(factor)}, {"log-sum-exp", single(lse)}};
        parts.push_back(std::move(node));
    }

    void combined(std::uint32_t weight, std::uint32_t part, std::uint32_t sum) override {
        weights.push_back(weight);
        sums.emplace_back(single(part), single(sum));
    }

    std::vector<TraceNode> parts;
    std::vector<std::uint32_t> weights;
    std::vector<std::pair<TraceValue, TraceValue>> sums;

private:
    std::vector<TraceStep> steps_;
    std::vector<TraceNode> tiles_;
};

/// Rows [first, first + count) as [1, 1, count, d].
Tensor one_head(const Tensor& from, std::int64_t first, std::int64_t count) {
    Tensor out(from.format(), {1, 1, count, from.cols()});
    const auto bytes = static_cast<std::size_t>(from.cols() * from.element_bytes());
    std::memcpy(out.mutable_bytes().data(),
                from.bytes().data() + static_cast<std::size_t>(first) * bytes,
                static_cast<std::size_t>(count) * bytes);
    return out;
}

}  // namespace

void trace_attention(const OpRequest& request, std::pair<std::int64_t, std::int64_t> element, Trace& trace) {
    FlashCall call = flash_call(request);
    const FlashPlan plan = plan_flash(call);
    if (!call.bounds_q.empty()) request.not_modelled("explain of a variable-length call");
    // One head alone, with the split that the whole call has: heads do not meet.
    const std::int64_t queries = call.q.dim(2), keys = call.k.dim(2), heads = call.q.dim(1), key_heads = call.k.dim(1);
    const std::int64_t head = element.first / queries, row = element.first % queries;
    const std::int64_t key_head = head / heads * key_heads + head % heads / (heads / key_heads);
    call.q = one_head(call.q, head * queries, queries);
    call.k = one_head(call.k, key_head * keys, keys);
    call.v = one_head(call.v, key_head * keys, keys);
    call.splits = plan.splits;

    FlashTrace observer(row, element.second);
    const AttentionResult result = flash_attention(call, {.fast = false, .isa = {}, .observer = &observer});
    const FlashRecipe& recipe = flash_recipe();
    const DotRule* rule = request.gpu.find_dot_rule(recipe.instruction_family,
                                                    {.d = fp32, .a = call.q.format(), .b = call.q.format(), .c = fp32},
                                                    recipe.instruction_k);
    trace.kernel = call.build.name;
    trace.arithmetic = rule->family + " k" + std::to_string(recipe.instruction_k) + ", " + describe_steps(*rule);
    trace.order = "query tiles of " + std::to_string(plan.tile.query) + ", key tiles of " +
                  std::to_string(plan.tile.key) + ", keys in " + std::to_string(plan.splits) +
                  (plan.splits == 1 ? " part" : " parts");
    trace.result = {call.q.format(), result.o.get(row * call.q.cols() + element.second)};
    if (observer.parts.size() == 1) {
        trace.root = std::move(observer.parts.front());
        return;
    }
    trace.root = {.title = std::to_string(observer.parts.size()) +
                           " parts of the keys, each times its weight, added by fused multiply-adds",
                  .value = observer.sums.empty() ? single(0) : observer.sums.back().second,
                  .steps = {},
                  .summands = {},
                  .parts = std::move(observer.parts),
                  .sums = std::move(observer.sums),
                  .facts = {}};
    for (std::size_t i = 0; i < observer.weights.size(); ++i)
        trace.root.facts.push_back({"weight of part " + std::to_string(i), single(observer.weights[i])});
}

}  // namespace bitreplay::detail
