#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace bitreplay::detail {

/// The JSON files of reduction_trees/recipes, compiled into the library (cmake generates the definition): file name
/// without ".json", and text.
std::span<const std::pair<std::string_view, std::string_view>> embedded_recipes() noexcept;
/// The same for reduction_trees/attention.
std::span<const std::pair<std::string_view, std::string_view>> embedded_attention() noexcept;

}  // namespace bitreplay::detail
