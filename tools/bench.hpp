#pragma once

#include "tools/commands.hpp"

namespace bitreplay::tools {

// bitreplay bench: each adds its subcommand to `parent`.
void add_bench_gemm(CLI::App& parent, Action& action);
void add_bench_math(CLI::App& parent, Action& action);

}  // namespace bitreplay::tools
