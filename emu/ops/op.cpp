#include "emu/ops/op.hpp"

#include <algorithm>

#include "formats/error.hpp"

namespace bitreplay {

#define BITREPLAY_OP(name, function) OpResult function(const OpRequest&);
#include "emu/ops/ops.inc"
#undef BITREPLAY_OP

namespace {
struct Row {
    std::string_view name;
    OpFunction function;
};
constexpr Row rows[] = {
#define BITREPLAY_OP(name, function) {name, function},
#include "emu/ops/ops.inc"
#undef BITREPLAY_OP
    {"", nullptr},
};
}  // namespace

OpFunction find_op(std::string_view name) noexcept {
    for (const Row& row : rows)
        if (row.function != nullptr && row.name == name) return row.function;
    return nullptr;
}

std::vector<std::string_view> op_names() {
    std::vector<std::string_view> out;
    for (const Row& row : rows)
        if (row.function != nullptr) out.push_back(row.name);
    return out;
}

void OpRequest::take_kernel(const Params& spec) {
    kernel = spec.text("kernel", "");
    kernel_names = spec.texts("kernel_names");
    if (spec.has("cublaslt")) {
        const std::string line = spec.text("cublaslt", "");
        try {
            cublaslt = parse_cublaslt_log(line);
        } catch (const InputError& error) {
            spec.fail("cublaslt", error.what());
        }
    }
    const Params more = spec.object("params");
    for (const std::string& key : more.keys()) params.set(key, more.json_of(key));
    spec.finish();
}

const Tensor& OpRequest::input(const std::string& name) const {
    const auto found = in.find(name);
    if (found == in.end()) fail("missing input \"" + name + "\"");
    return found->second;
}

void OpRequest::fail(const std::string& reason) const { throw InputError("op " + id + ": " + reason); }

void OpRequest::not_modelled(const std::string& reason) const { throw NotModelled("op " + id + ": " + reason); }

void OpRequest::check_inputs(std::span<const std::string_view> names) const {
    for (std::string_view name : names) {
        const bool optional = name.ends_with('?');
        if (optional) name.remove_suffix(1);
        if (!optional && !in.contains(std::string(name))) fail("missing input \"" + std::string(name) + "\"");
    }
    for (const auto& input : in) {
        const std::string& name = input.first;
        const bool known = std::any_of(names.begin(), names.end(), [&](std::string_view n) { return n == name || n == name + "?"; });
        if (!known) fail("unknown input \"" + name + "\"");
    }
}

}  // namespace bitreplay
