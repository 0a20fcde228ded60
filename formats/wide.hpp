#pragma once

#include <bit>
#include <cstdint>

namespace bitreplay {

__extension__ using Uint128 = unsigned __int128;

/// Number of bits up to and including the leading one; 0 for 0.
constexpr int bit_length(Uint128 x) noexcept {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    const auto low = static_cast<std::uint64_t>(x);
    return static_cast<int>(high != 0 ? 64 + std::bit_width(high) : std::bit_width(low));
}

/// x >> n (n >= 0) with every bit shifted out or-ed into bit 0, so that a later rounding sees "inexact".
constexpr Uint128 shift_right_sticky(Uint128 x, int n) noexcept {
    if (n == 0) return x;
    if (n >= 128) return x != 0 ? 1 : 0;
    const Uint128 lost = x & ((Uint128{1} << n) - 1);
    return (x >> n) | (lost != 0 ? 1 : 0);
}

}  // namespace bitreplay
