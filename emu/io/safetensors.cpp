#include "emu/io/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "emu/io/atomic_file.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay {
namespace {

using detail::input_error;
using detail::JsonReader;

constexpr std::uint64_t longest_header = 100'000'000;  // the limit of the reference implementation
constexpr std::int64_t most_elements = std::int64_t{1} << 58;

struct Integers {
    std::string_view name;
    int bytes;
};
constexpr std::array<Integers, 9> integers{
    {{"I64", 8}, {"U64", 8}, {"I32", 4}, {"U32", 4}, {"I16", 2}, {"U16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}}};

const NamedFormat* float_dtype(std::string_view dtype) noexcept {
    if (dtype.empty()) return nullptr;
    for (const NamedFormat& row : formats)
        if (row.safetensors == dtype) return &row;
    return nullptr;
}

std::optional<std::int64_t> element_size(std::string_view dtype) noexcept {
    if (const NamedFormat* row = float_dtype(dtype)) return storage_bytes(row->format);
    for (const Integers& row : integers)
        if (row.name == dtype) return row.bytes;
    return std::nullopt;
}

std::vector<std::int64_t> read_shape(JsonReader reader) {
    std::vector<std::int64_t> shape;
    std::int64_t size = 1;
    for (const JsonReader& item : reader.elements()) {
        shape.push_back(item.as_integer(0, most_elements));
        if (__builtin_mul_overflow(size, shape.back(), &size) || size > most_elements) reader.fail("too many elements");
    }
    return shape;
}

std::int64_t elements(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return size;
}

struct Placed {
    std::int64_t begin, end;
    JsonReader offsets;
};

Placed read_offsets(JsonReader reader, std::int64_t data_bytes) {
    const std::vector<JsonReader> pair = reader.elements();
    if (pair.size() != 2) reader.fail("must be [begin, end]");
    const std::int64_t begin = pair[0].as_integer(0, data_bytes);
    return {begin, pair[1].as_integer(begin, data_bytes), reader};
}

class Mapping {
public:
    explicit Mapping(const std::filesystem::path& path) {
        const std::string name = path.string();
        // O_NONBLOCK: a pipe must be refused, not waited for.
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) input_error(name, "", std::string("cannot open: ") + std::strerror(errno));
        struct Close {
            int descriptor;
            ~Close() { ::close(descriptor); }
        } const closer{descriptor};
        struct stat status {};
        if (::fstat(descriptor, &status) != 0)
            input_error(name, "", std::string("cannot open: ") + std::strerror(errno));
        if (S_ISDIR(status.st_mode)) input_error(name, "", "is a directory");
        if (!S_ISREG(status.st_mode)) input_error(name, "", "is not a regular file");
        size_ = static_cast<std::size_t>(status.st_size);
        if (size_ == 0) return;
        void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (at == MAP_FAILED) input_error(name, "", std::string("cannot map: ") + std::strerror(errno));
        at_ = at;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (at_ != nullptr) ::munmap(at_, size_);
    }
    std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(at_), size_}; }

private:
    void* at_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace

struct SafetensorsFile::Contents {
    std::string file;
    std::shared_ptr<const void> owner;
    std::map<std::string, std::string> metadata;
    std::map<std::string, StoredTensor, std::less<>> tensors;
};

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
    const auto mapping = std::make_shared<const Mapping>(path);
    return parse(mapping->bytes(), path.string(), mapping);
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes,
                                       std::string file,
                                       std::shared_ptr<const void> owner) {
    if (bytes.size() < 8) input_error(file, "", "truncated: " + std::to_string(bytes.size()) + " bytes, no header");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    if (length > longest_header) input_error(file, "header", "longer than 100 MB (not a safetensors file?)");
    if (length > bytes.size() - 8) input_error(file, "header", "truncated: the file ends before the header does");
    const std::span<const std::byte> data = bytes.subspan(8 + length);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
    if (!text.starts_with('{')) input_error(file, "header", "must begin with {");

    auto contents = std::make_shared<Contents>();
    contents->file = std::move(file);
    contents->owner = std::move(owner);
    const nlohmann::json document = detail::parse_json(text, contents->file);
    JsonReader header(document, contents->file);
    if (header.has("__metadata__"))
        for (auto& [key, value] : header.at("__metadata__").members()) contents->metadata.emplace(key, value.as_text());

    std::vector<Placed> placed;
    for (auto& [name, entry] : header.members()) {
        if (name == "__metadata__") continue;
        StoredTensor tensor{entry.text("dtype"), read_shape(entry.at("shape")), {}};
        placed.push_back(read_offsets(entry.at("data_offsets"), static_cast<std::int64_t>(data.size())));
        entry.finish();
        const auto [begin, end, offsets] = placed.back();
        const std::optional<std::int64_t> size = element_size(tensor.dtype);
        std::int64_t total = 0;
        if (size && (__builtin_mul_overflow(elements(tensor.shape), *size, &total) || total != end - begin))
            offsets.fail(std::to_string(end - begin) + " bytes do not match " + tensor.dtype + " " +
                         describe(tensor.shape));
        tensor.bytes = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        contents->tensors.emplace(name, std::move(tensor));
    }

    // The format allows neither holes nor overlaps, so that no bytes can hide in a file.
    std::sort(placed.begin(), placed.end(), [](const Placed& x, const Placed& y) {
        return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
    });
    std::int64_t covered = 0;
    for (const Placed& next : placed) {
        if (next.begin < covered) next.offsets.fail("overlaps another tensor");
        if (next.begin > covered)
            next.offsets.fail("leaves a gap of " + std::to_string(next.begin - covered) + " bytes before it");
        covered = next.end;
    }
    if (const auto rest = static_cast<std::int64_t>(data.size()) - covered; rest != 0)
        input_error(contents->file, "", std::to_string(rest) + " bytes after the last tensor belong to none");

    SafetensorsFile out;
    out.contents_ = std::move(contents);
    return out;
}

const std::string& SafetensorsFile::file() const { return contents_->file; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return contents_->metadata; }
bool SafetensorsFile::contains(std::string_view name) const { return contents_->tensors.contains(name); }

std::vector<std::string> SafetensorsFile::names() const {
    std::vector<std::string> out;
    for (const auto& entry : contents_->tensors) out.push_back(entry.first);
    return out;
}

const StoredTensor& SafetensorsFile::stored(std::string_view name) const {
    const auto found = contents_->tensors.find(name);
    if (found == contents_->tensors.end()) input_error(contents_->file, name, "no such tensor");
    return found->second;
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
    const StoredTensor& held = stored(name);
    const NamedFormat* row = float_dtype(held.dtype);
    if (row == nullptr)
        input_error(contents_->file, name, "dtype " + held.dtype + " is not a supported floating-point format");
    return {row->format, held.shape, held.bytes, contents_};
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    std::vector<std::pair<std::string, const Tensor*>> order;
    for (const auto& [name, tensor] : tensors) order.emplace_back(name, &tensor);
    std::stable_sort(order.begin(), order.end(), [](const auto& x, const auto& y) {
        return x.second->element_bytes() > y.second->element_bytes();
    });

    nlohmann::json header = nlohmann::json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::size_t offset = 0;
    for (const auto& [name, tensor] : order) {
        if (name == "__metadata__") input_error(path.string(), name, "is reserved");
        const std::string_view dtype = named(tensor->format() == tf32 ? fp32 : tensor->format()).safetensors;
        if (dtype.empty())
            input_error(path.string(), name, std::string(named(tensor->format()).name) + " has no safetensors dtype");
        const std::size_t end = offset + tensor->bytes().size();
        header[name] = {{"dtype", dtype}, {"shape", tensor->shape()}, {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const nlohmann::json::exception&) {
        input_error(path.string(), "", "a name or metadata text is not UTF-8");
    }
    text.append((8 - text.size() % 8) % 8, ' ');  // the data start aligned
    if (text.size() > longest_header) input_error(path.string(), "header", "longer than 100 MB");

    AtomicFile file(path);
    const std::uint64_t length = text.size();
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(text);
    for (const auto& [name, tensor] : order) file.write(tensor->bytes());
    file.commit();
}

}  // namespace bitreplay
