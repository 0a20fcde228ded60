// The trace of one row's sum by PyTorch's reduce_kernel, from what LaneSum reports.

#include <map>

#include "emu/explain_private.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/identify_private.hpp"
#include "emu/ops/reduce.hpp"
#include "emu/reduce.hpp"

namespace bitreplay::detail {
namespace {

TraceValue single(std::uint32_t bits) { return {fp32, bits}; }

/// Moves the tree of every partial sum along with it.
class LaneTrace : public LaneObserver {
public:
    explicit LaneTrace(std::span<const std::uint32_t> values) : values_(values) {}

    void loaded(const LaneLoad& load, std::span<const std::uint32_t> partials) override {
        for (std::int64_t i = 0; i < load.count; ++i) {
            const std::int64_t element = load.element + i * load.element_stride;
            TraceNode& lane = at(load.lane + i * load.lane_stride);
            lane.summands.push_back({std::to_string(element), single(values_[static_cast<std::size_t>(element)])});
            lane.value = single(partials[static_cast<std::size_t>(load.lane + i * load.lane_stride)]);
        }
    }

    void merged(std::int64_t to,
                std::int64_t from,
                std::int64_t stride,
                std::int64_t count,
                std::span<const std::uint32_t> partials) override {
        for (std::int64_t i = 0; i < count; ++i) {
            TraceNode &target = at(to + i * stride), source = std::move(at(from + i * stride));
            const TraceValue sum = single(partials[static_cast<std::size_t>(to + i * stride)]);
            if (!target.parts.empty() && target.title.empty()) {  // a serial fold goes on
                target.sums.emplace_back(source.value, sum);
                target.parts.push_back(std::move(source));
            } else {
                TraceNode first = std::move(target);
                target = {.title = {}, .value = sum, .steps = {}, .summands = {}, .parts = {}, .sums = {}, .facts = {}};
                target.sums = {{first.value, first.value}, {source.value, sum}};
                target.parts.push_back(std::move(first));
                target.parts.push_back(std::move(source));
            }
            target.value = sum;
        }
    }

    void copied(std::int64_t to, std::int64_t from, std::int64_t stride, std::int64_t count) override {
        for (std::int64_t i = 0; i < count; ++i)
            if (to + i != from + i * stride) at(to + i) = std::move(at(from + i * stride));
        for (auto& [lane, node] : lanes_) name(node);
    }

    void cleared(std::int64_t first, std::int64_t count) override {
        for (std::int64_t i = first; i < first + count; ++i) at(i) = {};
    }

    TraceNode root() {
        TraceNode out = std::move(at(0));
        name(out);
        return out;
    }

private:
    TraceNode& at(std::int64_t lane) {
        return lanes_
            .try_emplace(
                lane,
                TraceNode{
                    .title = {}, .value = single(0), .steps = {}, .summands = {}, .parts = {}, .sums = {}, .facts = {}})
            .first->second;
    }

    static void name(TraceNode& node) {
        if (!node.title.empty()) return;
        if (!node.parts.empty())
            node.title = std::to_string(node.parts.size()) + " partial sums added";
        else if (node.summands.empty())
            node.title = "nothing";
        else
            node.title = "a thread's accumulator: " + std::to_string(node.summands.size()) +
                         (node.summands.size() == 1 ? " summand" : " summands added one by one");
        for (TraceNode& part : node.parts) name(part);
    }

    std::span<const std::uint32_t> values_;
    std::map<std::int64_t, TraceNode> lanes_;
};

}  // namespace

void trace_reduction(const OpRequest& request, std::int64_t row, Trace& trace) {
    const Tensor& x = request.input("x");
    const bool norm = request.op == "rms_norm";
    if (norm && request.params.text("style", "hf") != "hf") request.not_modelled("explain of a fused rms_norm");
    const ReduceTask task = norm ? ReduceTask{request.gpu, ReduceFunction::mean_sq, x, fp32} : reduce_task(request);
    if (task.function == ReduceFunction::max) request.not_modelled("explain of a maximum, which adds nothing");
    if (row >= x.rows()) request.fail("the element is outside the output");
    const RowReduction reduction(task);
    std::vector<std::uint32_t> values(static_cast<std::size_t>(x.cols()));
    const std::uint32_t maximum = reduction.values(row, values);
    LaneTrace observer(values);
    LaneSum lanes(observer);
    const std::uint32_t sum = reduction.sum(lanes, row, values);
    trace.root = observer.root();
    const std::uint32_t result = reduction.finish(sum, maximum);
    trace.kernel = norm ? "torch.2.11, mean of squares of the RMSNorm" : "torch.2.11";
    trace.order = describe_launch(request.gpu, request);
    Tensor out(task.result, {1});
    store_fp32(out, 0, {&result, 1});
    trace.result = {task.result, out.get(0)};
}

}  // namespace bitreplay::detail
