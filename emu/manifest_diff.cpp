#include "emu/manifest_diff.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "emu/attention.hpp"
#include "emu/identify_private.hpp"
#include "emu/ops/attention.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

struct Stage {
    std::string name;
    OpRequest request;
    std::map<std::string, Tensor> out;
};

struct Run {
    std::vector<Stage> stages;
    std::vector<Skipped> not_modelled;
};

Run run(const Manifest& manifest) {
    Run out;
    ReplayOptions options{.stages = {}, .recorded = false, .max_first = 0, .progress = {}};
    options.ran = [&](const std::string& name, const OpRequest& request, const std::map<std::string, Tensor>& result) {
        out.stages.push_back({name, request, result});
    };
    out.not_modelled = replay(manifest, options).not_modelled;
    return out;
}

/// Visits the elements that two tensors have in common: the same index in every dimension; with different numbers of
/// dimensions the leading ones are folded first. Nothing if formats differ.
void overlap(const Tensor& a,
             const Tensor& b,
             const std::function<void(const std::vector<std::int64_t>&, std::uint64_t, std::uint64_t)>& visit) {
    if (!(a.format() == b.format())) return;
    if (a.rank() != b.rank()) {
        if (a.rank() > 2 || b.rank() > 2)
            overlap(a.reshape({a.rows(), a.cols()}), b.reshape({b.rows(), b.cols()}), visit);
        return;
    }
    const std::size_t rank = a.rank();
    std::vector<std::int64_t> index(rank, 0);
    if (a.size() == 0 || b.size() == 0) return;
    while (true) {
        std::int64_t at_a = 0, at_b = 0;
        for (std::size_t axis = 0; axis < rank; ++axis) {
            at_a = at_a * a.dim(axis) + index[axis];
            at_b = at_b * b.dim(axis) + index[axis];
        }
        visit(index, a.get(at_a), b.get(at_b));
        std::size_t axis = rank;
        while (axis-- > 0) {
            if (++index[axis] < std::min(a.dim(axis), b.dim(axis))) break;
            index[axis] = 0;
        }
        if (axis == static_cast<std::size_t>(-1)) return;
    }
}

Overlap count(const Tensor& a, const Tensor& b) {
    Overlap out;
    overlap(a, b, [&](const auto&, std::uint64_t x, std::uint64_t y) {
        ++out.compared;
        out.different += x != y ? 1 : 0;
    });
    return out;
}

const Expectation* expectation(const Manifest& manifest, const std::string& name, const std::string& output) {
    for (const ManifestOp& op : manifest.ops) {
        const std::string key =
            op.op == "decoder_layer" && name.starts_with(op.id + ".") ? name.substr(op.id.size() + 1) : output;
        if (name != op.id && key == output) continue;
        if (const auto found = op.expect.find(key); found != op.expect.end()) return &found->second;
    }
    return nullptr;
}

/// Recorded values of an op's output by index, [row, column] with the leading dimensions folded where everything was
/// kept.
std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> recorded_values(const Manifest& manifest,
                                                                               const std::string& name,
                                                                               const std::string& output) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> out;
    const Expectation* expect = expectation(manifest, name, output);
    if (expect == nullptr || expect->tensor.empty()) return out;
    const Tensor values = load_tensor(manifest, expect->tensor);
    const std::int64_t rows = expect->rows ? std::ssize(*expect->rows) : values.rows(),
                       cols = expect->cols ? std::ssize(*expect->cols) : values.cols();
    if (rows * cols != values.size()) return out;  // sampled in more than two dimensions
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
            out[{expect->rows ? (*expect->rows)[static_cast<std::size_t>(i)] : i,
                 expect->cols ? (*expect->cols)[static_cast<std::size_t>(j)] : j}] = values.get(i * cols + j);
    return out;
}

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : " + ") + name.substr(0, 100);
    return out.empty() ? "none recorded" : out;
}

/// Facts about how a request is computed, by name: what a change can be named by.
std::vector<std::pair<std::string, std::string>> facts(const OpRequest& request) {
    std::vector<std::pair<std::string, std::string>> out{{"gpu", request.gpu.name},
                                                         {"kernel name", joined(request.kernel_names)}};
    try {
        if (request.in.contains("x") && request.in.contains("w") && request.op != "rms_norm" &&
            request.op != "layer_norm") {
            const Tensor &x = request.input("x"), &w = request.input("w");
            const GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), x.cols());
            out.emplace_back("recipe", kernel.recipe->name);
            for (const auto& [name, value] : kernel.values) out.emplace_back(name, value_text(value));
            const std::string order = to_string(kernel.plan);
            out.emplace_back("order", order.size() > 100 ? order.substr(0, 100) + " ..." : order);
            out.emplace_back("instruction", kernel.rule->family + " " + detail::describe_steps(*kernel.rule));
            out.emplace_back("rows", std::to_string(x.rows()));
        } else if (request.op == "attention") {
            const FlashCall call = flash_call(request);
            const FlashPlan plan = plan_flash(call);
            out.emplace_back("recipe", call.build.name);
            out.emplace_back("q", describe(call.q));
            out.emplace_back("k", describe(call.k));
            out.emplace_back("key tile", std::to_string(plan.tile.key));
            out.emplace_back("splits", std::to_string(plan.splits));
        } else if (request.in.contains("x")) {
            out.emplace_back("x", describe(request.input("x")));
            out.emplace_back("launch", detail::describe_launch(request.gpu, request));
        }
    } catch (const NotModelled& error) {
        out.emplace_back("model", error.what());
    }
    return out;
}

std::vector<std::string> changes(const OpRequest& a, const OpRequest& b) {
    std::vector<std::string> out;
    const auto of_a = facts(a), of_b = facts(b);
    for (const auto& [name, value] : of_a) {
        const auto other = std::find_if(of_b.begin(), of_b.end(), [&](const auto& item) { return item.first == name; });
        const std::string there = other == of_b.end() ? "none" : other->second;
        if (there != value) out.push_back(name + ": " + value + " -> " + there);
    }
    return out;
}

/// The first side's request, computed as the second side says in part.
std::string explanation(const Stage& a, const Stage& b, const std::string& output) {
    const auto with = [&](const Gpu& gpu, const OpRequest& kernel) {
        OpRequest out{.id = a.request.id,
                      .op = a.request.op,
                      .gpu = gpu,
                      .kernel = kernel.kernel,
                      .kernel_names = kernel.kernel_names,
                      .params = kernel.params,
                      .in = a.request.in,
                      .out_format = a.request.out_format,
                      .recorded = {},
                      .rows = a.request.rows,
                      .cols = a.request.cols};
        // The number of parts follows from the whole shape, unless it is given.
        if (out.op == "attention" && out.params.integer("splits", 0, 0, INT32_MAX) == 0)
            out.params.set("splits", std::to_string(plan_flash(flash_call(kernel)).splits));
        return out;
    };
    const auto gives = [&](const OpRequest& request) {
        try {
            const OpResult result = find_op(request.op)(request);
            const Overlap same = count(result.out.at(output.empty() ? result.main : output), b.out.at(output));
            return same.compared > 0 && same.different == 0;
        } catch (const std::runtime_error&) {
            return false;
        }
    };
    if (gives(with(b.request.gpu, a.request))) return "gpu";
    if (gives(with(a.request.gpu, b.request))) return "kernel and parameters";
    if (gives(with(b.request.gpu, b.request))) return "gpu, kernel and parameters together";
    return "";
}

enum class Outcome : std::uint8_t { equal, different, nothing };  ///< nothing: no element was there on both sides

/// Compares one op of both sides; fills in `out` if it differs.
Outcome compare(
    const Manifest& manifest_a, const Stage& a, const Manifest& manifest_b, const Stage& b, ManifestDiff& out) {
    Outcome outcome = Outcome::nothing;
    for (const auto& [output, values] : a.out) {
        const auto other = b.out.find(output);
        if (other == b.out.end()) continue;
        Overlap computed, recorded;
        std::optional<std::vector<std::int64_t>> element;
        std::optional<TraceValue> value_a, value_b;
        overlap(values, other->second, [&](const std::vector<std::int64_t>& index, std::uint64_t x, std::uint64_t y) {
            ++computed.compared;
            if (x == y) return;
            if (++computed.different > 1) return;
            element = index;
            value_a = {values.format(), x};
            value_b = {values.format(), y};
        });
        const auto recorded_a = recorded_values(manifest_a, a.name, output),
                   recorded_b = recorded_values(manifest_b, b.name, output);
        for (const auto& [index, bits] : recorded_a) {
            const auto there = recorded_b.find(index);
            if (there == recorded_b.end()) continue;
            ++recorded.compared;
            if (there->second == bits) continue;
            ++recorded.different;
            if (element) continue;
            element = {index.first, index.second};
            value_a = {values.format(), bits};
            value_b = {values.format(), there->second};
        }
        if (computed.compared + recorded.compared > 0) outcome = Outcome::equal;
        if (computed.different == 0 && recorded.different == 0) continue;
        out.first = a.name;
        out.op = a.request.op;
        out.computed = computed;
        out.recorded = recorded;
        out.element = element;
        out.a = value_a;
        out.b = value_b;
        for (const auto& [name, input] : a.request.in) {
            const auto there = b.request.in.find(name);
            if (there != b.request.in.end() && count(input, there->second).different != 0) out.inputs.push_back(name);
        }
        out.changes = changes(a.request, b.request);
        if (out.inputs.empty()) out.explained_by = explanation(a, b, output);
        return Outcome::different;
    }
    return outcome;
}

}  // namespace

ManifestDiff diff(const Manifest& manifest_a, const Manifest& manifest_b) {
    const Run a = run(manifest_a), b = run(manifest_b);
    ManifestDiff out;
    for (const auto& [run, manifest] : {std::pair(&a, &manifest_a), std::pair(&b, &manifest_b)})
        for (const Skipped& skipped : run->not_modelled)
            out.not_modelled.push_back(manifest->path.string() + ": " + skipped.id + ": " + skipped.reason);
    bool common = false;
    for (const Stage& stage : a.stages) {
        const auto other = std::find_if(b.stages.begin(), b.stages.end(), [&](const Stage& s) {
            return s.name == stage.name && s.request.op == stage.request.op;
        });
        if (other == b.stages.end()) continue;
        common = true;
        const Outcome outcome = compare(manifest_a, stage, manifest_b, *other, out);
        if (outcome == Outcome::different) return out;
        if (outcome == Outcome::equal)
            out.equal.push_back(stage.name);
        else
            out.not_modelled.push_back(stage.name + ": the two sides have no output of one type and no element in common");
    }
    if (!common && out.not_modelled.empty())
        throw InputError(manifest_a.path.string() + " and " + manifest_b.path.string() +
                         " have no op of the same id and kind");
    return out;
}

}  // namespace bitreplay
