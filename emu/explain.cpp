#include "emu/explain.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "emu/explain_private.hpp"
#include "emu/gemm.hpp"
#include "emu/identify_private.hpp"
#include "emu/ops/matmul.hpp"
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

/// x and w of a product of any spelling; of b [K, N] only the wanted column, as w [1, K].
std::pair<Tensor, Tensor> operands(const OpRequest& request, std::int64_t col) {
    if (request.op != "matmul") return {request.input("x"), request.input("w")};
    const Tensor& b = request.input("b");
    if (b.rank() != 2) request.fail("input b must be a matrix, not " + describe(b));
    Tensor w(b.format(), {1, b.dim(0)});
    for (std::int64_t k = 0; k < b.dim(0); ++k) w.set(k, b.get(k * b.dim(1) + col));
    return {request.input("a"), w};
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
    Params params = request.params;
    const Params more = Params::parse(name.params, "--param", "");
    for (const std::string& key : more.keys()) params.set(key, more.json_of(key));
    out.params = params;
    out.kernel_names = request.kernel_names;
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
        const auto* word = std::get_if<std::string>(&value);
        out += " " + name + "=" + (word != nullptr ? *word : std::to_string(std::get<std::int64_t>(value)));
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
    const auto [x, w] = operands(request, col);
    const std::int64_t w_row = request.op == "matmul" ? 0 : col;
    if (w.rank() != 2 || x.rank() < 1 || x.cols() != w.cols() || x.cols() == 0)
        request.fail("x is " + describe(x) + ", w is " + describe(w));
    if (row >= x.rows() || w_row >= w.rows()) request.fail("the element is outside the output");
    const GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), x.cols());
    const Format& wide = kernel.rule->types.d;
    trace.kernel = kernel.recipe->name + text_of(*kernel.recipe, kernel.values);
    trace.arithmetic =
        kernel.rule->family + " k" + std::to_string(kernel.instruction_k) + ", " + describe_steps(*kernel.rule);
    trace.order = to_string(kernel.plan);
    const std::vector<std::int64_t> rows{row}, cols{w_row};
    const Format out = request.out_format.value_or(x.format());
    PlanTrace observer(wide);
    const GemmTask task{*kernel.rule, kernel.instruction_k, kernel.plan, x, w, out, rows, cols};
    observe_accumulator(task, row, w_row, observer);
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
    const bool product = kind == "linear" || kind == "matmul" || kind == "scaled_linear";
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
