#pragma once

#include <string>
#include <vector>

#include "emu/params.hpp"

namespace bitreplay::tools {

/// Params of "name=value" pairs (--param): values are JSON where that parses (numbers, true, false) and words otherwise.
/// InputError for a pair without a name.
Params recipe_params(const std::vector<std::string>& pairs);

}  // namespace bitreplay::tools
