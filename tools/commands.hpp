#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace bitreplay::tools {

/// What main runs after parsing: set by the subcommand that was chosen; returns the exit code.
using Action = std::function<int()>;

// One function per subcommand: declares its options and, when chosen, sets the action.
void add_replay(CLI::App& app, Action& action);
void add_gemm(CLI::App& app, Action& action);
void add_identify(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);

}  // namespace bitreplay::tools
