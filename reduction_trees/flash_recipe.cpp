#include "reduction_trees/flash_recipe.hpp"

#include <algorithm>
#include <regex>

#include "formats/error.hpp"
#include "formats/strict_json.hpp"
#include "reduction_trees/embedded.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

template <typename T>
bool contains(const std::vector<T>& list, const T& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

template <typename T>
std::vector<T> integers(JsonReader& reader, const std::string& key) {
    std::vector<T> out;
    for (const JsonReader& item : reader.at(key).elements()) out.push_back(static_cast<T>(item.as_integer(1, 4096)));
    return out;
}

std::vector<std::string> texts(JsonReader& reader, const std::string& key) {
    std::vector<std::string> out;
    for (const JsonReader& item : reader.at(key).elements()) out.push_back(item.as_text());
    return out;
}

FlashTile read_tile(JsonReader& reader) { return {reader.integer("query", 16, 1024), reader.integer("key", 16, 1024)}; }

FlashBuild read_build(JsonReader reader) {
    FlashBuild build;
    build.name = reader.text("name");
    build.summary = reader.text("summary");
    build.kernels = texts(reader, "kernels");
    build.companions = texts(reader, "companions");
    build.fast_math = reader.boolean("fast_math");
    for (JsonReader item : reader.at("evidence").elements()) {
        item.choice("level", {"measured", "published", "unverified"});
        const std::string level = item.text("level");
        build.evidence.push_back({integers<int>(item, "sm"), level, item.text("source")});
        item.finish();
    }
    reader.finish();
    return build;
}

FlashRecipe read_recipe(JsonReader reader) {
    FlashRecipe recipe;
    for (JsonReader& item : reader.at("builds").elements()) recipe.builds.push_back(read_build(item));
    recipe.instruction_family = reader.text("instruction_family");
    recipe.instruction_k = static_cast<int>(reader.integer("instruction_k", 1, 64));
    recipe.head_dims = integers<std::int64_t>(reader, "head_dims");
    for (JsonReader item : reader.at("forward").elements()) {
        FlashRecipe::ForwardRow row{integers<int>(item, "sm"), integers<std::int64_t>(item, "head_dims"), {}, {}};
        for (const JsonReader& causal : item.at("causal").elements()) row.causal.push_back(causal.as_boolean());
        row.tile = read_tile(item);
        item.finish();
        recipe.forward.push_back(std::move(row));
    }
    JsonReader split = reader.at("split");
    for (JsonReader item : split.at("tiles").elements()) {
        recipe.split.push_back({integers<std::int64_t>(item, "head_dims"), read_tile(item)});
        item.finish();
    }
    for (JsonReader item : split.at("combine_rows").elements()) {
        recipe.combine.push_back({integers<std::int64_t>(item, "head_dims"), item.integer("rows", 1, 128)});
        item.finish();
    }
    recipe.threads = split.integer("threads", 32, 1024);
    recipe.max_splits = split.integer("max_splits", 1, 1024);
    recipe.blocks_per_multiprocessor = split.integer("blocks_per_multiprocessor", 1, 32);
    split.finish();
    reader.finish();
    return recipe;
}

}  // namespace

std::int64_t FlashRecipe::head_dim(std::int64_t tensor_head_dim) const {
    const auto found = std::lower_bound(head_dims.begin(), head_dims.end(), tensor_head_dim);
    if (found == head_dims.end())
        throw NotModelled("flash attention with head dimension " + std::to_string(tensor_head_dim) + " (largest: " +
                          std::to_string(head_dims.back()) + ")");
    return *found;
}

FlashTile FlashRecipe::forward_tile(int sm, std::int64_t head_dim, bool causal) const {
    for (const ForwardRow& row : forward)
        if (contains(row.sm, sm) && contains(row.head_dims, head_dim) && contains(row.causal, causal)) return row.tile;
    throw NotModelled("flash attention on sm_" + std::to_string(sm) + " with kernel head dimension " + std::to_string(head_dim));
}

FlashTile FlashRecipe::split_tile(std::int64_t head_dim) const {
    for (const SplitRow& row : split)
        if (contains(row.head_dims, head_dim)) return row.tile;
    throw NotModelled("split flash attention with kernel head dimension " + std::to_string(head_dim));
}

std::int64_t FlashRecipe::combine_rows(std::int64_t head_dim) const {
    for (const CombineRow& row : combine)
        if (contains(row.head_dims, head_dim)) return row.rows;
    throw NotModelled("combining flash attention with kernel head dimension " + std::to_string(head_dim));
}

const FlashRecipe& flash_recipe() {
    static const FlashRecipe recipe = [] {
        for (const auto& [name, text] : detail::embedded_attention()) {
            if (name != "flash2") continue;
            const std::string file = "reduction_trees/attention/flash2.json";
            const nlohmann::json document = detail::parse_json(text, file);
            return read_recipe(JsonReader(document, file));
        }
        throw InputError("reduction_trees/attention/flash2.json is not part of this build");
    }();
    return recipe;
}

const FlashBuild* find_flash_build(std::string_view name) {
    for (const FlashBuild& build : flash_recipe().builds)
        if (build.name == name) return &build;
    return nullptr;
}

const FlashBuild* match_flash_build(const std::vector<std::string>& kernel_names) {
    for (const FlashBuild& build : flash_recipe().builds) {
        const auto kernel = [&](const std::string& name) { return any_glob_match(build.kernels, name); };
        const auto known = [&](const std::string& name) { return kernel(name) || any_glob_match(build.companions, name); };
        if (std::any_of(kernel_names.begin(), kernel_names.end(), kernel) &&
            std::all_of(kernel_names.begin(), kernel_names.end(), known))
            return &build;
    }
    return nullptr;
}

FlashKernelName parse_flash_kernel_name(std::string_view name) {
    static const std::regex pattern(R"(flash_fwd_(splitkv_)?(combine_)?kernel<.*Flash_fwd_kernel_traits<([0-9]+), ?([0-9]+), ?([0-9]+),)");
    std::cmatch found;
    if (!std::regex_search(name.data(), name.data() + name.size(), found, pattern)) return {};
    const auto number = [&](std::size_t group) { return static_cast<std::int64_t>(std::stoll(found[group].str())); };
    return {found[1].matched, found[2].matched, number(3), {number(4), number(5)}};
}

}  // namespace bitreplay
