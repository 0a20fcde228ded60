// Which recipe ran and under which parameters: from kernel names, cuBLASLt's log and what a manifest records.

#include <algorithm>
#include <charconv>
#include <regex>

#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

bool applies(const RecipeValues& when, const RecipeValues& values) {
    return std::all_of(
        when.begin(), when.end(), [&](const auto& item) { return values.at(item.first) == item.second; });
}

bool matches_any_of(const std::string& glob, const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return glob_match(glob, name); });
}

/// What the kernel name says about a parameter, if it does.
std::optional<RecipeValue> from_name(const RecipeParam& param, const std::string& kernel) {
    for (const auto& [glob, value] : param.name_globs)
        if (glob_match(glob, kernel)) return value;
    std::smatch match;
    if (param.name_regex.empty() || !std::regex_search(kernel, match, std::regex(param.name_regex)))
        return std::nullopt;
    const std::string found = match[1].str();
    if (!param.words.empty()) return found;
    std::int64_t value = 0;
    std::from_chars(found.data(), found.data() + found.size(), value);
    return value;
}

std::optional<RecipeValue> from_names(const RecipeParam& param, const std::string& kernel, const std::vector<std::string>& all) {
    for (const auto& [glob, value] : param.companion_globs)
        if (matches_any_of(glob, all)) return value;
    return from_name(param, kernel);
}

bool allows(const RecipeParam& param, const RecipeValue& value) {
    if (const auto* word = std::get_if<std::string>(&value))
        return std::find(param.words.begin(), param.words.end(), *word) != param.words.end();
    const std::int64_t number = std::get<std::int64_t>(value);
    return param.words.empty() && number >= param.low && number <= param.high;
}

void check_value(const Recipe& recipe, const RecipeParam& param, const RecipeValue& value) {
    if (allows(param, value)) return;
    std::string allowed = std::to_string(param.low) + " to " + std::to_string(param.high);
    if (!param.words.empty()) {
        allowed.clear();
        for (const std::string& word : param.words) allowed += (allowed.empty() ? "" : ", ") + word;
    }
    throw InputError("kernel " + recipe.name + ": " + param.name + " = " + value_text(value) + " is not one of " +
                     allowed);
}

/// What the log says about a parameter, if it does; a field that is left out counts only if `absent_counts`.
std::optional<RecipeValue> from_log(const Recipe& recipe,
                                    const RecipeParam& param,
                                    const CublasLtFields& log,
                                    bool absent_counts) {
    if (!param.log) return std::nullopt;
    const LogSource& source = *param.log;
    const auto field = log.find(source.field);
    if (field == log.end()) {
        if (source.absent && !absent_counts)
            throw InputError("kernel " + recipe.name + ": the cuBLASLt log has no " + source.field +
                             ", but the kernel names need it");
        return source.absent;
    }
    const std::string& text = field->second;
    const auto unknown = [&] {
        return NotModelled("kernel " + recipe.name + ": cuBLASLt's " + source.field + "=" + text.substr(0, 40) +
                           " is not modelled");
    };
    if (!source.values.empty()) {
        const auto known = source.values.find(text);
        if (known == source.values.end()) throw unknown();
        return known->second;
    }
    std::string digits = text;
    if (!source.regex.empty()) {
        std::smatch match;
        if (!std::regex_search(text, match, std::regex(source.regex))) return std::nullopt;
        digits = match[1].str();
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !allows(param, value)) throw unknown();
    return value;
}

void check_fact(const Recipe& recipe, const RecipeFact& fact, const std::string& kernel, const CublasLtFields& log) {
    const std::optional<RecipeValue> named = from_name(fact.told, kernel);
    if (!named) return;
    const std::optional<RecipeValue> logged =
        log.contains(fact.told.log->field) || log.contains("computeType") ? from_log(recipe, fact.told, log, true) : std::nullopt;
    if (!logged || *named == *logged) return;
    const std::string what = "kernel " + recipe.name + ": the cuBLASLt log says " + fact.told.name + " = " + value_text(*logged) +
                             ", the kernel name " + kernel + " says " + value_text(*named);
    if (fact.doubtful) throw NotModelled(what);
    throw InputError(what);
}

/// The row of a value, nullptr if there is none.
const RecipeTable::Row* find_row(const RecipeTable& table, std::int64_t value) {
    for (const RecipeTable::Row& row : table.rows)
        if (std::find(row.values.begin(), row.values.end(), value) != row.values.end()) return &row;
    return nullptr;
}

/// Whether the table has a row for what the log says of its parameter, if it says something.
bool has_row(const Recipe& recipe, const RecipeTable& table, const CublasLtFields& log) {
    const std::optional<RecipeValue> value = from_log(recipe, *recipe.find_param(table.param), log, true);
    return !value || find_row(table, std::get<std::int64_t>(*value)) != nullptr;
}

/// Sets what the table says of the value of its parameter.
void apply(const Recipe& recipe, const RecipeTable& table, RecipeValues& values) {
    const std::int64_t key = std::get<std::int64_t>(values.at(table.param));
    const RecipeTable::Row* row = find_row(table, key);
    if (row == nullptr)
        throw NotModelled("kernel " + recipe.name + ": " + table.param + " = " + std::to_string(key) + " is not modelled");
    for (const auto& [name, value] : row->set)
        if (const auto& [at, added] = values.emplace(name, value); !added && at->second != value)
            throw InputError("kernel " + recipe.name + ": " + name + " = " + value_text(at->second) + " contradicts " +
                             table.param + " = " + std::to_string(key));
}

}  // namespace

std::string value_text(const RecipeValue& value) {
    return std::holds_alternative<std::string>(value) ? std::get<std::string>(value)
                                                      : std::to_string(std::get<std::int64_t>(value));
}

const RecipeParam* Recipe::find_param(std::string_view param) const noexcept {
    for (const RecipeParam& item : params)
        if (item.name == param) return &item;
    return nullptr;
}

const Recipe* match_recipe(const std::vector<std::string>& kernel_names) {
    for (const Recipe& recipe : recipes()) {
        const auto main = std::count_if(kernel_names.begin(), kernel_names.end(), [&](const auto& name) {
            return any_glob_match(recipe.kernels, name);
        });
        const auto beside = std::count_if(kernel_names.begin(), kernel_names.end(), [&](const auto& name) {
            return !any_glob_match(recipe.kernels, name) && any_glob_match(recipe.companions, name);
        });
        if (main == 1 && main + beside == std::ssize(kernel_names)) return &recipe;
    }
    return nullptr;
}

bool fits_log(const Recipe& recipe, const CublasLtFields& log) {
    const std::string& algorithm = log.at("algoId");
    const auto compute = log.find("computeType");
    return std::any_of(recipe.algorithms.begin(),
                       recipe.algorithms.end(),
                       [&](std::int64_t id) { return std::to_string(id) == algorithm; }) &&
           (recipe.compute.empty() || compute == log.end() ||
            std::find(recipe.compute.begin(), recipe.compute.end(), compute->second) != recipe.compute.end());
}

std::vector<const Recipe*> recipes_of(const CublasLtFields& log) {
    std::vector<const Recipe*> all, known;
    for (const Recipe& recipe : recipes()) {
        if (!fits_log(recipe, log)) continue;
        all.push_back(&recipe);
        if (std::all_of(recipe.tables.begin(), recipe.tables.end(), [&](const RecipeTable& table) { return has_row(recipe, table, log); }))
            known.push_back(&recipe);
    }
    return known.empty() ? all : known;
}

RecipeValues resolve(const Recipe& recipe,
                     RecipeValues recorded,
                     const std::vector<std::string>& kernel_names,
                     int element_bits,
                     const CublasLtFields* log,
                     bool has_addend) {
    for (const auto& [name, value] : recorded) {
        const RecipeParam* param = recipe.find_param(name);
        if (param == nullptr) throw InputError("kernel " + recipe.name + ": unknown parameter \"" + name + "\"");
        check_value(recipe, *param, value);
    }
    std::string kernel;
    for (const std::string& name : kernel_names)
        if (any_glob_match(recipe.kernels, name)) kernel = name;
    // std::regex recurses along what it matches; the longest names of cuBLAS have about 800 characters.
    if (kernel.size() > 4000) throw InputError("a kernel name of " + std::to_string(kernel.size()) + " characters");
    const auto fill = [&](const RecipeParam& param) {
        const std::optional<RecipeValue> named =
            kernel.empty() ? std::nullopt : from_names(param, kernel, kernel_names);
        const bool required = std::any_of(kernel_names.begin(), kernel_names.end(), [&](const auto& name) {
            return any_glob_match(param.required_if, name);
        });
        const std::string hint = param.log && log == nullptr
                                     ? ": record cuBLASLt's log line of it (\"cublaslt\", CUBLASLT_LOG_LEVEL=5), or say it in params"
                                     : "";
        const std::optional<RecipeValue> logged =
            log == nullptr ? std::nullopt : from_log(recipe, param, *log, !required);
        if (named && logged && *named != *logged)
            throw InputError("kernel " + recipe.name + ": the cuBLASLt log says " + param.name + " = " +
                             value_text(*logged) + ", the kernel name " + kernel + " another");
        const auto found = recorded.find(param.name);
        if (found != recorded.end()) {
            if (named && *named != found->second)
                throw InputError("kernel " + recipe.name + ": " + param.name + " = " + value_text(found->second) +
                                 " contradicts the kernel name " + kernel);
            if (logged && *logged != found->second)
                throw InputError("kernel " + recipe.name + ": " + param.name + " = " + value_text(found->second) +
                                 " contradicts the cuBLASLt log: " + value_text(*logged));
            return;
        }
        if (logged) {
            recorded[param.name] = *logged;
            return;
        }
        if (required)
            throw NotModelled("kernel " + recipe.name + ": " + param.name + " was not recorded for " + kernel + hint);
        if (named) {
            check_value(recipe, param, *named);
            recorded[param.name] = *named;
        } else if (param.hidden_by_addend && has_addend && log == nullptr && !kernel.empty()) {
            throw NotModelled("kernel " + recipe.name + ": " + param.name +
                              " was not recorded: where a bias or c is added, kernel names alone do not tell it" + hint);
        } else if (param.needs_name && log != nullptr && kernel_names.empty()) {
            throw NotModelled("kernel " + recipe.name + ": " + param.name +
                              " was not recorded, and only a kernel name tells it");
        } else if (param.fallback_bits != 0) {
            recorded[param.name] = param.fallback_bits / element_bits;
        } else if (param.fallback) {
            recorded[param.name] = *param.fallback;
        } else {
            throw NotModelled("kernel " + recipe.name + ": " + param.name + " was not recorded" + hint);
        }
    };
    for (const RecipeTable& table : recipe.tables) {
        fill(*recipe.find_param(table.param));
        apply(recipe, table, recorded);
    }
    for (const RecipeParam& param : recipe.params) fill(param);
    if (log != nullptr && !kernel.empty())
        for (const RecipeFact& fact : recipe.facts) check_fact(recipe, fact, kernel, *log);
    recorded["element_bits"] = std::int64_t{element_bits};
    recorded["gelu"] = std::int64_t{0};
    return recorded;
}

const RecipeBias* find_bias(const Recipe& recipe, const RecipeValues& values) noexcept {
    for (const RecipeBias& bias : recipe.bias)
        if (applies(bias.when, values)) return &bias;
    return nullptr;
}

const RecipeAddend* find_addend(const Recipe& recipe, const RecipeValues& values) noexcept {
    for (const RecipeAddend& addend : recipe.addend)
        if (applies(addend.when, values)) return &addend;
    return nullptr;
}

bool any_applies(const std::vector<RecipeValues>& conditions, const RecipeValues& values) noexcept {
    return std::any_of(
        conditions.begin(), conditions.end(), [&](const RecipeValues& when) { return applies(when, values); });
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

bool any_glob_match(std::span<const std::string> patterns, std::string_view text) noexcept {
    return std::any_of(
        patterns.begin(), patterns.end(), [&](const std::string& pattern) { return glob_match(pattern, text); });
}

}  // namespace bitreplay
