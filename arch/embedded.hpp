#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace bitreplay::detail {

/// JSON files compiled into the library (cmake generates the definitions): file name without ".json", and text.
std::span<const std::pair<std::string_view, std::string_view>> embedded_gpus() noexcept;
std::span<const std::pair<std::string_view, std::string_view>> embedded_mufu() noexcept;

}  // namespace bitreplay::detail
