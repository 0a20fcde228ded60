#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/vector_exp.hpp"
#include "tools/commands.hpp"

namespace bitreplay::tools {
namespace {

struct Options {
    std::string gpu = "h200";
    int rounds = 40;
    bool json = false;
};

/// One way to compute one function of a whole array.
struct Contender {
    std::string function, kernel;
    std::function<void()> run;
    double best = 0;  ///< results per second
};

double seconds(const std::function<void()>& run, int repeats) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int bench(const Options& options) {
    const Mufu& unit = mufu(find_gpu(options.gpu));
    constexpr std::size_t count = 8192;  // stays in the first-level cache
    std::vector<std::uint32_t> in(count), out(count), other(count);
    std::vector<float> host(count), host_out(count);
    for (std::size_t i = 0; i < count; ++i) {  // what a softmax sees
        host[i] = -20.0F * static_cast<float>(i) / static_cast<float>(count);
        std::memcpy(&in[i], &host[i], sizeof in[i]);
    }

    std::vector<VectorExp> kernels;
    for (const std::string_view name : VectorExp::kernels()) kernels.emplace_back(unit, name);
    std::vector<Contender> contenders;
    for (const VectorExp& kernel : kernels) {
        const std::string name(kernel.kernel());
        contenders.push_back({"ex2", name, [&] { kernel.ex2(in, out); }});
        contenders.push_back({"expf", name, [&] { kernel.expf(in, out); }});
        contenders.push_back({"exp_parts", name, [&] { kernel.exp_parts(in, out, other); }});
    }
    contenders.push_back({"expf", "libm", [&] {
                              for (std::size_t i = 0; i < count; ++i) host_out[i] = std::exp(host[i]);
                          }});

    // Interleaved, best of all rounds: a busy moment of the machine meets all of them.
    for (int round = 0; round < options.rounds; ++round)
        for (Contender& item : contenders) {
            constexpr int repeats = 16;
            item.best = std::max(item.best, repeats * static_cast<double>(count) / seconds(item.run, repeats));
        }

    const auto speed = [&](const std::string& function, const std::string& kernel) {
        for (const Contender& item : contenders)
            if (item.function == function && item.kernel == kernel) return item.best;
        return 0.0;
    };
    const double libm = speed("expf", "libm");
    nlohmann::json rows = nlohmann::json::array();
    if (!options.json) fmt::print("{:<10} {:<8} {:>12} {:>10} {:>12}\n", "function", "kernel", "M results/s", "x scalar", "x libm expf");
    for (const Contender& item : contenders) {
        const double scalar = speed(item.function, "scalar");
        rows.push_back({{"function", item.function}, {"kernel", item.kernel}, {"results_per_second", item.best},
                        {"ratio_scalar", item.best / scalar}, {"ratio_libm_expf", item.best / libm}});
        if (!options.json)
            fmt::print("{:<10} {:<8} {:>12.1f} {:>10.2f} {:>12.2f}\n", item.function, item.kernel, item.best * 1e-6,
                       item.best / scalar, item.best / libm);
    }
    if (options.json)
        fmt::print("{}\n", nlohmann::json{{"benchmark", "math"}, {"gpu", options.gpu}, {"threads", 1}, {"rows", rows}}.dump(2));
    return 0;
}

}  // namespace

void add_bench_math(CLI::App& parent, Action& action) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = parent.add_subcommand("math", "ex2 and expf of one thread: every kernel, the scalar function, and libm's expf");
    command->add_option("--gpu", options->gpu, "whose special-function unit")->capture_default_str();
    command->add_option("--rounds", options->rounds, "measurements of each, the best counts")->check(CLI::Range(1, 10000))->capture_default_str();
    command->add_flag("--json", options->json, "for programs");
    command->callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace bitreplay::tools
