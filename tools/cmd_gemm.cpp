#include <fmt/format.h>

#include <memory>

#include "arch/gpu.hpp"
#include "emu/compare.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "emu/parallel.hpp"
#include "formats/error.hpp"
#include "formats/strict_json.hpp"
#include "tools/commands.hpp"
#include "tools/report.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::vector<std::string> x, w, expect, params, kernel_names;
    std::vector<std::int64_t> synthetic;
    std::string gpu, kernel, cublaslt, dtype = "bf16", out_dtype, out;
    std::uint64_t x_seed = 1, w_seed = 2;
    int threads = 0;
    std::size_t first = 5;
};

Tensor from_file(const std::vector<std::string>& place) { return SafetensorsFile::open(place.at(0)).tensor(place.at(1)); }

Format format_named(const std::string& name) {
    const NamedFormat* row = find_format(name);
    if (row == nullptr) throw InputError("unknown dtype \"" + detail::printable(name) + "\"; 'bitreplay info formats' lists them");
    return row->format;
}

int run(const Options& options) {
    set_threads(options.threads);
    OpRequest request{.id = "gemm", .op = "linear", .gpu = find_gpu(options.gpu), .kernel = options.kernel, .kernel_names = options.kernel_names,
                      .params = parameters(options.params), .in = {}, .out_format = {}, .recorded = {}, .rows = {}, .cols = {}};
    if (!options.cublaslt.empty()) request.cublaslt = parse_cublaslt_log(options.cublaslt);
    if (!options.synthetic.empty()) {
        const std::int64_t m = options.synthetic[0], n = options.synthetic[1], k = options.synthetic[2];
        const Format format = format_named(options.dtype);
        request.in["x"] = synthetic({.seed = options.x_seed, .exp2 = 0, .plus = {}, .mirror = Mirror::none, .format = format, .shape = {m, k}});
        request.in["w"] = synthetic({.seed = options.w_seed, .exp2 = -5, .plus = {}, .mirror = Mirror::none, .format = format, .shape = {n, k}});
    } else {
        if (options.x.empty() || options.w.empty()) throw InputError("give both --x and --w, or --synthetic");
        request.in["x"] = from_file(options.x);
        request.in["w"] = from_file(options.w);
    }
    if (!options.out_dtype.empty()) request.out_format = format_named(options.out_dtype);
    const OpResult result = find_op("linear")(request);
    const Tensor& y = result.out.at("");
    for (const std::string& warning : result.warnings) fmt::print("warning: {}\n", one_line(warning));
    if (!options.out.empty()) write_safetensors(options.out, {{"y", y}}, {{"gpu", request.gpu.name}, {"producer", "bitreplay " BITREPLAY_VERSION}});
    fmt::print("y = {}  sha256 {}\n", describe(y), sha256_hex(y.bytes()));
    if (options.expect.empty()) return 0;
    ReplayReport report;
    report.checks.push_back({.id = "y", .output = "", .format = y.format(), .comparison = compare(from_file(options.expect), y, {.max_first = options.first}),
                             .expected_sha256 = {}, .actual_sha256 = {}});
    fmt::print("{}", to_text(report, false));
    return report.exit_code();
}

}  // namespace

void add_gemm(CLI::App& app, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("gemm", "Compute y = x·wᵀ as a GPU kernel does");
    command->add_option("--gpu", options->gpu, "GPU model, see 'bitreplay info gpus'")->required();
    command->add_option("--kernel", options->kernel, "Recipe, see 'bitreplay info kernels'");
    command->add_option("--kernel-name", options->kernel_names, "CUDA kernel name as a profiler shows it, instead of --kernel; may be repeated")->take_all();
    command->add_option("--cublaslt", options->cublaslt, "Line of cuBLASLt's log (CUBLASLT_LOG_LEVEL=5) of the recorded product");
    command->add_option("--param", options->params, "A parameter of the recipe, as split_k=2; may be repeated")->take_all();
    command->add_option("--x", options->x, "x [M, K]: safetensors file and key")->expected(2)->type_name("FILE KEY");
    command->add_option("--w", options->w, "w [N, K]: safetensors file and key")->expected(2)->type_name("FILE KEY");
    command->add_option("--synthetic", options->synthetic, "Generate x and w of these sizes instead")->expected(3)->type_name("M N K")->check(CLI::Range(1, 1 << 24));
    command->add_option("--dtype", options->dtype, "Type of the synthetic operands")->capture_default_str();
    command->add_option("--x-seed", options->x_seed, "Seed of the synthetic x")->capture_default_str();
    command->add_option("--w-seed", options->w_seed, "Seed of the synthetic w")->capture_default_str();
    command->add_option("--out-dtype", options->out_dtype, "Type of y; default: that of x");
    command->add_option("--expect", options->expect, "Compare y with this tensor")->expected(2)->type_name("FILE KEY");
    command->add_option("--out", options->out, "Write y to this safetensors file");
    command->add_option("--first", options->first, "Differences to list")->capture_default_str();
    command->add_option("--threads", options->threads, "Number of threads; 0 for all cores")->check(CLI::Range(0, 4096))->capture_default_str();
    command->footer("Examples:\n"
                    "  bitreplay gemm --gpu h200 --kernel cublas.nvjet --param split_k=2 --synthetic 16 256 4096\n"
                    "  bitreplay gemm --gpu a100 --kernel single_walk --x in.safetensors x --w in.safetensors w --out y.safetensors\n");
    command->callback([options, command, &action] {
        if (options->synthetic.empty())
            refuse_in_vain(*command, {"--dtype", "--x-seed", "--w-seed"}, "without --synthetic");
        else
            refuse_in_vain(*command, {"--x", "--w"}, "with --synthetic");
        if (options->expect.empty()) refuse_in_vain(*command, {"--first"}, "without --expect");
        action = [options] { return run(*options); };
    });
}

}  // namespace bitreplay::tools
