// Reads reduction_trees/recipes/*.json. Strict: an unknown key, a parameter that no one declared or a value out of range
// stops the program at first use, with the file and the JSON pointer.

#include <algorithm>
#include <array>
#include <limits>
#include <regex>

#include "formats/strict_json.hpp"
#include "reduction_trees/embedded.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

std::vector<std::string> texts(JsonReader& reader, const std::string& key) {
    std::vector<std::string> out;
    if (!reader.has(key)) return out;
    for (const JsonReader& item : reader.at(key).elements()) out.push_back(item.as_text());
    return out;
}

RecipeValue value(const JsonReader& reader) {
    if (reader.value().is_string()) return reader.as_text();
    return reader.as_integer(0, std::numeric_limits<std::int32_t>::max());
}

void check_regex(const JsonReader& item) {
    try {
        if (std::regex(item.as_text()).mark_count() != 1) item.fail("must have one group");
    } catch (const std::regex_error&) {
        item.fail("not a regular expression");
    }
}

LogSource read_log_source(JsonReader reader) {
    LogSource source;
    source.field = reader.text("field");
    if (reader.has("absent")) source.absent = value(reader.at("absent"));
    if (reader.has("values")) {
        JsonReader words = reader.at("values");
        for (auto& [word, item] : words.members()) source.values[word] = value(item);
    }
    if (reader.has("regex")) {
        check_regex(reader.at("regex"));
        source.regex = reader.text("regex");
    }
    reader.finish();
    return source;
}

RecipeParam read_param(const std::string& name, JsonReader reader) {
    RecipeParam param;
    param.name = name;
    if (reader.has("words")) {
        param.words = texts(reader, "words");
    } else {
        param.low = reader.integer("min", 0, 1 << 30);
        param.high = reader.integer("max", 0, 1 << 30);
    }
    if (reader.has("default")) param.fallback = value(reader.at("default"));
    if (reader.has("default_bits")) param.fallback_bits = reader.integer("default_bits", 1, 1 << 20);
    if (reader.has("from_name")) {
        JsonReader source = reader.at("from_name");
        if (source.value().is_string()) {
            check_regex(source);
            param.name_regex = source.as_text();
        } else {
            for (JsonReader& pair : source.elements()) {
                param.name_globs.emplace_back(pair.text("glob"), value(pair.at("value")));
                pair.finish();
            }
        }
    }
    if (reader.has("from_companion"))
        for (JsonReader& pair : reader.at("from_companion").elements()) {
            param.companion_globs.emplace_back(pair.text("glob"), value(pair.at("value")));
            pair.finish();
        }
    if (reader.has("from_log")) param.log = read_log_source(reader.at("from_log"));
    if (reader.has("needs_name")) param.needs_name = reader.boolean("needs_name");
    if (reader.has("hidden_by_addend")) param.hidden_by_addend = reader.boolean("hidden_by_addend");
    param.required_if = texts(reader, "required_if");
    reader.finish();
    return param;
}

Merge read_merge(JsonReader reader) {
    Merge merge;
    merge.order = static_cast<Merge::Order>(reader.choice("order", {"first_to_last", "last_to_first"}));
    merge.from_zero = reader.boolean("from_zero");
    merge.parts = static_cast<Merge::Precision>(reader.choice("parts", {"accumulator", "result"}));
    merge.sums = static_cast<Merge::Precision>(reader.choice("sums", {"accumulator", "result"}));
    reader.finish();
    return merge;
}

/// The name of a declared parameter.
std::string param_name(JsonReader& reader, const std::string& key, const Recipe& recipe) {
    const JsonReader item = reader.at(key);
    if (recipe.find_param(item.as_text()) == nullptr) item.fail("not a parameter of this recipe");
    return item.as_text();
}

RecipeValues read_when(JsonReader reader, const Recipe& recipe) {
    RecipeValues when;
    for (auto& [key, item] : reader.members()) {
        if (key != "element_bits" && key != "gelu" && recipe.find_param(key) == nullptr) item.fail("not a parameter of this recipe");
        when[key] = value(item);
    }
    return when;
}

RecipeTable read_table(JsonReader reader, const Recipe& recipe) {
    RecipeTable table;
    table.param = param_name(reader, "param", recipe);
    for (JsonReader& item : reader.at("rows").elements()) {
        RecipeTable::Row& row = table.rows.emplace_back();
        for (const JsonReader& one : item.at("values").elements()) row.values.push_back(one.as_integer(0, 1 << 30));
        row.set = read_when(item.at("set"), recipe);
        item.finish();
    }
    reader.finish();
    return table;
}

/// A number, or the name of a declared parameter.
RecipeValue factor(const JsonReader& reader, const Recipe& recipe) {
    if (!reader.value().is_string()) return reader.as_integer(1, 1 << 20);
    if (recipe.find_param(reader.as_text()) == nullptr) reader.fail("not a parameter of this recipe");
    return reader.as_text();
}

void read_lanes(JsonReader& reader, const Recipe& recipe, RecipeLayer& layer) {
    for (const JsonReader& item : reader.at("lanes").elements()) layer.lanes.push_back(factor(item, recipe));
    if (layer.lanes.empty()) reader.fail("\"lanes\" is empty");
    if (reader.has("slice"))
        layer.slice = reader.integer("slice", 1, 1 << 20);
    else
        layer.vector = factor(reader.at("vector"), recipe);
    if (reader.has("restart")) layer.restart = factor(reader.at("restart"), recipe);
    for (JsonReader& item : reader.at("folds").elements()) {
        RecipeFold& fold = layer.folds.emplace_back();
        fold.kind = static_cast<LaneFold::Kind>(item.choice("kind", {"serial", "halving"}));
        if (item.has("terms")) fold.terms = factor(item.at("terms"), recipe);
        if (item.has("apart")) fold.apart = factor(item.at("apart"), recipe);
        item.finish();
    }
}

RecipeLayer read_layer(JsonReader reader, const Recipe& recipe) {
    RecipeLayer layer;
    layer.kind = static_cast<RecipeLayer::Kind>(reader.choice("kind", {"split", "interleave", "blocks", "walk", "lanes"}));
    if (reader.has("when")) layer.when = read_when(reader.at("when"), recipe);
    switch (layer.kind) {
        case RecipeLayer::Kind::split:
            layer.parts = param_name(reader, "parts", recipe);
            layer.chunk = static_cast<RecipeLayer::Chunk>(reader.choice("chunk", {"floor_tiles", "floor_tiles_all", "ceil_tiles", "ceil_multiple", "even_tiles"}));
            if (layer.chunk != RecipeLayer::Chunk::ceil_multiple) {
                layer.size = param_name(reader, "tile", recipe);
                if (reader.has("paired")) layer.paired = reader.boolean("paired");
                break;
            }
            for (const JsonReader& item : reader.at("multiples").elements()) layer.multiples.push_back(item.as_integer(1, 1 << 20));
            if (layer.multiples.empty()) reader.fail("\"multiples\" is empty");
            break;
        case RecipeLayer::Kind::interleave:
            layer.parts = param_name(reader, "parts", recipe);
            layer.size = param_name(reader, "stripe", recipe);
            if (reader.has("ragged")) layer.ragged = reader.boolean("ragged");
            if (reader.has("buffers")) layer.buffers = param_name(reader, "buffers", recipe);
            break;
        case RecipeLayer::Kind::blocks: layer.size = param_name(reader, "block", recipe); break;
        case RecipeLayer::Kind::walk:
            layer.residue = static_cast<RecipeLayer::Residue>(reader.choice("residue", {"last", "first", "none"}));
            if (layer.residue != RecipeLayer::Residue::last) layer.size = param_name(reader, "tile", recipe);
            if (reader.has("from_product")) layer.from_product = reader.boolean("from_product");
            break;
        case RecipeLayer::Kind::lanes: read_lanes(reader, recipe, layer); break;
    }
    if (layer.kind != RecipeLayer::Kind::walk && layer.kind != RecipeLayer::Kind::lanes) layer.merge = read_merge(reader.at("merge"));
    reader.finish();
    return layer;
}

RecipeAddend read_addend(JsonReader reader, const Recipe& recipe) {
    RecipeAddend addend;
    addend.when = read_when(reader.at("when"), recipe);
    const JsonReader orders = reader.at("orders");
    for (const JsonReader& item : orders.elements()) {
        constexpr std::array<std::string_view, 11> words{"fma_alpha",  "fma_beta",         "separate",        "rounded",
                                                         "first_part", "serial_fma_alpha", "serial_fma_beta", "each_part",
                                                         "alpha_x",    "alpha_vector",     "from_c"};
        const auto word = std::find(words.begin(), words.end(), item.as_text());
        if (word == words.end()) item.fail("not an order of alpha, beta and c");
        addend.orders.push_back(static_cast<RecipeAddend::Order>(word - words.begin()));
    }
    if (addend.orders.empty()) orders.fail("is empty");
    reader.finish();
    return addend;
}

RecipeSegments read_segments(JsonReader reader, const Recipe& recipe) {
    RecipeSegments segments{.parts = param_name(reader, "parts", recipe), .tile_m = param_name(reader, "tile_m", recipe),
                            .tile_n = param_name(reader, "tile_n", recipe), .ctas = param_name(reader, "ctas", recipe),
                            .cluster_m = param_name(reader, "cluster_m", recipe), .cluster_n = param_name(reader, "cluster_n", recipe),
                            .swizzle = param_name(reader, "swizzle", recipe), .along_k = param_name(reader, "along_k", recipe),
                            .workspace = param_name(reader, "workspace", recipe), .bytes = reader.integer("bytes", 1, 16)};
    reader.finish();
    return segments;
}

Recipe read_recipe(JsonReader reader) {
    Recipe recipe;
    recipe.name = reader.text("name");
    recipe.summary = reader.text("summary");
    recipe.kernels = texts(reader, "kernels");
    recipe.companions = texts(reader, "companions");
    recipe.families = texts(reader, "instruction_families");
    if (reader.has("cublaslt")) {
        JsonReader log = reader.at("cublaslt");
        for (const JsonReader& item : log.at("algorithms").elements()) recipe.algorithms.push_back(item.as_integer(0, 1 << 20));
        recipe.compute = texts(log, "compute");
        log.finish();
    }
    if (reader.has("activation_kernels")) recipe.activation_kernels = texts(reader, "activation_kernels");
    recipe.operands = texts(reader, "operands");
    if (reader.has("named_operands"))
        for (JsonReader& item : reader.at("named_operands").elements()) {
            recipe.named_operands.emplace_back(item.text("glob"), item.text("format"));
            item.finish();
        }
    if (reader.has("accumulator")) recipe.accumulator = reader.text("accumulator");
    JsonReader params = reader.at("params");
    for (auto& [name, item] : params.members()) recipe.params.push_back(read_param(name, item));
    if (reader.has("facts")) {
        JsonReader facts = reader.at("facts");
        for (auto& [name, item] : facts.members()) {
            const bool doubtful = item.has("doubtful") && item.boolean("doubtful");
            recipe.facts.push_back({read_param(name, item), doubtful});
            if (!recipe.facts.back().told.log) item.fail("needs a from_log");
        }
    }
    for (JsonReader& item : reader.at("bias").elements()) {
        RecipeValues when = read_when(item.at("when"), recipe);
        recipe.bias.push_back({std::move(when), static_cast<RecipeBias::Add>(item.choice("add", {"accumulator", "rounded", "first_part"}))});
        item.finish();
    }
    if (reader.has("addend"))
        for (const JsonReader& item : reader.at("addend").elements()) recipe.addend.push_back(read_addend(item, recipe));
    const auto conditions = [&](const char* key, std::vector<RecipeValues>& out) {
        if (!reader.has(key)) return;
        for (const JsonReader& item : reader.at(key).elements()) out.push_back(read_when(item, recipe));
    };
    conditions("gelu", recipe.gelu);
    conditions("gelu_in_kernel", recipe.gelu_in_kernel);
    if (reader.has("segments")) recipe.segments = read_segments(reader.at("segments"), recipe);
    if (reader.has("plus_zero")) recipe.plus_zero = reader.boolean("plus_zero");
    if (reader.has("tables"))
        for (const JsonReader& item : reader.at("tables").elements()) recipe.tables.push_back(read_table(item, recipe));
    if (reader.has("max_k")) recipe.max_k = reader.integer("max_k", 1, 1 << 30);
    for (const JsonReader& item : reader.at("layers").elements()) recipe.layers.push_back(read_layer(item, recipe));
    const auto leaf = [](const RecipeLayer& layer) {
        return layer.kind == RecipeLayer::Kind::walk || layer.kind == RecipeLayer::Kind::lanes;
    };
    if (recipe.layers.empty() || !leaf(recipe.layers.back()) || !recipe.layers.back().when.empty())
        reader.fail("the last layer must be a walk or lanes without \"when\"");
    JsonReader evidence = reader.at("evidence");
    evidence.choice("level", {"measured", "published", "unverified"});
    recipe.evidence_level = evidence.text("level");
    recipe.evidence = evidence.text("source");
    evidence.finish();
    reader.finish();
    return recipe;
}

}  // namespace

const std::vector<Recipe>& recipes() {
    static const std::vector<Recipe> all = [] {
        std::vector<Recipe> out;
        for (const auto& [stem, text] : detail::embedded_recipes()) {
            const std::string file = "reduction_trees/recipes/" + std::string(stem) + ".json";
            const nlohmann::json document = detail::parse_json(text, file);
            JsonReader reader(document, file);
            if (!reader.has("recipes")) continue;  // another kind of kernel data
            for (const JsonReader& item : reader.at("recipes").elements()) {
                out.push_back(read_recipe(item));
                for (std::size_t i = 0; i + 1 < out.size(); ++i)
                    if (out[i].name == out.back().name) item.fail("this name is taken");
            }
            reader.finish();
        }
        return out;
    }();
    return all;
}

const Recipe& find_recipe(std::string_view name) {
    std::string near;
    std::size_t best = 4;
    for (const Recipe& recipe : recipes()) {
        if (recipe.name == name) return recipe;
        if (const std::size_t distance = detail::edit_distance(recipe.name, name); distance < best) {
            best = distance;
            near = recipe.name;
        }
    }
    throw NotModelled("kernel \"" + detail::printable(name) + "\" is unknown" + (near.empty() ? "" : " (did you mean " + near + "?)") +
                     "; 'bitreplay info kernels' lists them");
}

}  // namespace bitreplay
