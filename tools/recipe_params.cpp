#include "tools/recipe_params.hpp"

#include <nlohmann/json.hpp>

#include "formats/error.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay::tools {

Params recipe_params(const std::vector<std::string>& pairs) {
    Params params;
    for (const std::string& pair : pairs) {
        const auto equals = pair.find('=');
        if (equals == std::string::npos || equals == 0)
            throw InputError("--param " + detail::printable(pair) + ": expected name=value");
        const std::string value = pair.substr(equals + 1);
        const bool json = value == "true" || value == "false" ||
                          (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos);
        params.set(pair.substr(0, equals), json ? value : nlohmann::json(value).dump());
    }
    return params;
}

}  // namespace bitreplay::tools
