#pragma once

#include "tools/commands.hpp"

namespace bitreplay::tools {

/// bitreplay bench gemm: adds the subcommand to `parent`.
void add_bench_gemm(CLI::App& parent, Action& action);

}  // namespace bitreplay::tools
