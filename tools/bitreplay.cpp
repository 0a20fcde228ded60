#include <cstdio>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>

#include "arch/fp32.hpp"
#include "formats/error.hpp"
#include "tools/bench.hpp"
#include "tools/commands.hpp"
#include "tools/report.hpp"

namespace {

/// One line on stderr.
void complain(std::string_view text) { fmt::print(stderr, "bitreplay: {}\n", bitreplay::tools::one_line(text)); }

bool is_command(const CLI::App& app, std::string_view name) {
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* command) { return command->get_name() == name; });
}

/// The innermost command that was chosen.
const CLI::App& chosen(const CLI::App& app) {
    const CLI::App* at = &app;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    return *at;
}

/// The first option of the chosen command that stands on the command line more than once though it may not be repeated, or "".
std::string given_twice(const CLI::App& app, int argc, char** argv) {
    for (const CLI::Option* option : chosen(app).get_options()) {
        if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) continue;
        for (const std::string& name : option->get_lnames()) {
            const auto names = [&](std::string_view text) { return text.starts_with("--") && text.substr(2, text.find('=') - 2) == name; };
            if (std::count_if(argv + 1, argv + argc, names) > 1) return "--" + name;
        }
    }
    return {};
}

/// Runs what was chosen; what it throws names at least the manifest.
int run(const CLI::App& app, const bitreplay::tools::Action& action) {
    using namespace bitreplay;
    const CLI::App& command = chosen(app);
    const CLI::Option* manifest = command.get_option_no_throw("manifest");
    const std::string place = manifest != nullptr && manifest->count() != 0 ? manifest->as<std::string>() : command.get_name();
    try {
        return action();
    } catch (const FileError&) {
        throw;
    } catch (const InputError& error) {
        if (manifest == nullptr || std::string_view(error.what()).starts_with("--")) throw;
        throw FileError(place + ": " + error.what());
    } catch (const std::bad_alloc&) {
        throw FileError(place + ": out of memory");
    } catch (const std::length_error&) {
        throw FileError(place + ": out of memory");
    }
}

}  // namespace

int main(int argc, char** argv) {
    using namespace bitreplay;
    try {
        if (!mxcsr_is_default()) {
            complain("this process does not round to nearest or flushes subnormals (MXCSR); refusing to compute");
            return 2;
        }
        CLI::App app{"bitreplay reproduces the floating-point results of NVIDIA GPUs on a CPU, bit for bit, and compares them with GPU dumps.\n"
                     "Exit codes: 0 equal, 1 different, 2 bad usage or input, 3 not modelled.",
                     "bitreplay"};
        app.set_version_flag("--version", "bitreplay " BITREPLAY_VERSION);
        app.require_subcommand(1);
        app.footer("Example: bitreplay replay testdata/h200/linear/gemm.json\n");
        tools::Action action;
        tools::add_replay(app, action);
        tools::add_gemm(app, action);
        tools::add_identify(app, action);
        tools::add_explain(app, action);
        tools::add_info(app, action);
        CLI::App& bench = *app.add_subcommand("bench", "Speed of the arithmetic on this machine");
        bench.require_subcommand(1);
        tools::add_bench_gemm(bench, action);
        tools::add_bench_math(bench, action);
        if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
            complain(fmt::format("unknown command \"{}\" (see bitreplay --help)", argv[1]));
            return 2;
        }
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& shown) {
            return app.exit(shown);  // --help, --version
        } catch (const CLI::ParseError& error) {
            std::string text = error.what();
            for (char& ch : text)
                if (ch == '\n') ch = ' ';
            const std::string twice = given_twice(app, argc, argv);
            complain((twice.empty() ? text : twice + " was given twice") + " (see bitreplay --help)");
            return 2;
        }
        if (const std::string twice = given_twice(app, argc, argv); !twice.empty()) {
            complain(twice + " was given twice (see bitreplay --help)");
            return 2;
        }
        const int code = run(app, action);
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
            complain("standard output cannot be written");
            return 2;
        }
        return code;
    } catch (const NotModelled& error) {
        complain(error.what());
        return 3;
    } catch (const std::bad_alloc&) {
        complain("out of memory");
        return 2;
    } catch (const std::exception& error) {
        complain(error.what());
        return 2;
    }
}
