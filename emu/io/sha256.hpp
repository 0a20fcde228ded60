#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace bitreplay {

/// SHA-256 of a byte sequence given in pieces.
class Sha256 {
public:
    Sha256();
    void update(std::span<const std::byte> bytes);
    /// 64 lower-case hexadecimal digits. Call it once, last.
    std::string hex();

private:
    std::shared_ptr<void> context_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace bitreplay
