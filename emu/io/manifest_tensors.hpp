#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "emu/io/checkpoint.hpp"
#include "emu/io/manifest.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

/// Tensors of a manifest and its checkpoints by name, read or generated on first use and kept until forgotten. The
/// manifest must outlive it. Missing files and keys, wrong shapes, and tensors too large for the memory throw InputError,
/// which names the manifest and the tensor, or the safetensors file and its key.
class ManifestTensors {
public:
    explicit ManifestTensors(const Manifest& manifest) : manifest_(manifest) {}

    bool has(const std::string& name);
    /// Names of the tensors that begin with `prefix`.
    std::vector<std::string> below(const std::string& prefix);
    Checkpoint& checkpoint(const std::string& name);
    Tensor get(const std::string& name);
    /// Only these rows of a matrix, without reading or generating the others.
    Tensor rows(const std::string& name, std::span<const std::int64_t> rows);
    /// Type and shape, without reading or generating the values.
    Outline outline(const std::string& name);

    void forget(const std::string& name) { cache_.erase(name); }
    /// Unmaps the shards of checkpoints that no tensor needs any more.
    void close_checkpoints();

private:
    Tensor load(const TensorSource& source);
    /// The tensor's values by `read`; what it throws names the tensor.
    Tensor named(const std::string& name, const std::function<Tensor()>& read) const;

    const Manifest& manifest_;
    std::map<std::string, Tensor> cache_;
    std::map<std::filesystem::path, SafetensorsFile> files_;
    std::map<std::string, Checkpoint> checkpoints_;
};

}  // namespace bitreplay
