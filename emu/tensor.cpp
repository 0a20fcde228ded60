#include "emu/tensor.hpp"

#include <bit>
#include <cstring>
#include <stdexcept>

#include "emu/scratch.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

template <class Code>
std::uint64_t load(const std::byte* at) noexcept {
    Code code;
    std::memcpy(&code, at, sizeof code);
    return code;
}

}  // namespace

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) {
        std::int64_t product = 0;
        if (extent < 0 || __builtin_mul_overflow(size, extent, &product) || product > (std::int64_t{1} << 58))
            throw InputError("shape " + describe(shape) + " is too large");
        size = product;
    }
    return size;
}

Tensor::Tensor(Format format, std::vector<std::int64_t> shape)
    : format_(format), shape_(std::move(shape)), size_(element_count(shape_)), element_bytes_(storage_bytes(format)) {
    const auto total = static_cast<std::size_t>(size_) * static_cast<std::size_t>(element_bytes_);
    auto storage = std::make_shared<Scratch<std::byte>>(total);
    writable_ = storage->data();
    if (total != 0) std::memset(writable_, 0, total);
    bytes_ = {storage->data(), total};
    owner_ = std::move(storage);
}

Tensor::Tensor(Format format,
               std::vector<std::int64_t> shape,
               std::span<const std::byte> bytes,
               std::shared_ptr<const void> owner)
    : format_(format),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      element_bytes_(storage_bytes(format)),
      bytes_(bytes),
      owner_(std::move(owner)) {
    if (bytes.size() != static_cast<std::size_t>(size_) * static_cast<std::size_t>(element_bytes_))
        throw InputError("shape " + describe(shape_) + " does not match " + std::to_string(bytes.size()) + " bytes");
}

std::span<std::byte> Tensor::mutable_bytes() {
    if (writable_ == nullptr && !bytes_.empty()) throw std::logic_error("tensor is a read-only view");
    return {writable_, bytes_.size()};
}

std::uint64_t Tensor::get(std::int64_t i) const noexcept {
    const std::byte* at = bytes_.data() + i * element_bytes_;
    switch (element_bytes_) {
        case 1: return load<std::uint8_t>(at);
        case 2: return load<std::uint16_t>(at);
        case 4: return load<std::uint32_t>(at);
        default: return load<std::uint64_t>(at);
    }
}

void Tensor::set(std::int64_t i, std::uint64_t code) noexcept {
    static_assert(std::endian::native == std::endian::little, "codes are stored little-endian");
    std::memcpy(writable_ + i * element_bytes_, &code, static_cast<std::size_t>(element_bytes_));
}

void Tensor::read(std::int64_t first, std::span<std::uint32_t> out) const noexcept {
    const std::byte* at = bytes_.data() + first * element_bytes_;
    switch (element_bytes_) {
        case 1:
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<std::uint32_t>(load<std::uint8_t>(at + i));
            return;
        case 2:
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<std::uint32_t>(load<std::uint16_t>(at + 2 * i));
            return;
        default: std::memcpy(out.data(), at, out.size_bytes());
    }
}

Tensor Tensor::reinterpret(Format format) const {
    if (storage_bytes(format) != element_bytes_) throw std::logic_error("reinterpret changes the storage size");
    Tensor out = *this;
    out.format_ = format;
    return out;
}

Tensor Tensor::reshape(std::vector<std::int64_t> shape) const {
    if (element_count(shape) != size_) throw InputError("cannot view " + describe(*this) + " as " + describe(shape));
    Tensor out = *this;
    out.shape_ = std::move(shape);
    return out;
}

std::string describe(const std::vector<std::int64_t>& shape) {
    std::string out = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return out + "]";
}

std::string describe(const Outline& outline) {
    return std::string(named(outline.format).name) + " " + describe(outline.shape);
}

std::string describe(const Tensor& tensor) { return describe(outline(tensor)); }

}  // namespace bitreplay
