#include "reduction_trees/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <regex>

#include "formats/error.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

std::int64_t number(const RecipeValues& values, const std::string& name) { return std::get<std::int64_t>(values.at(name)); }

std::string text_of(const RecipeValue& value) {
    return std::holds_alternative<std::string>(value) ? std::get<std::string>(value) : std::to_string(std::get<std::int64_t>(value));
}

bool applies(const RecipeValues& when, const RecipeValues& values) {
    return std::all_of(when.begin(), when.end(), [&](const auto& item) { return values.at(item.first) == item.second; });
}

/// Builds the tree below layer `at` for the summands of `ranges`; extent: the length of a whole part, of which these may
/// be the shorter last one.
class Builder {
public:
    Builder(const Recipe& recipe, const RecipeValues& values, std::int64_t k) : recipe_(recipe), values_(values), k_(k) {}

    Plan build(std::size_t at, const std::vector<Range>& ranges, std::int64_t extent) const {
        for (; at < recipe_.layers.size(); ++at)
            if (applies(recipe_.layers[at].when, values_)) break;
        if (at == recipe_.layers.size()) return {.kind = Plan::Kind::walk, .ranges = ranges, .parts = {}, .merge = {}};
        const RecipeLayer& layer = recipe_.layers[at];
        std::vector<std::vector<Range>> parts;
        switch (layer.kind) {
            case RecipeLayer::Kind::walk: return walk(layer, ranges);
            case RecipeLayer::Kind::lanes: return lanes(layer, ranges, extent);
            case RecipeLayer::Kind::split: parts = split(layer, ranges, extent); break;
            case RecipeLayer::Kind::interleave: return interleave(layer, at, ranges, extent);
            case RecipeLayer::Kind::blocks: parts = blocks(layer, ranges); break;
        }
        if (parts.size() == 1) return build(at + 1, parts.front(), extent);
        Plan plan{.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = layer.merge};
        for (const auto& part : parts) plan.parts.push_back(build(at + 1, part, extent));
        return plan;
    }

private:
    [[noreturn]] void not_modelled(const std::string& reason) const {
        throw NotModelled("kernel " + recipe_.name + ": " + reason + " for K = " + std::to_string(k_) + " is not modelled");
    }

    /// Contiguous parts of equal length, the last one shorter. floor_tiles can end before the range does: the kernel
    /// really leaves those summands out.
    std::vector<std::vector<Range>> split(const RecipeLayer& layer, const std::vector<Range>& ranges, std::int64_t& extent) const {
        const auto [begin, end] = ranges.front();
        const std::int64_t k = end - begin;
        const std::int64_t count = number(values_, layer.parts);
        if (count == 1) return {ranges};
        std::int64_t chunk = 0;
        if (layer.chunk == RecipeLayer::Chunk::ceil_multiple) {
            const auto divides = std::find_if(layer.multiples.begin(), layer.multiples.end(), [&](std::int64_t m) { return k % m == 0; });
            const std::int64_t multiple = divides == layer.multiples.end() ? layer.multiples.back() : *divides;
            chunk = ceil_div(ceil_div(k, count), multiple) * multiple;
        } else {
            const std::int64_t tile = number(values_, layer.size);
            chunk = layer.chunk == RecipeLayer::Chunk::floor_tiles ? ceil_div(k / count, tile) * tile
                                                                    : ceil_div(ceil_div(k, tile), count) * tile;
        }
        extent = chunk;
        std::vector<std::vector<Range>> parts;
        for (std::int64_t s = 0; s < count; ++s) {
            const Range part{std::min(end, begin + s * chunk), std::min(end, begin + (s + 1) * chunk)};
            parts.push_back(part.begin < part.end ? std::vector{part} : std::vector<Range>{});
        }
        return parts;
    }

    /// Stripes dealt out in turn: part p walks stripes p, p + parts, …
    Plan interleave(const RecipeLayer& layer, std::size_t at, const std::vector<Range>& ranges, std::int64_t extent) const {
        const std::int64_t count = number(values_, layer.parts), stripe = number(values_, layer.size);
        if (count == 1) return build(at + 1, ranges, extent);
        Plan plan{.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = layer.merge};
        plan.parts.resize(static_cast<std::size_t>(count));
        for (const auto& [begin, end] : ranges) {
            if (layer.rounds == RecipeLayer::Rounds::whole && (end - begin) % (stripe * count) != 0)
                not_modelled("a K that the sliced tile does not divide");
            for (std::int64_t k = begin, p = 0; k < end; k += stripe, p = (p + 1) % count)
                plan.parts[static_cast<std::size_t>(p)].ranges.push_back({k, std::min(end, k + stripe)});
        }
        const std::string buffers = layer.buffers.empty() ? "each" : std::get<std::string>(values_.at(layer.buffers));
        return buffers == "each" ? plan : buffered(std::move(plan), buffers == "half" ? ceil_div(count, 2) : 1);
    }

    /// All parts but the last are summed in `buffers` running sums, part p in buffer p % buffers; the last part then adds
    /// the buffers to its own sum, in order.
    static Plan buffered(Plan plan, std::int64_t buffers) {
        std::vector<Plan> sums;
        for (std::size_t p = 0; p + 1 < plan.parts.size(); ++p) {
            const std::size_t at = p % static_cast<std::size_t>(buffers);
            if (at == sums.size())
                sums.push_back({.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = plan.merge});
            sums[at].parts.push_back(std::move(plan.parts[p]));
        }
        plan.parts.erase(plan.parts.begin(), plan.parts.end() - 1);
        for (Plan& sum : sums) plan.parts.push_back(sum.parts.size() == 1 ? std::move(sum.parts.front()) : std::move(sum));
        return plan;
    }

    /// The value of a number or parameter.
    std::int64_t factor(const RecipeValue& value) const {
        return std::holds_alternative<std::string>(value) ? number(values_, std::get<std::string>(value)) : std::get<std::int64_t>(value);
    }

    Plan lanes(const RecipeLayer& layer, const std::vector<Range>& ranges, std::int64_t extent) const {
        Plan plan{.kind = Plan::Kind::walk, .ranges = ranges, .parts = {}, .merge = {}};
        if (ranges.empty()) return plan;  // a part beyond the end of K
        plan.kind = Plan::Kind::lanes;
        plan.lanes.count = 1;
        for (const RecipeValue& value : layer.lanes) plan.lanes.count *= factor(value);
        plan.lanes.vector = layer.vector ? factor(*layer.vector) : std::min(layer.slice, ceil_div(extent, plan.lanes.count));
        if (layer.restart) plan.lanes.chunk = factor(*layer.restart);
        std::int64_t present = used_lanes(plan);
        for (const RecipeFold& item : layer.folds) {
            LaneFold fold{.kind = item.kind, .outer = 1, .terms = 0, .inner = factor(item.apart), .present = present};
            fold.terms = item.terms ? factor(*item.terms) : ceil_div(present, fold.inner);
            fold.outer = ceil_div(present, fold.terms * fold.inner);
            present = fold.outer * fold.inner;
            plan.lanes.folds.push_back(fold);
        }
        if (present != 1) not_modelled("a fold of lanes that leaves " + std::to_string(present) + " sums");
        return plan;
    }

    std::vector<std::vector<Range>> blocks(const RecipeLayer& layer, const std::vector<Range>& ranges) const {
        const std::int64_t size = number(values_, layer.size);
        std::vector<std::vector<Range>> parts;
        for (const auto& [begin, end] : ranges)
            for (std::int64_t k = begin; k < end; k += size) parts.push_back({{k, std::min(k + size, end)}});
        if (parts.empty()) parts.emplace_back();
        return parts;
    }

    Plan walk(const RecipeLayer& layer, const std::vector<Range>& ranges) const {
        Plan plan{.kind = Plan::Kind::walk, .ranges = {}, .parts = {}, .merge = {}};
        for (const auto& [begin, end] : ranges) {
            const std::int64_t rest = layer.residue == RecipeLayer::Residue::last ? 0 : (end - begin) % number(values_, layer.size);
            if (rest != 0 && layer.residue == RecipeLayer::Residue::none) not_modelled("a K that the tile does not divide");
            if (rest != 0) plan.ranges.push_back({begin, begin + rest});
            if (begin + rest < end) plan.ranges.push_back({begin + rest, end});
        }
        return plan;
    }

    const Recipe& recipe_;
    const RecipeValues& values_;
    std::int64_t k_;
};

bool any_match(const std::vector<std::string>& globs, std::string_view text) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return glob_match(glob, text); });
}

/// What the kernel name says about a parameter, if it does.
std::optional<RecipeValue> from_name(const RecipeParam& param, const std::string& kernel) {
    for (const auto& [glob, value] : param.name_globs)
        if (glob_match(glob, kernel)) return value;
    std::smatch match;
    if (param.name_regex.empty() || !std::regex_search(kernel, match, std::regex(param.name_regex))) return std::nullopt;
    const std::string found = match[1].str();
    if (!param.words.empty()) return found;
    std::int64_t value = 0;
    std::from_chars(found.data(), found.data() + found.size(), value);
    return value;
}

void check_value(const Recipe& recipe, const RecipeParam& param, const RecipeValue& value) {
    const bool fits = param.words.empty()
                          ? std::holds_alternative<std::int64_t>(value) && std::get<std::int64_t>(value) >= param.low && std::get<std::int64_t>(value) <= param.high
                          : std::holds_alternative<std::string>(value) && std::find(param.words.begin(), param.words.end(), std::get<std::string>(value)) != param.words.end();
    if (fits) return;
    std::string allowed = std::to_string(param.low) + " to " + std::to_string(param.high);
    if (!param.words.empty()) {
        allowed.clear();
        for (const std::string& word : param.words) allowed += (allowed.empty() ? "" : ", ") + word;
    }
    throw InputError("kernel " + recipe.name + ": " + param.name + " = " + text_of(value) + " is not one of " + allowed);
}

/// Sets what the table says of the value of its parameter.
void apply(const Recipe& recipe, const RecipeTable& table, RecipeValues& values) {
    const std::int64_t key = number(values, table.param);
    for (const RecipeTable::Row& row : table.rows) {
        if (std::find(row.values.begin(), row.values.end(), key) == row.values.end()) continue;
        for (const auto& [name, value] : row.set)
            if (const auto& [at, added] = values.emplace(name, value); !added && at->second != value)
                throw InputError("kernel " + recipe.name + ": " + name + " = " + text_of(at->second) + " contradicts " + table.param + " = " +
                                 std::to_string(key));
        return;
    }
    throw NotModelled("kernel " + recipe.name + ": " + table.param + " = " + std::to_string(key) + " is not modelled");
}

}  // namespace

const RecipeParam* Recipe::find_param(std::string_view param) const noexcept {
    for (const RecipeParam& item : params)
        if (item.name == param) return &item;
    return nullptr;
}

const Recipe* match_recipe(const std::vector<std::string>& kernel_names) {
    for (const Recipe& recipe : recipes()) {
        const auto main = std::count_if(kernel_names.begin(), kernel_names.end(), [&](const auto& name) { return any_match(recipe.kernels, name); });
        const auto beside = std::count_if(kernel_names.begin(), kernel_names.end(), [&](const auto& name) {
            return !any_match(recipe.kernels, name) && any_match(recipe.companions, name);
        });
        if (main == 1 && main + beside == std::ssize(kernel_names)) return &recipe;
    }
    return nullptr;
}

RecipeValues resolve(const Recipe& recipe, RecipeValues recorded, const std::vector<std::string>& kernel_names, int element_bits) {
    for (const auto& [name, value] : recorded) {
        const RecipeParam* param = recipe.find_param(name);
        if (param == nullptr) throw InputError("kernel " + recipe.name + ": unknown parameter \"" + name + "\"");
        check_value(recipe, *param, value);
    }
    std::string kernel;
    for (const std::string& name : kernel_names)
        if (any_match(recipe.kernels, name)) kernel = name;
    const auto fill = [&](const RecipeParam& param) {
        const std::optional<RecipeValue> named = kernel.empty() ? std::nullopt : from_name(param, kernel);
        const auto found = recorded.find(param.name);
        if (found != recorded.end()) {
            if (named && *named != found->second)
                throw InputError("kernel " + recipe.name + ": " + param.name + " = " + text_of(found->second) + " contradicts the kernel name " + kernel);
            return;
        }
        const bool required = std::any_of(kernel_names.begin(), kernel_names.end(), [&](const auto& name) { return any_match(param.required_if, name); });
        if (required) throw NotModelled("kernel " + recipe.name + ": " + param.name + " was not recorded for " + kernel);
        if (named) {
            check_value(recipe, param, *named);
            recorded[param.name] = *named;
        } else if (param.fallback_bits != 0) {
            recorded[param.name] = param.fallback_bits / element_bits;
        } else if (param.fallback) {
            recorded[param.name] = *param.fallback;
        } else {
            throw NotModelled("kernel " + recipe.name + ": " + param.name + " was not recorded");
        }
    };
    for (const RecipeTable& table : recipe.tables) {
        fill(*recipe.find_param(table.param));
        apply(recipe, table, recorded);
    }
    for (const RecipeParam& param : recipe.params) fill(param);
    recorded["element_bits"] = std::int64_t{element_bits};
    return recorded;
}

Plan make_plan(const Recipe& recipe, const RecipeValues& values, std::int64_t k) {
    if (k == 0) return {};
    if (recipe.max_k != 0 && k > recipe.max_k)
        throw NotModelled("kernel " + recipe.name + ": K = " + std::to_string(k) + " is not modelled");
    return Builder(recipe, values, k).build(0, {{0, k}}, k);
}

const RecipeBias* find_bias(const Recipe& recipe, const RecipeValues& values) noexcept {
    for (const RecipeBias& bias : recipe.bias)
        if (applies(bias.when, values)) return &bias;
    return nullptr;
}

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && pattern[p] == text[t]) {
            ++p;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}  // namespace bitreplay
