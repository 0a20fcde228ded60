#pragma once

#include "formats/decode.hpp"
#include "formats/round.hpp"

namespace bitreplay {

/// Converts a code of `from` to the nearest code of `to`. NaN becomes the canonical NaN (where `to` has none, +largest,
/// as PTX cvt.satfinite does); infinity becomes infinity, or what overflow_code says.
constexpr std::uint64_t convert(const Format& from, const Format& to, std::uint64_t bits, const RoundTo& how = {}) noexcept {
    const Number x = decode(from, bits);
    if (x.kind == Kind::nan) return to.has_nan() ? to.canonical_nan() : overflow_code(to, false, how);
    if (x.kind == Kind::infinity) {
        if (!to.is_signed && x.negative) return to.canonical_nan();
        if (to.has_infinity() && how.overflow != Overflow::saturate) return (x.negative ? to.sign_mask() : 0) | to.infinity();
        return overflow_code(to, x.negative, {Rounding::nearest_even, how.overflow, how.keep});
    }
    return round_pack(to, {x.negative, x.significand, x.exponent - from.fraction_bits}, how);
}

static_assert(convert(fp32, bf16, 0x3F808000) == 0x3F80 && convert(fp32, bf16, 0x3F818000) == 0x3F82);
static_assert(convert(fp32, fp16, 0x7F7FFFFF) == 0x7C00 && convert(fp32, e4m3, 0x7F800000) == 0x7F);
static_assert(convert(fp32, e4m3, 0x7F7FFFFF, {.overflow = Overflow::saturate}) == 0x7E);
static_assert(convert(fp32, e2m1, 0x7FC00000) == 0x7 && convert(fp32, bf16, 0xFFC00000) == 0x7FFF);

}  // namespace bitreplay
