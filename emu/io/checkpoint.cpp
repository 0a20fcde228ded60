#include "emu/io/checkpoint.hpp"

#include <algorithm>

#include "formats/strict_json.hpp"

namespace bitreplay {
namespace {

using detail::input_error;
using detail::JsonReader;

bool is_file(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

std::string read_text(const std::filesystem::path& path) {
    if (!is_file(path)) input_error(path.string(), "", "cannot be opened");  // a pipe must be refused, not waited for
    return detail::read_text(path);
}

/// A plain file name, so that an index cannot name a file outside its folder.
bool is_shard_name(std::string_view name) {
    const auto plain = [](char ch) {
        return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '.' || ch == '-' || ch == '_';
    };
    return name.ends_with(".safetensors") && !name.starts_with('.') && std::all_of(name.begin(), name.end(), plain);
}

}  // namespace

Checkpoint::Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {
    const std::filesystem::path single = folder_ / "model.safetensors", index = folder_ / "model.safetensors.index.json";
    const bool has_single = is_file(single), has_index = is_file(index);
    if (has_single == has_index)
        input_error(folder_.string(), "", std::string(has_single ? "both" : "neither") + " of model.safetensors and model.safetensors.index.json");
    if (has_index) {
        read_index(index);
        return;
    }
    const SafetensorsFile file = open_.emplace(single, SafetensorsFile::open(single)).first->second;
    for (const std::string& name : file.names()) files_.emplace(name, single);
}

void Checkpoint::read_index(const std::filesystem::path& path) {
    const nlohmann::json document = detail::parse_json(read_text(path), path.string());
    JsonReader reader(document, path.string());
    if (reader.has("metadata")) reader.at("metadata").require_object();
    JsonReader map = reader.at("weight_map");
    for (const auto& [name, item] : map.members()) {
        const std::string shard = item.as_text();
        if (!is_shard_name(shard)) item.fail("is not the name of a safetensors file");
        if (!is_file(folder_ / shard)) item.fail("there is no such file");
        files_.emplace(name, folder_ / shard);
    }
    reader.finish();
}

std::vector<std::string> Checkpoint::names(std::string_view prefix) const {
    std::vector<std::string> out;
    for (auto it = files_.lower_bound(prefix); it != files_.end() && it->first.starts_with(prefix); ++it) out.push_back(it->first);
    return out;
}

Tensor Checkpoint::tensor(const std::string& name) {
    const auto path = files_.find(name);
    if (path == files_.end()) input_error(folder_.string(), name, "no such tensor");
    auto file = open_.find(path->second);
    if (file == open_.end()) file = open_.emplace(path->second, SafetensorsFile::open(path->second)).first;
    return file->second.tensor(name);
}

Params Checkpoint::config() const {
    const std::filesystem::path path = folder_ / "config.json";
    return Params::parse(read_text(path), path.string(), "");
}

}  // namespace bitreplay
