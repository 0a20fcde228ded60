#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>

namespace bitreplay::tools {

/// What main runs after parsing: set by the subcommand that was chosen; returns the exit code.
using Action = std::function<int()>;

/// To be called while the command line is parsed: a usage error for the first of these options that was given, because it
/// "has no effect WHERE".
inline void refuse_in_vain(const CLI::App& command, std::initializer_list<const char*> options, const std::string& where) {
    for (const char* option : options)
        if (command.count(option) != 0) throw CLI::ValidationError(option, "has no effect " + where);
}

// One function per subcommand: declares its options and, when chosen, sets the action.
void add_replay(CLI::App& app, Action& action);
void add_gemm(CLI::App& app, Action& action);
void add_identify(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);

}  // namespace bitreplay::tools
