#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emu/tensor.hpp"

namespace bitreplay {

/// The bytes of one stored tensor, whatever its type; a view into the file, valid while the SafetensorsFile or a Tensor
/// made from it exists.
struct StoredTensor {
    std::string dtype;  ///< as in the file: "BF16", "I64"
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
};

/// A memory-mapped safetensors file. Opening reads and checks the header only; tensor pages are touched on use. Copies
/// and tensors share the mapping. A file that another process shortens while it is open cannot be survived (SIGBUS).
///
/// Checked when opening, InputError "file: key: reason": size, header length (at most 100 MB), JSON without duplicate
/// keys and with valid UTF-8, exact keys and types, shapes without overflow, and data offsets that match shape and
/// dtype and cover the data without gap or overlap. Tensors of an unknown dtype may be there; their size is not
/// checked.
class SafetensorsFile {
public:
    static SafetensorsFile open(const std::filesystem::path& path);
    /// The same from memory that `owner` keeps alive; `file` is the name in messages.
    static SafetensorsFile parse(std::span<const std::byte> bytes, std::string file, std::shared_ptr<const void> owner);

    const std::string& file() const;
    /// The __metadata__ entry; empty if absent.
    const std::map<std::string, std::string>& metadata() const;
    /// Tensor names, sorted.
    std::vector<std::string> names() const;
    bool contains(std::string_view name) const;

    /// InputError for a name that is not there.
    const StoredTensor& stored(std::string_view name) const;
    /// A view without a copy. InputError for a name that is not there or a dtype that is not a number format. F32
    /// tensors have format fp32 even if they hold tf32 operands.
    Tensor tensor(std::string_view name) const;

private:
    struct Contents;
    std::shared_ptr<const Contents> contents_;
};

/// Writes a file that SafetensorsFile and other readers accept: tensors by falling element size, then by name, each
/// aligned to its element size; tf32 is stored as F32. Complete or not at all (AtomicFile). InputError for formats
/// without a safetensors name, names that are not UTF-8 or "__metadata__", and everything that keeps the file from
/// being written.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace bitreplay
