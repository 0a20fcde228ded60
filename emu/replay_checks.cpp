#include <map>
#include <optional>

#include "emu/ops/product_shape.hpp"
#include "emu/replay.hpp"
#include "emu/replay_checks_private.hpp"

namespace bitreplay::detail {
namespace {

/// Outputs of earlier ops by name; nullopt: known when it is computed.
using Outputs = std::map<std::string, std::optional<Outline>>;

std::map<std::string, Outline> known_inputs(const ManifestOp& op, ManifestTensors& tensors, const Outputs& outputs, bool recorded) {
    std::map<std::string, Outline> out;
    for (const auto& [input, name] : op.in) {
        const auto output = outputs.find(name);
        const bool is_computed = output != outputs.end() && !(recorded && tensors.has(name));
        if (is_computed && output->second) out[input] = *output->second;
        if (!is_computed && tensors.has(name)) out[input] = tensors.outline(name);
    }
    return out;
}

std::optional<Outline> product_outline(const ManifestOp& op, const std::map<std::string, Outline>& in) {
    try {
        const auto product = product_shape(op.op, in);
        if (!product) return std::nullopt;
        return Outline{op.out_format.value_or(in.at(in.contains("x") ? "x" : "a").format), product->out};
    } catch (const NotModelled&) {  // the op says so when its turn comes
        return std::nullopt;
    }
}

void check_expectation(const Expectation& expect, const Outline& out, ManifestTensors& tensors) {
    // Where leading dimensions are folded or batched, what the rows count is for the op to know.
    if (out.shape.size() > 2 || expect.batch) return;
    const Outline part = about_output("", [&] { return Outline{out.format, sampled_shape(out, expect.rows, expect.cols)}; });
    if (expect.sha256.empty()) check_same("", tensors.outline(expect.tensor), part);
}

}  // namespace

void check_same(const std::string& output, const Outline& recorded, const Outline& part) {
    const auto cols = [](const Outline& what) { return what.shape.empty() ? 1 : what.shape.back(); };
    about_output(output, [&] {
        const bool same_shape = recorded.shape == part.shape ||
                                (element_count(recorded.shape) == element_count(part.shape) && cols(recorded) == cols(part));
        if (!(recorded.format == part.format) || !same_shape)
            throw InputError("computed " + describe(part) + ", recorded " + describe(recorded));
    });
}

void check_shapes(const Manifest& manifest, ManifestTensors& tensors, const std::vector<bool>& needed, bool recorded) {
    Outputs outputs;
    for (std::size_t i = 0; i < manifest.ops.size(); ++i) {
        const ManifestOp& op = manifest.ops[i];
        std::optional<Outline> out;
        if (needed[i])
            about(manifest, op, [&] {
                out = product_outline(op, known_inputs(op, tensors, outputs, recorded));
                const auto expect = op.expect.find("");
                if (out && expect != op.expect.end()) check_expectation(expect->second, *out, tensors);
            });
        for (const auto& [output, name] : op.out) outputs[name] = out;
    }
    tensors.close_checkpoints();
}

}  // namespace bitreplay::detail
