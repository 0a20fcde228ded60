#pragma once

#include "formats/format.hpp"

namespace bitreplay {

enum class Kind : std::uint8_t { zero, finite, infinity, nan };

/// A decoded number: value = (-1)^negative * significand * 2^(exponent - fraction_bits).
/// Subnormals keep the format's minimum exponent and are not normalised. Zero has significand 0 and that exponent.
/// A NaN has its fraction (the payload) as significand, infinity has 0; both have exponent 0.
struct Number {
    Kind kind;
    bool negative;
    int exponent;
    std::uint64_t significand;
};

/// Every code of every format has an answer; bits above the storage size must be 0.
constexpr Number decode(const Format& f, std::uint64_t bits) noexcept {
    const bool negative = (bits & f.sign_mask()) != 0;
    const std::uint64_t code = bits >> f.padding_bits;
    const std::uint64_t fraction = code & f.fraction_mask();
    const int field = static_cast<int>((code >> f.fraction_bits) & static_cast<std::uint64_t>(f.max_field()));
    if (field == f.max_field()) {
        if (f.specials == Specials::ieee) return {fraction != 0 ? Kind::nan : Kind::infinity, negative, 0, fraction};
        if (f.specials != Specials::none && fraction == f.fraction_mask()) return {Kind::nan, negative, 0, fraction};
    }
    if (field == 0 && f.has_subnormals())
        return {fraction != 0 ? Kind::finite : Kind::zero, negative, f.min_exponent(), fraction};
    return {Kind::finite, negative, field - f.bias(), fraction | (std::uint64_t{1} << f.fraction_bits)};
}

constexpr bool is_nan(const Format& f, std::uint64_t bits) noexcept { return decode(f, bits).kind == Kind::nan; }

static_assert(decode(bf16, 0x3F80).significand == 0x80 && decode(bf16, 0x3F80).exponent == 0);
static_assert(decode(fp16, 0x0001).exponent == -14 && decode(fp16, 0x0001).significand == 1);
static_assert(decode(e4m3, 0x7E).kind == Kind::finite && is_nan(e4m3, 0x7F) && is_nan(e4m3, 0xFF));
static_assert(decode(e8m0, 0).kind == Kind::finite && decode(e8m0, 0).exponent == -127 && is_nan(e8m0, 0xFF));

}  // namespace bitreplay
