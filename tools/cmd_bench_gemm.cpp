#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "arch/gpu.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/indices.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "formats/strict_json.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "tools/bench.hpp"
#include "tools/report.hpp"

#if defined(BITREPLAY_BLAS)
extern "C" {
void cblas_sgemm(int order,
                 int trans_a,
                 int trans_b,
                 int m,
                 int n,
                 int k,
                 float alpha,
                 const float* a,
                 int lda,
                 const float* b,
                 int ldb,
                 float beta,
                 float* c,
                 int ldc);
char* openblas_get_corename();
void openblas_set_num_threads(int threads);
}
#endif

namespace bitreplay::tools {
namespace {

struct Options {
    std::string gpu, dtype = "bf16", instruction, kernel, data = "normal", json;
    std::vector<std::string> params;
    std::int64_t m = 96, n = 2048, k = 2560;
    int threads = 1, rounds = 7;
};

std::uint64_t next(std::uint64_t& state) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/// Sum of twelve uniform variates less six, exact in 2^-16 steps: a bell shape of deviation 1 without host floats.
Tensor make_data(
    const std::string& kind, const Format& format, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    Tensor out(format, {rows, cols});
    std::uint64_t state = seed;
    std::set<std::int64_t> outliers;
    for (int i = 0; i < 6; ++i)
        outliers.insert(static_cast<std::int64_t>((static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U >> 20) %
                                                  static_cast<std::uint64_t>(cols)));
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
            std::int64_t sum = -(std::int64_t{6} << 16);
            for (int u = 0; u < 3; ++u) {
                const std::uint64_t bits = next(state);
                for (int part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((bits >> (16 * part)) & 0xFFFF);
            }
            int exponent = -16;
            std::uint64_t scale = 1;
            if (kind == "outlier" && seed == 1 && outliers.contains(j)) scale = 100;  // channels of the activations
            if (kind == "sparse" && next(state) % 10 != 0) sum = 0;
            if (kind == "wide") exponent -= static_cast<int>(next(state) % 24);
            if (kind == "subnormal" && seed == 1) exponent = format.min_exponent() - format.fraction_bits - 10;
            if (kind == "maximal")
                sum = static_cast<std::int64_t>((std::uint64_t{2} << format.fraction_bits) - 1),
                exponent = -format.fraction_bits;
            const Exact value{
                sum < 0, static_cast<Uint128>(static_cast<std::uint64_t>(std::abs(sum)) * scale), exponent};
            out.set(i * cols + j, round_pack(format, value, {Rounding::nearest_even, Overflow::saturate, -1}));
        }
    return out;
}

struct Variant {
    std::string name;
    std::int64_t rows;  ///< the scalar definition computes only a few
    std::function<void()> run;
    std::vector<double> seconds;
    double redone = 1;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

const DotRule& rule_for(const Options& options, std::string& instruction) {
    const Gpu& gpu = find_gpu(options.gpu);
    if (!options.instruction.empty()) {
        instruction = options.instruction;
        return gpu.dot_rule(parse_instruction(options.instruction));
    }
    const NamedFormat* row = find_format(options.dtype);
    if (row == nullptr) throw InputError("unknown dtype \"" + detail::printable(options.dtype) + "\"");
    // The instruction that a GEMM library would use: the family with the deepest instruction.
    for (const std::string_view family : {"wgmma", "tcgen05", "mma"}) {
        const DotRule* best = nullptr;
        Shape shape{};
        for (const DotRule& rule : gpu.dot)
            if (rule.family == family && rule.types.d == fp32 && rule.types.a == row->format &&
                rule.types.b == row->format)
                for (const Shape& s : rule.shapes)
                    if (s.k > shape.k) best = &rule, shape = s;
        if (best == nullptr) continue;
        if (shape.n == 0) shape.n = 64;
        instruction = to_string(Instruction{best->family, shape, best->types});
        return *best;
    }
    throw NotModelled("gpu " + gpu.name + ": no fp32-accumulating instruction for " + options.dtype);
}

/// The instruction and the order of the sum: one walk, or what a recipe says.
GemmKernel kernel_for(const Options& options, std::string& instruction) {
    if (options.kernel.empty()) {
        const DotRule& rule = rule_for(options, instruction);
        return {.recipe = nullptr,
                .values = {},
                .rule = &rule,
                .instruction_k = parse_instruction(instruction).shape.k,
                .plan = {.kind = Plan::Kind::walk, .ranges = {{0, options.k}}, .parts = {}, .merge = {}}};
    }
    const NamedFormat* row = find_format(options.dtype);
    if (row == nullptr) throw InputError("unknown dtype \"" + detail::printable(options.dtype) + "\"");
    const OpRequest request{.id = "bench",
                            .op = "linear",
                            .gpu = find_gpu(options.gpu),
                            .kernel = options.kernel,
                            .kernel_names = {},
                            .params = parameters(options.params),
                            .in = {},
                            .out_format = {},
                            .recorded = {},
                            .rows = {},
                            .cols = {}};
    GemmKernel kernel = choose_gemm_kernel(request, row->format, row->format, options.k);
    request.params.finish();
    instruction = options.kernel;
    return kernel;
}

int run(const Options& options) {
    set_threads(options.threads);
    std::string instruction;
    const GemmKernel kernel = kernel_for(options, instruction);
    const DotRule& rule = *kernel.rule;
    const int depth = kernel.instruction_k;
    const Tensor x = make_data(options.data, rule.types.a, options.m, options.k, 1),
                 w = make_data(options.data, rule.types.b, options.n, options.k, 2);
    const auto rows = all_indices(options.m), cols = all_indices(options.n);
    const Plan& plan = kernel.plan;
    const Format out = rule.types.a == fp16 ? fp16 : bf16;

    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    GemmTask task{rule, depth, plan, x, w, out, rows, cols};
    task.engine = GemmEngine::dense;
    auto start = Clock::now();
    const PackedWeights dense_weights(task);
    const double dense_packing = since(start);
    GemmTask filtered_task = task;
    filtered_task.engine = GemmEngine::filtered;
    start = Clock::now();
    const PackedWeights filtered_weights(filtered_task);
    const double filtered_packing = since(start);

    std::vector<Variant> variants;
    GemmTask dense = task;
    dense.packed = &dense_weights;
    filtered_task.packed = &filtered_weights;
    for (const simd::KernelRow& row : simd::kernel_rows()) {
        if (!row.supported() || walk_shape(rule, depth) == std::nullopt) continue;
        GemmTask one = dense;
        one.kernel = row.name;
        const bool best = variants.empty();
        variants.push_back(
            {best ? "dense" : "dense_" + std::string(row.name), options.m, [one] { gemm_accumulators(one); }, {}, 1});
    }
    if (is_fp32_chain(rule)) {
        for (const Fp32Kernels* row : fp32_kernel_rows()) {
            GemmTask one = task;
            one.kernel = row->name;
            variants.push_back({"fma_" + std::string(row->name), options.m, [one] { gemm_accumulators(one); }, {}, 1});
        }
    } else {
        const std::size_t at = variants.size();
        variants.push_back({"filtered", options.m, [&, at] { gemm_rounded(filtered_task, out, &variants[at].redone); }, {}, 1});
    }
    const std::int64_t scalar_rows = std::min<std::int64_t>(options.m, 1);
    const std::vector<std::int64_t> scalar_cols(cols.begin(),
                                                cols.begin() + std::min<std::ptrdiff_t>(std::ssize(cols), 64));
    GemmTask scalar = task;
    scalar.rows = std::span(rows).first(static_cast<std::size_t>(scalar_rows));
    scalar.cols = scalar_cols;
    variants.push_back({"scalar", scalar_rows, [&] { gemm_accumulators_scalar(scalar); }, {}, 1});
#if defined(BITREPLAY_BLAS)
    openblas_set_num_threads(options.threads > 0 ? options.threads : 1);
    std::vector<float> a(static_cast<std::size_t>(options.m * options.k), 0.5F),
        b(static_cast<std::size_t>(options.n * options.k), 0.25F), c(static_cast<std::size_t>(options.m * options.n));
    variants.push_back({"sgemm",
                        options.m,
                        [&] {
                            const int m = static_cast<int>(options.m), n = static_cast<int>(options.n),
                                      k = static_cast<int>(options.k);
                            cblas_sgemm(101, 111, 112, m, n, k, 1.0F, a.data(), k, b.data(), k, 0.0F, c.data(), n);
                        },
                        {},
                        0});
#endif
    for (Variant& variant : variants) variant.run();  // warm up
    for (int round = 0; round < options.rounds; ++round)
        for (Variant& variant : variants) {
            start = Clock::now();
            variant.run();
            variant.seconds.push_back(since(start));
            // The idle threads of OpenBLAS spin for a while and would take a core from the next variant.
            if (variant.name == "sgemm" && options.threads != 1)
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }

    const auto rate = [&](const Variant& v) {
        const double outputs = v.name == "scalar"
                                   ? static_cast<double>(scalar_rows) * static_cast<double>(scalar_cols.size())
                                   : static_cast<double>(v.rows) * static_cast<double>(options.n);
        return outputs * static_cast<double>(options.k) * 1e-9 / median(v.seconds);
    };
    nlohmann::json report{{"gpu", options.gpu},
                          {"instruction", instruction},
                          {"m", options.m},
                          {"n", options.n},
                          {"k", options.k},
                          {"data", options.data},
                          {"threads", options.threads},
                          {"rounds", options.rounds},
                          {"weight_packing_seconds", {{"dense", dense_packing}, {"filtered", filtered_packing}}}};
    const Variant& scalar_variant = *std::find_if(variants.begin(), variants.end(), [](const Variant& v) { return v.name == "scalar"; });
    const Variant* const sgemm = variants.back().name == "sgemm" ? &variants.back() : nullptr;
#if defined(BITREPLAY_BLAS)
    report["sgemm_kernel"] = openblas_get_corename();
#endif
    for (const Variant& v : variants) {
        nlohmann::json line{{"variant", v.name}, {"gmac_per_s", rate(v)}, {"ratio_to_scalar", rate(v) / rate(scalar_variant)}};
        if (v.name == "filtered") line["redone_fraction"] = v.redone;
        if (sgemm != nullptr) {
            std::vector<double> ratios;  // round by round: both saw the same machine
            for (std::size_t i = 0; i < v.seconds.size(); ++i)
                ratios.push_back(rate(v) * median(v.seconds) / v.seconds[i] /
                                 (rate(*sgemm) * median(sgemm->seconds) / sgemm->seconds[i]));
            line["ratio_to_sgemm"] = median(ratios);
        }
        report["variants"].push_back(line);
        if (options.json != "-") {
            fmt::print("{:14} {:8.2f} GMAC/s  {:8.1f} times scalar", v.name, rate(v), rate(v) / rate(scalar_variant));
            if (line.contains("ratio_to_sgemm")) fmt::print("  {:.3f} of sgemm", line["ratio_to_sgemm"].get<double>());
            if (v.name == "filtered") fmt::print("  {:.2f} % redone", 100 * v.redone);
            fmt::print("\n");
        }
    }
    if (options.json == "-")
        fmt::print("{}\n", report.dump());
    else if (!options.json.empty()) {
        std::ofstream file(options.json);
        file << report.dump() << '\n';
        if (!file.flush()) throw InputError(options.json + ": cannot be written");
    }
    return 0;
}

}  // namespace

void add_bench_gemm(CLI::App& parent, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App& command =
        *parent.add_subcommand("gemm", "Speed of the GEMM engine's variants, interleaved, in one process");
    command.add_option("--gpu", options->gpu, "GPU whose arithmetic is computed")->required();
    command.add_option("--m", options->m, "Rows")->check(CLI::Range(1, 1 << 16))->capture_default_str();
    command.add_option("--n", options->n, "Columns")->check(CLI::Range(1, 1 << 18))->capture_default_str();
    command.add_option("--k", options->k, "Depth")->check(CLI::Range(1, 1 << 18))->capture_default_str();
    command.add_option("--dtype", options->dtype, "Type of both operands")->capture_default_str();
    command.add_option("--instruction",
                       options->instruction,
                       "Instead of --dtype: the instruction, e.g. mma.m16n8k32.f32.e4m3.e4m3.f32");
    command.add_option("--kernel", options->kernel, "The order of this recipe, see 'bitreplay info kernels'; without it one walk over K");
    command.add_option("--param", options->params, "A parameter of the recipe, as custom_option=75; may be repeated")->take_all();
    command.add_option("--data", options->data, "Kind of data")
        ->check(CLI::IsMember({"normal", "outlier", "sparse", "wide", "subnormal", "maximal"}))
        ->capture_default_str();
    command.add_option("--threads", options->threads, "Threads (0: all cores)")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    command.add_option("--rounds", options->rounds, "Rounds of which the median is reported")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command.add_option("--json", options->json, "Write the report as JSON to this file (-: standard output)");
    command.callback([options, &command, &action] {
        if (options->kernel.empty())
            refuse_in_vain(command, {"--param"}, "without --kernel");
        else
            refuse_in_vain(command, {"--instruction"}, "with --kernel");
        if (!options->instruction.empty()) refuse_in_vain(command, {"--dtype"}, "with --instruction");
        action = [options] { return run(*options); };
    });
}

}  // namespace bitreplay::tools
