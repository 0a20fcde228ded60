#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "arch/gpu.hpp"
#include "emu/ops/op.hpp"
#include "reduction_trees/cudnn_recipe.hpp"
#include "reduction_trees/flash_recipe.hpp"
#include "reduction_trees/recipe.hpp"
#include "tools/commands.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::string topic, gpu;
    bool json = false;
};

using Json = nlohmann::ordered_json;

std::string_view step_name(const DotStep& step) {
    switch (step.kind) {
        case DotStep::Kind::add_c: return "add c (rne)";
        case DotStep::Kind::fma_chain: return "fma chain";
        case DotStep::Kind::fused_dot: break;
    }
    constexpr std::string_view names[] = {"all", "k%4<2", "k%4>=2"};
    return names[static_cast<std::size_t>(step.select)];
}

/// "L=16 F=25 rz keep 23", steps separated by "; ".
std::string describe_steps(const DotRule& rule) {
    std::string out;
    for (const DotStep& step : rule.steps) {
        if (!out.empty()) out += "; ";
        if (step.kind != DotStep::Kind::fused_dot) {
            out += step_name(step);
            continue;
        }
        if (step.select != DotStep::Select::all) out += fmt::format("{} ", step_name(step));
        out += fmt::format("L={} F={} {} keep {}", step.block, step.align_bits, step.rounding == Rounding::nearest_even ? "rne" : "rz", step.keep);
    }
    return out;
}

std::vector<std::string> selected_gpus(const Options& options) {
    return options.gpu.empty() ? gpu_names() : std::vector<std::string>{options.gpu};
}

Json gpus(const Options& options) {
    Json out = Json::array();
    for (const std::string& name : selected_gpus(options)) {
        const Gpu& gpu = find_gpu(name);
        Json levels = Json::object();
        for (const DotRule& rule : gpu.dot) {
            const std::string level(to_string(rule.evidence.level));
            levels[level] = levels.value(level, 0) + 1;
        }
        out.push_back({{"name", gpu.name}, {"title", gpu.title}, {"sm", gpu.sm}, {"multiprocessors", gpu.multiprocessors}, {"aliases", gpu.aliases},
                       {"rules_by_evidence", levels}, {"mufu", gpu.mufu ? Json{{"table", gpu.mufu->table}, {"evidence", to_string(gpu.mufu->evidence.level)}, {"source", gpu.mufu->evidence.source}} : Json()}});
    }
    return out;
}

Json instructions(const Options& options) {
    Json out = Json::array();
    for (const std::string& name : selected_gpus(options)) {
        const Gpu& gpu = find_gpu(name);
        for (const DotRule& rule : gpu.dot)
            for (const Shape& shape : rule.shapes)
                out.push_back({{"gpu", gpu.name}, {"instruction", to_string(Instruction{rule.family, shape, rule.types})}, {"arithmetic", describe_steps(rule)},
                               {"evidence", to_string(rule.evidence.level)}, {"source", rule.evidence.source}});
    }
    return out;
}

Json kernels() {
    Json out = Json::array();
    for (const Recipe& recipe : recipes()) {
        Json params = Json::array();
        for (const RecipeParam& param : recipe.params) params.push_back(param.name);
        out.push_back({{"name", recipe.name}, {"summary", recipe.summary}, {"kernel_names", recipe.kernels}, {"params", params},
                       {"evidence", recipe.evidence_level}, {"source", recipe.evidence}});
    }
    for (const FlashBuild& build : flash_recipe().builds)
        for (const FlashBuild::Evidence& evidence : build.evidence) {
            std::string source = "sm";
            for (const int sm : evidence.sm) source += " " + std::to_string(sm);
            out.push_back({{"name", build.name}, {"summary", build.summary}, {"kernel_names", build.kernels},
                           {"params", {"causal", "scale", "window", "multiprocessors", "splits", "cu_seqlens_q", "cu_seqlens_k"}},
                           {"evidence", evidence.level}, {"source", source + ": " + evidence.source}});
        }
    for (const CudnnKernel& kernel : cudnn_kernels())
        out.push_back({{"name", kernel.name}, {"summary", kernel.summary}, {"kernel_names", kernel.kernels}, {"params", {"causal"}},
                       {"evidence", kernel.evidence_level}, {"source", kernel.evidence}});
    out.push_back({{"name", "torch.eager"}, {"summary", "attention written out: product, scale, mask, softmax in FP32, product, rounded to bf16 in between"},
                   {"kernel_names", {"*softmax_warp_forward*", "*cunn_SoftMaxForward*"}}, {"params", {"causal", "scale", "scores", "context"}},
                   {"evidence", "measured"}, {"source", "stage attn of decoder layers recorded on H200, torch 2.11"}});
    return out;
}

Json number_formats() {
    Json out = Json::array();
    for (const NamedFormat& row : formats)
        out.push_back({{"name", row.name}, {"ptx", row.ptx}, {"safetensors", row.safetensors}, {"torch", row.torch},
                       {"exponent_bits", row.format.exponent_bits}, {"fraction_bits", row.format.fraction_bits}, {"bias", row.format.bias()},
                       {"infinity", row.format.has_infinity()}, {"nan", row.format.has_nan()}});
    return out;
}

/// A value as people write it: words without quotes, lists and objects without brackets.
std::string cell(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_structured()) return value.is_null() ? "-" : value.dump();
    std::string out;
    for (const auto& [key, item] : value.items()) out += (out.empty() ? "" : ", ") + (value.is_object() ? cell(item) + " " + key : cell(item));
    return out.empty() ? "-" : out;
}

/// Prints one line per item: the columns named, padded, then the evidence's source on a line of its own if there is one.
void print_table(const Json& items, const std::vector<std::string>& columns) {
    std::vector<std::size_t> width(columns.size());
    for (const Json& item : items)
        for (std::size_t i = 0; i < columns.size(); ++i) width[i] = std::max({width[i], columns[i].size(), cell(item[columns[i]]).size()});
    const auto line = [&](auto&& text_of) {
        std::string out;
        for (std::size_t i = 0; i < columns.size(); ++i) out += fmt::format("{:<{}}  ", text_of(columns[i]), width[i]);
        out.erase(out.find_last_not_of(' ') + 1);
        fmt::print("{}\n", out);
    };
    line([](const std::string& column) { return column; });
    for (const Json& item : items) line([&](const std::string& column) { return cell(item[column]); });
}

int run(const Options& options) {
    if (options.topic.empty()) {
        if (options.gpu.empty()) throw CLI::ValidationError("info", "name a topic (gpus, instructions, kernels, formats) or --gpu");
        fmt::print("{}", gpu_json(options.gpu));
        return 0;
    }
    const Json items = options.topic == "gpus" ? gpus(options) : options.topic == "instructions" ? instructions(options) : options.topic == "kernels" ? kernels() : number_formats();
    if (options.json) {
        fmt::print("{}\n", items.dump(1));
        return 0;
    }
    if (options.topic == "gpus") print_table(items, {"name", "title", "sm", "multiprocessors", "rules_by_evidence"});
    if (options.topic == "instructions") print_table(items, {"gpu", "instruction", "arithmetic", "evidence", "source"});
    if (options.topic == "kernels") print_table(items, {"name", "evidence", "params", "summary"});
    if (options.topic == "formats") print_table(items, {"name", "exponent_bits", "fraction_bits", "bias", "infinity", "nan", "safetensors", "torch"});
    return 0;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("info", "What is modelled, and how it is known");
    command->add_option("topic", options->topic, "gpus, instructions, kernels or formats")->check(CLI::IsMember({"gpus", "instructions", "kernels", "formats"}));
    command->add_option("--gpu", options->gpu, "Only this GPU; without a topic: print its file");
    command->add_flag("--json", options->json, "For programs");
    command->footer("Evidence: measured = equal to outputs of this GPU in the test suite; published = reported equal to published data;\n"
                    "unverified = inferred, no output was compared.\n"
                    "Examples:\n  bitreplay info gpus\n  bitreplay info instructions --gpu h200\n  bitreplay info --gpu a100\n");
    command->callback([options, command, &action] {
        if (options->topic == "kernels" || options->topic == "formats") refuse_in_vain(*command, {"--gpu"}, "on " + options->topic);
        action = [options] { return run(*options); };
    });
}

}  // namespace bitreplay::tools
