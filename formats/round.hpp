#pragma once

#include "formats/format.hpp"
#include "formats/wide.hpp"

namespace bitreplay {

enum class Rounding : std::uint8_t { nearest_even, toward_zero, down, up };

/// What becomes of a finite value beyond the largest finite code.
enum class Overflow : std::uint8_t {
    ieee,      ///< infinity, or the largest finite value where the rounding points towards zero
    infinity,  ///< infinity whatever the rounding (tensor cores)
    saturate,  ///< the largest finite value (PTX .satfinite)
};

/// How to round. keep: fraction bits kept, at most and by default the format's own (an RZ-E8M13 result is fp32 with keep 13).
struct RoundTo {
    Rounding rounding = Rounding::nearest_even;
    Overflow overflow = Overflow::ieee;
    int keep = -1;
};

/// An exact value (-1)^negative * magnitude * 2^exponent.
struct Exact {
    bool negative;
    Uint128 magnitude;
    int exponent;
};

/// Fraction bits that a rounding to `f` keeps.
constexpr int kept_bits(const Format& f, const RoundTo& to) noexcept {
    return to.keep < 0 || to.keep > f.fraction_bits ? f.fraction_bits : to.keep;
}

/// The code for a value too large for the format. Formats without infinity give NaN, those without NaN saturate.
/// The largest finite value is the largest one with the kept bits.
constexpr std::uint64_t overflow_code(const Format& f, bool negative, const RoundTo& to) noexcept {
    const bool away = to.rounding == Rounding::nearest_even || (to.rounding == Rounding::down && negative) ||
                      (to.rounding == Rounding::up && !negative) || to.overflow == Overflow::infinity;
    const std::uint64_t sign = negative ? f.sign_mask() : 0;
    if (!away || to.overflow == Overflow::saturate || f.specials == Specials::none) {
        const int dropped = f.fraction_bits - kept_bits(f, to) + f.padding_bits;
        return sign | (f.max_finite() >> dropped << dropped);
    }
    return f.has_infinity() ? sign | f.infinity() : sign | f.canonical_nan();
}

/// The only rounding in the project: the nearest code of `f` to an exact value, with gradual underflow.
/// A non-zero value that rounds to zero keeps its sign. Ties go to the even code. An unsigned format maps zero and
/// underflow to its smallest code and negative values to NaN.
constexpr std::uint64_t round_pack(const Format& f, const Exact& value, const RoundTo& to = {}) noexcept {
    const std::uint64_t sign = value.negative ? f.sign_mask() : 0;
    if (!f.is_signed && value.negative && value.magnitude != 0) return f.canonical_nan();
    if (value.magnitude == 0) return sign;

    const int keep = kept_bits(f, to);
    // Far beyond every format's range on both sides, so that the sums below cannot overflow.
    const int scale = value.exponent < -100'000 ? -100'000 : value.exponent > 100'000 ? 100'000 : value.exponent;
    const int top = bit_length(value.magnitude) - 1 + scale;
    const int exponent = top < f.min_exponent() ? f.min_exponent() : top;
    if (exponent > f.max_exponent()) return overflow_code(f, value.negative, to);
    const int shift = exponent - keep - scale;  // bits below the last kept one

    std::uint64_t significand = 0;  // in units of 2^(exponent - keep)
    bool above_half = false, half = false, inexact = false;
    if (shift <= 0) {
        significand = static_cast<std::uint64_t>(value.magnitude << -shift);
    } else if (shift > 128) {
        inexact = true;
    } else {
        const Uint128 rest = shift == 128 ? value.magnitude : value.magnitude & ((Uint128{1} << shift) - 1);
        const Uint128 middle = Uint128{1} << (shift - 1);
        significand = shift == 128 ? 0 : static_cast<std::uint64_t>(value.magnitude >> shift);
        above_half = rest > middle;
        half = rest == middle;
        inexact = rest != 0;
    }

    // Exponent field and significand as one integer: a carry out of the fraction steps the exponent by itself.
    const int field = exponent - f.min_exponent();  // of a significand without its leading one
    std::uint64_t code = (static_cast<std::uint64_t>(field) << keep) + significand;
    if (!f.has_subnormals()) code = significand == 0 ? 0 : code - (std::uint64_t{1} << keep);
    bool up = false;
    switch (to.rounding) {
        case Rounding::nearest_even: up = above_half || (half && (code & 1) != 0); break;
        case Rounding::toward_zero: break;
        case Rounding::down: up = inexact && value.negative; break;
        case Rounding::up: up = inexact && !value.negative; break;
    }
    if (!f.has_subnormals() && significand == 0) up = false;  // below the smallest power of two
    code += up ? 1 : 0;
    code <<= f.fraction_bits - keep + f.padding_bits;
    if (code > f.max_finite()) return overflow_code(f, value.negative, to);
    return sign | code;
}

}  // namespace bitreplay
