#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/format.hpp"

namespace bitreplay {

/// A row-major, contiguous tensor of codes of one format, little-endian, one code per 1, 2, 4 or 8 bytes (sub-byte
/// formats take one byte each). The bytes are owned, or a view of something kept alive by `owner` (a mapped file).
/// No arithmetic.
class Tensor {
public:
    Tensor() = default;
    /// A zero-filled tensor. More than 2^58 elements throw InputError.
    Tensor(Format format, std::vector<std::int64_t> shape);
    /// A view; `bytes` must hold exactly the tensor.
    Tensor(Format format, std::vector<std::int64_t> shape, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

    const Format& format() const noexcept { return format_; }
    const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
    std::int64_t dim(std::size_t axis) const { return shape_.at(axis); }
    std::size_t rank() const noexcept { return shape_.size(); }
    /// Number of elements (1 for a scalar).
    std::int64_t size() const noexcept { return size_; }
    /// Extent of the last dimension, and the product of all others (1 and 1 for a scalar).
    std::int64_t cols() const noexcept { return shape_.empty() ? 1 : shape_.back(); }
    std::int64_t rows() const noexcept { return cols() == 0 ? 0 : size_ / cols(); }

    int element_bytes() const noexcept { return element_bytes_; }
    std::span<const std::byte> bytes() const noexcept { return bytes_; }
    /// Writable bytes; only for tensors that own them.
    std::span<std::byte> mutable_bytes();

    /// The code of element i, 0 <= i < size(), zero-extended.
    std::uint64_t get(std::int64_t i) const noexcept;
    /// Stores the low bits of `code`.
    void set(std::int64_t i, std::uint64_t code) noexcept;
    /// Codes of elements first, first + 1, … into out (32-bit formats and below).
    void read(std::int64_t first, std::span<std::uint32_t> out) const noexcept;

    /// The same codes seen as another format of the same storage size (tf32 operands stored as F32) or another shape.
    Tensor reinterpret(Format format) const;
    Tensor reshape(std::vector<std::int64_t> shape) const;

private:
    Format format_ = fp32;
    std::vector<std::int64_t> shape_;
    std::int64_t size_ = 1;
    int element_bytes_ = 4;
    std::span<const std::byte> bytes_;
    std::byte* writable_ = nullptr;
    std::shared_ptr<const void> owner_;
};

/// Storage bytes of one code of `format`: 1, 2, 4 or 8.
constexpr int storage_bytes(const Format& format) noexcept {
    const int bits = format.storage_bits();
    return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8;
}

/// Type and shape of a tensor whose values are not there (yet).
struct Outline {
    Format format;
    std::vector<std::int64_t> shape;
};
inline Outline outline(const Tensor& tensor) { return {tensor.format(), tensor.shape()}; }

/// Number of elements of that shape. InputError beyond 2^58.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

/// "bf16 [100, 2560]"
std::string describe(const Outline& outline);
std::string describe(const Tensor& tensor);
std::string describe(const std::vector<std::int64_t>& shape);

}  // namespace bitreplay
