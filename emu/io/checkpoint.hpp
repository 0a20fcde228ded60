#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "emu/io/safetensors.hpp"
#include "emu/params.hpp"

namespace bitreplay {

/// A Hugging Face checkpoint folder: config.json, and either model.safetensors or model.safetensors.index.json with the
/// shards that it names. A shard is mapped when a tensor of it is first asked for; only its header is read then.
///
/// InputError "file: key: reason" for a folder with neither or both of the two, an index that is malformed, names a file
/// outside the folder or one that is not there, and a shard without a tensor that the index places in it.
class Checkpoint {
public:
    explicit Checkpoint(std::filesystem::path folder);

    bool contains(std::string_view name) const { return files_.contains(name); }
    /// Names of the tensors that begin with `prefix`, sorted.
    std::vector<std::string> names(std::string_view prefix) const;
    /// A view without a copy.
    Tensor tensor(const std::string& name);
    /// Lets go of the mapped shards; tensors keep theirs.
    void close() { open_.clear(); }
    /// The whole config.json.
    Params config() const;

private:
    void read_index(const std::filesystem::path& path);

    std::filesystem::path folder_;
    std::map<std::string, std::filesystem::path, std::less<>> files_;  // of each tensor
    std::map<std::filesystem::path, SafetensorsFile> open_;
};

}  // namespace bitreplay
