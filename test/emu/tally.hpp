#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/tensor.hpp"
#include "formats/convert.hpp"

namespace bitreplay::test {

/// What a golden test compared.
struct Tally {
    int entries = 0;
    std::int64_t elements = 0, different = 0;
    std::vector<std::string> failed;  ///< names of entries with a difference

    void add(const std::string& name, std::int64_t compared, std::int64_t unequal) {
        ++entries;
        elements += compared;
        different += unequal;
        if (unequal != 0) failed.push_back(name + ": " + std::to_string(unequal) + " of " + std::to_string(compared));
    }
    /// Compares the first elements of `actual` with all of `expected`, which must be of the same storage size.
    void compare(const std::string& name, const StoredTensor& expected, const Tensor& actual) {
        REQUIRE(expected.bytes.size() <= actual.bytes().size());
        const auto width = static_cast<std::size_t>(actual.element_bytes());
        std::int64_t unequal = 0;
        for (std::size_t i = 0; i < expected.bytes.size(); i += width)
            unequal += std::memcmp(expected.bytes.data() + i, actual.bytes().data() + i, width) != 0 ? 1 : 0;
        add(name, static_cast<std::int64_t>(expected.bytes.size() / width), unequal);
    }
    /// Compares the SHA-256 of the bytes with a stored 32-byte hash.
    void compare_hash(const std::string& name, std::span<const std::byte> expected, std::span<const std::byte> actual) {
        std::string hex;
        for (const std::byte byte : expected) {
            constexpr const char* digits = "0123456789abcdef";
            hex += digits[std::to_integer<unsigned>(byte) >> 4];
            hex += digits[std::to_integer<unsigned>(byte) & 15];
        }
        REQUIRE(hex.size() == 64);
        add(name, 1, sha256_hex(actual) != hex ? 1 : 0);
    }
    void check(int expected_entries, std::int64_t expected_elements) const {
        for (const std::string& name : failed) UNSCOPED_INFO(name);
        CHECK(different == 0);
        CHECK(entries == expected_entries);
        CHECK(elements == expected_elements);
    }
};

/// x with every value rounded to bf16.
inline Tensor as_bf16(const Tensor& x) {
    Tensor out(bf16, x.shape());
    for (std::int64_t i = 0; i < x.size(); ++i) out.set(i, convert(x.format(), bf16, x.get(i)));
    return out;
}
/// Every fp32 value times a constant, or times itself.
inline Tensor scaled(Tensor x, std::uint32_t factor) {
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, f32::mul(static_cast<std::uint32_t>(x.get(i)), factor));
    return x;
}
inline Tensor square(Tensor x) {
    for (std::int64_t i = 0; i < x.size(); ++i) {
        const auto value = static_cast<std::uint32_t>(x.get(i));
        x.set(i, f32::mul(value, value));
    }
    return x;
}

}  // namespace bitreplay::test
