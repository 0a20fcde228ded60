#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "emu/identify.hpp"
#include "formats/error.hpp"
#include "emu/io/atomic_file.hpp"
#include "emu/parallel.hpp"
#include "tools/commands.hpp"
#include "tools/progress.hpp"
#include "tools/report.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::string manifest, op, gpu, kernel, sha256, json;
    std::vector<std::string> params;
    std::int64_t max_parts = 32, compare = 0;
    int threads = 0;
    bool all = false;
};

using Json = nlohmann::ordered_json;

std::string text_of(const CandidateName& name) {
    std::string params;
    const Json parsed = Json::parse(name.params);
    for (const auto& [key, value] : parsed.items())
        params += fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
    return fmt::format("{}{}  on {}", name.kernel, params, fmt::join(name.gpus, " "));
}

void print_group(const CandidateGroup& group) {
    for (const CandidateName& name : group.names) fmt::print("  {}\n", text_of(name));
    fmt::print("      {}\n", group.effect);
}

void print_rejected(const CandidateGroup& group) {
    if (group.digest && !*group.digest)
        fmt::print("  another SHA-256: {}\n", text_of(group.names.front()));
    else
        fmt::print("  {} of {} outputs wrong: {}\n", group.different, group.compared, text_of(group.names.front()));
    fmt::print("      {}\n", group.effect);
}

void print(const IdentifyReport& report) {
    constexpr std::size_t listed = 4;
    fmt::print("{}: {} outputs recorded; {} candidates tried, {} distinct in arithmetic or order\n",
               one_line(report.op),
               report.recorded,
               report.candidates,
               report.distinct);
    if (report.found.empty()) fmt::print("nothing reproduces it\n");
    for (std::size_t i = 0; i < std::min(listed, report.found.size()); ++i) {
        const CandidateGroup& group = report.found[i];
        std::string what = report.compared > 0 ? fmt::format("all {} outputs compared", report.compared) : "";
        if (group.digest) what += fmt::format("{}the SHA-256 of the whole output", what.empty() ? "" : " and ");
        if (i == 0)
            fmt::print("reproduces {}; equal in effect:\n", what);
        else
            fmt::print("and, indistinguishable on this data though not the same order or arithmetic:\n");
        print_group(group);
    }
    if (report.found.size() > listed)
        fmt::print("and {} more that this data cannot tell apart: more outputs would (--json lists all)\n",
                   report.found.size() - listed);
    if (!report.runners_up.empty()) fmt::print("closest of the rejected:\n");
    for (std::size_t i = 0; i < std::min(listed, report.runners_up.size()); ++i) print_rejected(report.runners_up[i]);
    if (report.found.empty()) return;
    if (report.runners_up.empty())
        fmt::print("separation: no other candidate\n");
    else if (report.separation > 0)
        fmt::print("separation: {} of {} outputs tell the closest rejected candidate apart\n",
                   report.separation,
                   report.compared);
    else
        fmt::print("separation: only the SHA-256 tells the closest rejected candidate apart\n");
}

Json to_json(const CandidateGroup& group) {
    Json names = Json::array();
    for (const CandidateName& name : group.names)
        names.push_back({{"kernel", name.kernel}, {"params", Json::parse(name.params)}, {"gpus", name.gpus}});
    Json out{{"effect", group.effect},
             {"names", std::move(names)},
             {"compared", group.compared},
             {"different", group.different}};
    if (group.digest) out["digest"] = *group.digest;
    return out;
}

std::string to_json(const IdentifyReport& report) {
    Json out{{"op", report.op},
             {"recorded", report.recorded},
             {"compared", report.compared},
             {"candidates", report.candidates},
             {"distinct", report.distinct},
             {"separation", report.separation}};
    out["found"] = Json::array();
    out["runners_up"] = Json::array();
    for (const CandidateGroup& group : report.found) out["found"].push_back(to_json(group));
    for (const CandidateGroup& group : report.runners_up) out["runners_up"].push_back(to_json(group));
    out["version"] = BITREPLAY_VERSION;
    return out.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

int run(const Options& options) {
    set_threads(options.threads);
    const bool hex = options.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!options.sha256.empty() && (options.sha256.size() != 64 || !hex))
        throw InputError("--sha256 must be 64 lower-case hexadecimal digits");
    const Manifest manifest = load_manifest(options.manifest);
    IdentifyReport report;
    {
        Progress progress;
        IdentifyOptions how{.gpu = options.gpu,
                            .kernel = options.kernel,
                            .fixed = {},
                            .max_parts = options.max_parts,
                            .max_compared = options.all ? -1 : options.compare,
                            .sha256 = options.sha256,
                            .progress = [&](const std::string& line) { progress.show(line); }};
        const Params fixed = parameters(options.params);
        for (const std::string& key : fixed.keys()) how.fixed[key] = fixed.json_of(key);
        report = identify(recorded_op(manifest, options.op), how);
    }
    if (!options.json.empty()) write_file(options.json == "-" ? "/dev/stdout" : options.json, to_json(report));
    if (options.json != "-") print(report);
    return report.exit_code();
}

}  // namespace

void add_identify(CLI::App& app, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        app.add_subcommand("identify", "Find which GPU, kernel and parameters reproduce a recorded output");
    command
        ->add_option("manifest",
                     options->manifest,
                     "Manifest (JSON) with the inputs and the recorded output; what it says of kernels is not used")
        ->required();
    command->add_option(
        "--op", options->op, "Op to identify, or LAYER.STAGE; may be left out if only one op was recorded");
    command->add_option("--gpu", options->gpu, "Only this GPU; otherwise all, those of one arithmetic together");
    command->add_option("--kernel", options->kernel, "Only this recipe, see 'bitreplay info kernels'");
    command->add_option("--param", options->params, "A known parameter, as split_k=2; may be repeated")->take_all();
    command->add_option("--max-parts", options->max_parts, "Largest number of parts tried (split_k, splits, slices)")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command
        ->add_option("--compare",
                     options->compare,
                     "Outputs on which survivors and runners-up are compared; 0: about a second's worth")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    command->add_flag("--all", options->all, "Compare survivors and runners-up on every recorded output");
    command->add_option(
        "--sha256",
        options->sha256,
        "SHA-256 of the whole output: what reproduces the sample is then computed in full and checked against it");
    command->add_option("--threads", options->threads, "Number of threads; 0 for all cores")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    command->add_option(
        "--json", options->json, "Also write the report as JSON to this file ('-': to stdout instead of the text)");
    command->footer(
        "Every kind of GPU arithmetic x recipe x parameters is tried (--max-parts bounds counts; sizes are powers of "
        "two, 16 to 256). Names in\n"
        "one group are equal in effect: same arithmetic, same order. A candidate is dropped once it got 3 outputs "
        "wrong, and the three\n"
        "closest of the dropped ones are compared in full. separation: how many of the compared outputs the closest of "
        "them gets wrong; each\n"
        "of these outputs alone refutes it.\n"
        "Exit codes: 0 found, 1 nothing reproduces it, 2 bad usage or input, 3 identify knows no candidates for this "
        "op.\n"
        "Example: bitreplay identify dump/manifest.json --op down_proj --gpu h200\n");
    command->callback([options, command, &action] {
        if (options->all) refuse_in_vain(*command, {"--compare"}, "with --all");
        action = [options] { return run(*options); };
    });
}

}  // namespace bitreplay::tools
