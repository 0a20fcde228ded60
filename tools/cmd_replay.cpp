#include <fmt/format.h>

#include <memory>

#include "emu/io/atomic_file.hpp"
#include "emu/parallel.hpp"
#include "emu/replay.hpp"
#include "tools/commands.hpp"
#include "tools/progress.hpp"
#include "tools/report.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::string manifest, json, inputs = "chained";
    std::vector<std::string> stages;
    int threads = 0;
    std::size_t first = 5;
    bool quiet = false;
};

int run(const Options& options) {
    const auto start = std::chrono::steady_clock::now();
    set_threads(options.threads);
    const Manifest manifest = load_manifest(options.manifest);
    ReplayReport report;
    {
        Progress progress;
        ReplayOptions how{.stages = options.stages, .recorded = options.inputs == "recorded", .max_first = options.first, .progress = {}};
        how.progress = [&](const std::string& id, std::size_t i, std::size_t count) { progress.show(fmt::format("[{}/{}] {}", i + 1, count, id)); };
        report = replay(manifest, how);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!options.json.empty()) write_file(options.json == "-" ? "/dev/stdout" : options.json, to_json(report, manifest, seconds));
    if (options.json != "-") fmt::print("{}", to_text(report, options.quiet));
    return report.exit_code();
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("replay", "Run a recorded computation on the CPU and compare every bit with the GPU's outputs");
    command->add_option("manifest", options->manifest, "Manifest (JSON) of the recorded computation")->required();
    command->add_option("--stage", options->stages, "Only this op, output or stage; may be repeated")->take_all();
    command->add_option("--inputs", options->inputs, "chained: feed each op with what was computed; recorded: with recorded tensors where there are any")
        ->check(CLI::IsMember({"chained", "recorded"}))
        ->capture_default_str();
    command->add_option("--threads", options->threads, "Number of threads; 0 for all cores")->check(CLI::Range(0, 4096))->capture_default_str();
    command->add_option("--first", options->first, "Differences to list per check")->check(CLI::Range(0, 1000000))->capture_default_str();
    command->add_option("--json", options->json, "Also write the report as JSON to this file ('-': to stdout instead of the text)");
    command->add_flag("--quiet", options->quiet, "Print only what differs, and the verdict");
    command->footer("Example: bitreplay replay dump/manifest.json --stage q_proj --first 10\n");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace bitreplay::tools
