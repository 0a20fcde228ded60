#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "emu/io/atomic_file.hpp"
#include "emu/manifest_diff.hpp"
#include "emu/parallel.hpp"
#include "formats/error.hpp"
#include "tools/commands.hpp"
#include "tools/report.hpp"
#include "tools/trace_report.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::string manifest, op, json, dot;
    std::vector<std::string> diff;
    std::vector<std::int64_t> element;
    struct What {
        std::string gpu, kernel;
        std::vector<std::string> params;
    } what, against;
    TraceText text;
    int threads = 0;
};

TraceVariant variant(const Options::What& what) {
    return {what.gpu, what.kernel, what.params.empty() ? "" : parameters(what.params).json()};
}

void write(const Options& options, const std::string& json, const std::string& text) {
    if (!options.json.empty()) write_file(options.json == "-" ? "/dev/stdout" : options.json, json);
    if (options.json != "-") fmt::print("{}", text);
}

std::string names(const std::vector<std::string>& list) { return one_line(fmt::format("{}", fmt::join(list, " "))); }

std::string diff_text(const ManifestDiff& diff) {
    std::string out;
    for (const std::string& line : diff.not_modelled) out += "not modelled: " + one_line(line) + "\n";
    if (diff.first.empty() && diff.equal.empty()) return out + "nothing could be compared\n";
    if (diff.first.empty())
        return out + fmt::format("nothing differs: {} ops and stages are equal on what both have\n", diff.equal.size());
    if (!diff.equal.empty()) out += fmt::format("equal: {}\n", names(diff.equal));
    out += fmt::format("first difference: {} ({})\n  computed: {} of {} outputs differ; recorded: {} of {}\n",
                       one_line(diff.first),
                       one_line(diff.op),
                       diff.computed.different,
                       diff.computed.compared,
                       diff.recorded.different,
                       diff.recorded.compared);
    if (diff.element && diff.a && diff.b)
        out +=
            fmt::format("  first at [{}]: {} and {}\n", fmt::join(*diff.element, ", "), show(*diff.a), show(*diff.b));
    if (!diff.inputs.empty()) out += fmt::format("  its inputs differ already: {}\n", names(diff.inputs));
    for (const std::string& change : diff.changes) out += "  " + one_line(change) + "\n";
    if (diff.inputs.empty())
        out += diff.explained_by.empty()
                   ? "  no change of GPU, kernel or parameters explains it\n"
                   : fmt::format("  explained by the {}: put into the first side, the second side's output comes out\n",
                                 diff.explained_by);
    return out;
}

std::string diff_json(const ManifestDiff& diff) {
    nlohmann::ordered_json out{
        {"equal", diff.equal},
        {"first", diff.first},
        {"op", diff.op},
        {"computed", {{"compared", diff.computed.compared}, {"different", diff.computed.different}}},
        {"recorded", {{"compared", diff.recorded.compared}, {"different", diff.recorded.different}}},
        {"inputs", diff.inputs},
        {"changes", diff.changes},
        {"explained_by", diff.explained_by},
        {"not_modelled", diff.not_modelled}};
    if (diff.element && diff.a && diff.b) {
        out["element"] = *diff.element;
        out["a"] = show(*diff.a);
        out["b"] = show(*diff.b);
    }
    return out.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Exit code as of diff: 0 nothing differs, 1 something does, 3 undecided because something is not modelled.
int run_diff(const Options& options) {
    const Manifest a = load_manifest(options.diff[0]), b = load_manifest(options.diff[1]);
    const ManifestDiff found = diff(a, b);
    std::string text = diff_text(found);
    const bool traced = !found.first.empty() && found.inputs.empty() && found.computed.different > 0 && found.element &&
                        found.element->size() == 2;
    if (traced) {
        try {
            const Trace trace_a = explain(a, found.first, *found.element),
                        trace_b = explain(b, found.first, *found.element);
            text += to_text(trace_a, trace_b, first_difference(trace_a, trace_b));
        } catch (const NotModelled&) {  // an op without a trace: the summary stands alone
        }
    }
    write(options, diff_json(found), text);
    return !found.first.empty() ? 1 : found.not_modelled.empty() ? 0 : 3;
}

int run(const Options& options) {
    set_threads(options.threads);
    if (!options.diff.empty()) return run_diff(options);
    if (options.manifest.empty() || options.element.empty())
        throw InputError("explain needs a manifest and --element, or --diff A B (see bitreplay explain --help)");
    const Manifest manifest = load_manifest(options.manifest);
    const Trace trace = explain(manifest, options.op, options.element, variant(options.what));
    if (!options.dot.empty())
        write_file(options.dot == "-" ? "/dev/stdout" : options.dot, to_dot(trace, options.text.depth));
    TraceVariant against = variant(options.against);
    if (against.empty()) {
        write(options, to_json(trace), to_text(trace, options.text));
        return 0;
    }
    // What is not changed is as in the first trace.
    if (against.gpu.empty()) against.gpu = options.what.gpu;
    if (against.kernel.empty() && against.params.empty()) {
        against.kernel = options.what.kernel;
        against.params = variant(options.what).params;
    } else if (against.kernel.empty()) {
        against.kernel = options.what.kernel;
    }
    const Trace other = explain(manifest, options.op, options.element, against);
    const Parting parting = first_difference(trace, other);
    write(options, to_json(trace, other, parting), to_text(trace, other, parting));
    return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "explain", "Show step by step how an output came about, and where two GPUs, kernels or runs part");
    command->add_option("manifest", options->manifest, "Manifest (JSON) of the recorded computation");
    command->add_option("--op", options->op, "Op, or LAYER.STAGE; may be left out if only one op was recorded");
    command
        ->add_option("--element",
                     options->element,
                     "Index of the output element, as 3,17: row and column, or one index per dimension")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::NonNegativeNumber);
    command->add_option("--gpu", options->what.gpu, "This GPU instead of the recorded one");
    command->add_option("--kernel", options->what.kernel, "This recipe instead of the recorded one");
    command->add_option("--param", options->what.params, "A parameter of the kernel, as split_k=2; may be repeated")
        ->take_all();
    command->add_option(
        "--against-gpu", options->against.gpu, "Compare with this GPU: the first step where the two part, and why");
    command->add_option("--against-kernel", options->against.kernel, "Compare with this recipe");
    command
        ->add_option(
            "--against-param", options->against.params, "Compare with this parameter, as split_k=5; may be repeated")
        ->take_all();
    command
        ->add_option(
            "--diff",
            options->diff,
            "Two manifests of one computation: the first op or stage that differs, and which change explains it")
        ->expected(2)
        ->type_name("A B");
    command->add_flag("--terms", options->text.terms, "Print every term of every step");
    command->add_option("--depth", options->text.depth, "Levels of the tree that are drawn")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str();
    command->add_option("--dot", options->dot, "Also write the tree for Graphviz to this file ('-': stdout)");
    command->add_option("--threads", options->threads, "Number of threads; 0 for all cores")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    command->add_option(
        "--json", options->json, "Also write everything as JSON to this file ('-': to stdout instead of the text)");
    command->footer(
        "Exit codes: 0 explained; with --diff 0 nothing differs, 1 something does; 2 bad usage or input; 3 not "
        "modelled.\n"
        "Examples:\n"
        "  bitreplay explain dump/manifest.json --op down_proj --element 0,161\n"
        "  bitreplay explain dump/manifest.json --op down_proj --element 0,161 --against-gpu a100 --against-kernel "
        "single_walk\n"
        "  bitreplay explain --diff batch1.json batch8.json\n");
    command->callback([options, command, &action] {
        if (!options->diff.empty())
            refuse_in_vain(*command,
                           {"manifest", "--op", "--element", "--gpu", "--kernel", "--param", "--against-gpu", "--against-kernel", "--against-param",
                            "--terms", "--depth", "--dot"},
                           "with --diff");
        const bool against = !variant(options->against).empty();
        const std::string where = against ? "with --against-..." : "with --json -";
        if (against || options->json == "-") refuse_in_vain(*command, {"--terms"}, where);
        if ((against || options->json == "-") && options->dot.empty()) refuse_in_vain(*command, {"--depth"}, where);
        action = [options] { return run(*options); };
    });
}

}  // namespace bitreplay::tools
