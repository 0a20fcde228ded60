#include "emu/explain.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "emu/explain_private.hpp"
#include "emu/gemm.hpp"
#include "emu/identify_private.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "emu/ops/gemm_product.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

/// Builds the tree of a plan's evaluation from what the scalar definition reports.
class PlanTrace : public SumObserver {
public:
    explicit PlanTrace(const Format& format) : format_(format) {}

    void begin(const Plan& plan) override {
        TraceNode node{
            .title = {}, .value = {format_, 0}, .steps = {}, .summands = {}, .parts = {}, .sums = {}, .facts = {}};
        if (plan.kind == Plan::Kind::walk) {
            constexpr std::size_t most = 4;
            node.title = "walk over k";
            for (std::size_t i = 0; i < plan.ranges.size() && i < most; ++i)
                node.title += " " + std::to_string(plan.ranges[i].begin) + ":" + std::to_string(plan.ranges[i].end);
            if (plan.ranges.size() > most)
                node.title += " and " + std::to_string(plan.ranges.size() - most) + " ranges more";
            if (plan.ranges.empty()) node.title = "an empty part";
        } else if (plan.kind == Plan::Kind::lanes) {
            node.title = to_string(plan);
        } else {
            const Merge& merge = plan.merge;
            node.title =
                std::to_string(plan.parts.size()) + " parts added " +
                (merge.order == Merge::Order::last_to_first ? "last to first" : "first to last") +
                (merge.from_zero ? " from +0" : "") +
                (merge.parts == Merge::Precision::result ? ", each rounded to the output type" : "") +
                (merge.sums == Merge::Precision::result ? ", the sum rounded to the output type after each" : "");
        }
        open_.push_back(std::move(node));
    }

    void step(const DotEvent& event) override { open_.back().steps.push_back(detail::step_of(event, format_)); }

    void merged(std::uint64_t part, std::uint64_t sum) override {
        open_.back().sums.push_back({{format_, part}, {format_, sum}});
    }

    void end(std::uint64_t value) override {
        TraceNode node = std::move(open_.back());
        open_.pop_back();
        node.value.bits = value;
        if (open_.empty())
            root = std::move(node);
        else
            open_.back().parts.push_back(std::move(node));
    }

    TraceNode root;

private:
    Format format_;
    std::vector<TraceNode> open_;
};

/// Row `row` of x and row `col` of w, [1, K] each, of a product of any spelling, as the kernel multiplies them.
struct Factors {
    Tensor x, w;
    std::int64_t m, n;  ///< of the whole output
};

Factors factors(const OpRequest& request, std::int64_t row, std::int64_t col) {
    const bool by_rows = request.in.contains("w");
    const Tensor &x = request.input(by_rows ? "x" : "a"), &w = request.input(by_rows ? "w" : "b");
    if (w.rank() > 2) request.not_modelled("explain of a batched product");
    if (w.rank() != 2 || x.rank() < 1 || x.cols() != w.dim(by_rows ? 1 : 0) || x.cols() == 0)
        request.fail("its operands are " + describe(x) + " and " + describe(w));
    const std::int64_t k = x.cols(), m = x.rows(), n = w.dim(by_rows ? 0 : 1);
    if (row >= m || col >= n) request.fail("the element is outside the output");
    Factors out{Tensor(x.format(), {1, k}), Tensor(w.format(), {1, k}), m, n};
    for (std::int64_t i = 0; i < k; ++i) {
        out.x.set(i, x.get(row * k + i));
        out.w.set(i, by_rows ? w.get(col * k + i) : w.get(i * n + col));
    }
    return out;
}

/// Whether the kernel multiplies an operand by alpha before the sum.
bool scales_operand(const OpRequest& request, const GemmKernel& kernel) {
    const RecipeAddend* addend = request.in.contains("c") ? find_addend(*kernel.recipe, kernel.values) : nullptr;
    return addend != nullptr &&
           std::any_of(addend->orders.begin(), addend->orders.end(), [](RecipeAddend::Order order) { return bitreplay::scales_operand(order); });
}

/// The request under what the caller wants instead. A kernel by name replaces the recorded one and its parameters;
/// parameters alone override recorded ones.
OpRequest vary(const OpRequest& request, const TraceVariant& variant) {
    if (variant.empty()) return request;
    CandidateName name{{variant.gpu.empty() ? request.gpu.name : variant.gpu},
                       variant.kernel.empty() ? request.kernel : variant.kernel,
                       variant.params.empty() ? "{}" : variant.params};
    OpRequest out = detail::with_candidate(request, name);
    if (!variant.kernel.empty()) return out;
    if (name.params == "{}") {
        out.params = request.params;
        out.kernel_names = request.kernel_names;
        out.cublaslt = request.cublaslt;
        return out;
    }
    Params params = request.params;
    if (request.cublaslt) {
        // What the log says becomes parameters, so that some of them can be others.
        const bool by_rows = request.in.contains("w");
        const Tensor &x = request.input(by_rows ? "x" : "a"), &w = request.input(by_rows ? "w" : "b");
        const GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), x.cols());
        out.kernel = kernel.recipe->name;
        for (const auto& [key, value] : kernel.values)
            if (kernel.recipe->find_param(key) != nullptr) params.set(key, detail::json_of(value));
    }
    const Params more = Params::parse(name.params, "--param", "");
    for (const std::string& key : more.keys()) params.set(key, more.json_of(key));
    out.params = params;
    if (!request.cublaslt) out.kernel_names = request.kernel_names;
    return out;
}

std::optional<TraceValue> expected_at(const std::vector<RecordedOutput>& outputs, std::int64_t row, std::int64_t col) {
    if (outputs.empty() || !outputs.front().sha256.empty()) return std::nullopt;
    const RecordedOutput& out = outputs.front();
    const auto position = [](const std::optional<std::vector<std::int64_t>>& kept,
                             std::int64_t index) -> std::optional<std::int64_t> {
        if (!kept) return index;
        const auto found = std::find(kept->begin(), kept->end(), index);
        return found == kept->end() ? std::nullopt : std::optional(found - kept->begin());
    };
    const auto i = position(out.rows, row), j = position(out.cols, col);
    const std::int64_t width = out.cols ? std::ssize(*out.cols) : out.values.cols();
    if (!i || !j || *i * width + *j >= out.values.size()) return std::nullopt;
    return TraceValue{out.values.format(), out.values.get(*i * width + *j)};
}

/// The parameters, without those that have their usual value.
std::string text_of(const Recipe& recipe, const RecipeValues& values) {
    std::string out;
    for (const auto& [name, value] : values) {
        const RecipeParam* param = recipe.find_param(name);
        if (param == nullptr || (param->fallback && *param->fallback == value)) continue;
        out += " " + name + "=" + value_text(value);
    }
    return out;
}

std::string double_text(double value) {
    char buffer[40];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
    return error == std::errc{} ? std::string(buffer, end) : "?";
}

}  // namespace

namespace detail {

TraceStep step_of(const DotEvent& event, const Format& d) {
    return {event.step,
            event.first,
            event.last,
            {event.c_format, event.c},
            {d, event.addend},
            {d, event.d},
            event.special,
            event.top,
            {event.terms.begin(), event.terms.end()},
            event.sum};
}

std::pair<std::int64_t, std::int64_t> row_and_column(const std::vector<std::int64_t>& element,
                                                     const std::vector<std::int64_t>& shape) {
    std::int64_t width = shape.empty() ? 1 : shape.back(), size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    const auto outside = [&] { throw InputError("the element is outside the output " + describe(shape)); };
    if (element.size() == 2 && shape.size() != 2) {  // leading dimensions folded
        if (width == 0 || element[0] >= size / width || element[1] >= width) outside();
        return {element[0], element[1]};
    }
    if (element.size() != shape.size())
        throw InputError("the element has " + std::to_string(element.size()) + " indices, the output is " +
                         describe(shape));
    std::int64_t row = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (element[i] >= shape[i]) outside();
        if (i + 1 < shape.size()) row = row * shape[i] + element[i];
    }
    return {row, shape.empty() ? 0 : element.back()};
}

void trace_gemm(const OpRequest& request, Trace& trace) {
    const std::int64_t row = request.rows->front(), col = request.cols->front();
    const Factors of = factors(request, row, col);
    const GemmKernel kernel = choose_gemm_kernel(request, of.x.format(), of.w.format(), of.x.cols());
    if (scales_operand(request, kernel)) request.not_modelled("explain of kernel " + kernel.recipe->name + " with a c");
    const std::vector<OutputRegion> regions = output_regions(*kernel.recipe, kernel.values, of.m, of.n);
    const auto holds = [](const Range& range, std::int64_t i) { return range.begin <= i && i < range.end; };
    const auto region = std::find_if(regions.begin(), regions.end(), [&](const OutputRegion& r) { return holds(r.rows, row) && holds(r.cols, col); });
    const Plan plan = plan_of(kernel, *region, of.x.cols());
    const Format& wide = kernel.rule->types.d;
    trace.kernel = kernel.recipe->name + text_of(*kernel.recipe, kernel.values);
    trace.arithmetic =
        kernel.rule->family + " k" + std::to_string(kernel.instruction_k) + ", " + describe_steps(*kernel.rule);
    trace.order = to_string(plan);
    const std::vector<std::int64_t> only{0};
    const Format out = request.out_format.value_or(of.x.format());
    PlanTrace observer(wide);
    const GemmTask task{*kernel.rule, kernel.instruction_k, plan, rounded_to(kernel.rule->types.a, of.x), rounded_to(kernel.rule->types.b, of.w), out, only, only};
    observe_accumulator(task, 0, 0, observer);
    trace.root = std::move(observer.root);
    trace.result = {out, find_op(request.op)(request).out.at("").get(0)};
}

}  // namespace detail

Trace explain(const Manifest& manifest,
              const std::string& op,
              const std::vector<std::int64_t>& element,
              const TraceVariant& variant) {
    if (element.empty() || element.size() > 4 ||
        std::any_of(element.begin(), element.end(), [](std::int64_t i) { return i < 0; }))
        throw InputError("--element: one to four indices from 0, as 3,17");
    const std::pair<std::int64_t, std::int64_t> plain{element.front(), element.size() == 1 ? 0 : element[1]};
    const auto fold = [&](const RecordedOp& found) -> std::pair<std::int64_t, std::int64_t> {
        const std::string& kind = found.request.op;
        if (kind != "attention") return plain;
        const std::vector<std::int64_t>& q = found.request.input("q").shape();
        if (q.size() != 4) throw InputError("op " + found.name + ": q must be [batch, heads, length, head dimension]");
        // A layer's stage is [tokens, heads * head dimension].
        if (!found.stage.empty() && element.size() == 2)
            return detail::row_and_column({0, element[1] / q[3], element[0], element[1] % q[3]}, q);
        return detail::row_and_column(element, q);
    };
    const bool two = element.size() == 2;
    const RecordedOp found = recorded_op(manifest, op, two ? std::optional(plain) : std::nullopt);
    const OpRequest request = vary(found.request, variant);
    const std::string& kind = request.op;
    Trace trace{.op = found.name,
                .gpu = request.gpu.name,
                .kernel = request.kernel,
                .arithmetic = {},
                .order = {},
                .element = element,
                .root = {},
                .result = {},
                .expected = {}};
    const bool product = kind == "linear" || kind == "matmul" || kind == "mm" || kind == "addmm" || kind == "scaled_linear";
    if (product) {
        if (!two) throw InputError("--element: row and column of a matrix product (leading dimensions folded)");
        detail::trace_gemm(request, trace);
    } else if (kind == "attention") {
        detail::trace_attention(request, fold(found), trace);
    } else if (kind == "reduce" || kind == "rms_norm") {
        detail::trace_reduction(request, element.front(), trace);
    } else {
        throw NotModelled("op " + found.name + ": explain has no trace of op " + kind);
    }
    const auto [row, col] = found.stage.empty() && !product ? fold(found) : plain;
    // Of an RMSNorm only the mean of squares is traced, which nobody recorded.
    if (kind != "rms_norm") trace.expected = expected_at(found.outputs, row, col);
    return trace;
}

std::string exact_value(std::int64_t significand, int exponent) {
    if (significand == 0) return "0";
    const bool negative = significand < 0;
    auto magnitude = static_cast<std::uint64_t>(negative ? -significand : significand);
    const int zeros = std::countr_zero(magnitude);
    magnitude >>= zeros;
    const std::string value = double_text(std::ldexp(static_cast<double>(significand), exponent));
    const std::string power = "2^" + std::to_string(exponent + zeros);
    return (negative ? "-" : "") + (magnitude == 1 ? power : std::to_string(magnitude) + "*" + power) + " (" + value +
           ")";
}

std::string show(const TraceValue& value) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string hex = "0x";
    for (int nibble = 2 * storage_bytes(value.format) - 1; nibble >= 0; --nibble)
        hex += digits[(value.bits >> (4 * nibble)) & 15];
    if (is_nan(value.format, value.bits)) return hex + " (nan)";
    return hex + " (" + double_text(std::bit_cast<double>(convert(value.format, fp64, value.bits))) + ")";
}

}  // namespace bitreplay
