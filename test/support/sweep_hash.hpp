#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "test/support/support.hpp"

namespace bitreplay::test {

/// One term of the hashes of function captures: of output `bits` at input or index u. A hash is the sum of its terms.
inline std::uint64_t sweep_term(std::uint64_t u, std::uint64_t bits) noexcept {
    std::uint64_t z = u * 0x9E3779B97F4A7C15U + bits;
    z ^= z >> 32;
    z *= 0xD6E8FEB86659FD93U;
    return z ^ (z >> 29);
}

/// The counter-based generator of the captures, element i.
inline std::uint64_t counter_random(std::uint64_t seed, std::uint64_t i) noexcept {
    std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

inline std::uint64_t hex(const nlohmann::json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }

inline nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error(path.string() + ": cannot be opened");
    return nlohmann::json::parse(in);
}

}  // namespace bitreplay::test
