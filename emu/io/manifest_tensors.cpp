#include "emu/io/manifest_tensors.hpp"

#include <cstring>

#include "emu/io/synthetic.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

Tensor pick(const Tensor& whole, std::span<const std::int64_t> rows) {
    Tensor out(whole.format(), {std::ssize(rows), whole.cols()});
    const auto bytes = static_cast<std::size_t>(whole.cols() * whole.element_bytes());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] >= whole.rows())
            throw InputError("row " + std::to_string(rows[i]) + " is outside " + describe(whole));
        std::memcpy(out.mutable_bytes().data() + i * bytes,
                    whole.bytes().data() + static_cast<std::size_t>(rows[i]) * bytes,
                    bytes);
    }
    return out;
}

}  // namespace

bool ManifestTensors::has(const std::string& name) {
    const auto key = manifest_.checkpoint_key(name);
    return key ? checkpoint(key->first).contains(key->second) : manifest_.tensors.contains(name);
}

std::vector<std::string> ManifestTensors::below(const std::string& prefix) {
    std::vector<std::string> out;
    if (const auto key = manifest_.checkpoint_key(prefix)) {
        for (const std::string& name : checkpoint(key->first).names(key->second))
            out.push_back(key->first + "/" + name);
        return out;
    }
    for (auto it = manifest_.tensors.lower_bound(prefix);
         it != manifest_.tensors.end() && it->first.starts_with(prefix);
         ++it)
        out.push_back(it->first);
    return out;
}

Checkpoint& ManifestTensors::checkpoint(const std::string& name) {
    return checkpoints_.try_emplace(name, manifest_.checkpoints.at(name)).first->second;
}

Tensor ManifestTensors::get(const std::string& name) {
    const auto cached = cache_.find(name);
    if (cached != cache_.end()) return cached->second;
    if (const auto key = manifest_.checkpoint_key(name))
        return cache_[name] = checkpoint(key->first).tensor(key->second);
    return cache_[name] = named(name, [&] { return load(manifest_.tensors.at(name)); });
}

Tensor ManifestTensors::rows(const std::string& name, std::span<const std::int64_t> rows) {
    const auto source = manifest_.tensors.find(name);
    if (source != manifest_.tensors.end() && source->second.synthetic && !cache_.contains(name))
        return named(name, [&] { return synthetic_rows(*source->second.synthetic, rows); });
    const Tensor whole = get(name);
    return named(name, [&] { return pick(whole, rows); });
}

Outline ManifestTensors::outline(const std::string& name) {
    if (const auto key = manifest_.checkpoint_key(name))
        return bitreplay::outline(checkpoint(key->first).tensor(key->second));
    const TensorSource& source = manifest_.tensors.at(name);
    if (source.synthetic) return {source.synthetic->format, source.synthetic->shape};
    return bitreplay::outline(get(name));
}

Tensor ManifestTensors::named(const std::string& name, const std::function<Tensor()>& read) const {
    return placed(manifest_.path.string(), "/tensors/" + name, read);
}

void ManifestTensors::close_checkpoints() {
    for (auto& [name, checkpoint] : checkpoints_) checkpoint.close();
}

Tensor ManifestTensors::load(const TensorSource& source) {
    if (source.synthetic) return synthetic(*source.synthetic);
    auto file = files_.find(source.file);
    if (file == files_.end()) file = files_.emplace(source.file, SafetensorsFile::open(source.file)).first;
    if (!source.dtype) return file->second.tensor(source.key);
    const StoredTensor& stored = file->second.stored(source.key);
    return Tensor(*source.dtype, stored.shape, stored.bytes, std::make_shared<SafetensorsFile>(file->second));
}

}  // namespace bitreplay
