#pragma once
// Independent exact oracle, part 2: correct rounding of an exact value into a format.

#include "test/oracle/value.hpp"

namespace bitreplay::oracle {

enum class Direction : std::uint8_t { nearest_even, toward_zero, down, up };
enum class Beyond : std::uint8_t { ieee, infinity, saturate };  ///< what a value beyond the largest finite one becomes

struct Mode {
    Direction direction = Direction::nearest_even;
    Beyond beyond = Beyond::ieee;
    int keep = -1;  ///< fraction bits kept; negative: all
};

/// Nearest codes of one format, prepared once. W is an integer type wide enough for every magnitude and shift asked
/// for: the unbounded Int, or a FixedInt where speed matters and the caller knows the range.
template <class W>
class Rounder {
public:
    Rounder(const Format& format, const Mode& mode)
        : format_(format),
          mode_(mode),
          keep_(mode.keep < 0 ? format.fraction_bits : mode.keep),
          bias_((1 << (format.exponent_bits - 1)) - 1),
          smallest_(format.specials == Specials::exponent_only ? -bias_ : 1 - bias_),
          sign_(format.is_signed
                    ? std::uint64_t{1} << (format.exponent_bits + format.fraction_bits + format.padding_bits)
                    : 0) {
        // The largest code that stands for a number and has zeros in the fraction bits that are not kept: below the
        // first special code, which is that of infinity, of NaN, or past the last code.
        const std::uint64_t step = std::uint64_t{1} << (format.fraction_bits - keep_);
        const std::uint64_t codes = std::uint64_t{1} << (format.exponent_bits + format.fraction_bits);
        const std::uint64_t special = format.specials == Specials::ieee
                                          ? codes - (std::uint64_t{1} << format.fraction_bits)
                                      : format.specials == Specials::none ? codes
                                                                          : codes - 1;
        largest_ = (special - 1) & ~(step - 1);
    }

    /// The code nearest to (-1)^negative * magnitude * 2^scale in the chosen direction. Zero and results that round to
    /// zero keep the sign.
    std::uint64_t operator()(bool negative, const W& magnitude, int scale) const {
        if (!format_.is_signed && negative && magnitude != 0) return nan();
        const std::uint64_t sign = negative ? sign_ : 0;
        if (magnitude == 0) return sign;
        const int e = static_cast<int>(msb(magnitude)) + scale;
        if (format_.specials == Specials::exponent_only && e < smallest_) return 0;
        if (e > bias_ + 1) return too_large(negative);
        const int quantum = (e < smallest_ ? smallest_ : e) - keep_;  // spacing 2^quantum around the value
        std::uint64_t below = 0;                                      // floor(value / 2^quantum)
        int rest = 0;  // 0 exact, 1 below the middle, 2 at it, 3 above it
        if (scale >= quantum) {
            below = static_cast<std::uint64_t>(W(magnitude << static_cast<unsigned>(scale - quantum)));
        } else if (const auto drop = static_cast<unsigned>(quantum - scale); drop > msb(magnitude) + 1) {
            rest = 1;
        } else {
            const W quotient = magnitude >> drop;
            const W remainder = magnitude - (quotient << drop);
            const W middle = W(1) << (drop - 1);
            below = static_cast<std::uint64_t>(quotient);
            rest = remainder == 0 ? 0 : remainder < middle ? 1 : remainder == middle ? 2 : 3;
        }
        const std::uint64_t low = code(below, quantum), high = code(below + 1, quantum);
        bool away = false;
        switch (mode_.direction) {
            case Direction::nearest_even: {
                const int unkept = format_.fraction_bits - keep_;
                away = rest == 3 || (rest == 2 && ((low >> unkept) & 1) == 1);
                break;
            }
            case Direction::toward_zero: away = false; break;
            case Direction::down: away = negative && rest != 0; break;
            case Direction::up: away = !negative && rest != 0; break;
        }
        const std::uint64_t chosen = away ? high : low;
        return chosen > largest_ ? too_large(negative) : sign | (chosen << format_.padding_bits);
    }

    /// All-ones below the sign, as NVIDIA units write it; the largest finite code where the format has no NaN.
    std::uint64_t nan() const {
        const int bits = format_.exponent_bits + format_.fraction_bits + format_.padding_bits;
        return format_.specials == Specials::none ? largest_ : (std::uint64_t{1} << bits) - 1;
    }

    std::uint64_t infinite(bool negative) const {
        if (!format_.is_signed && negative) return nan();
        return beyond(negative, true);
    }

private:
    /// Sign-less, padding-less code of n * 2^quantum; may lie beyond the largest finite one.
    std::uint64_t code(std::uint64_t n, int quantum) const {
        std::uint64_t unit = std::uint64_t{1} << keep_;
        if (n >= 2 * unit) {  // rounded up to the next power of two
            n /= 2;
            ++quantum;
        }
        const bool subnormal = n < unit;
        if (format_.specials == Specials::exponent_only) return static_cast<std::uint64_t>(quantum + keep_ + bias_);
        const auto field = subnormal ? 0 : static_cast<std::uint64_t>(quantum + keep_ + bias_);
        const std::uint64_t fraction = subnormal ? n : n - unit;
        return (field << format_.fraction_bits) + (fraction << (format_.fraction_bits - keep_));
    }

    std::uint64_t too_large(bool negative) const {
        bool away = mode_.beyond == Beyond::infinity;
        if (mode_.direction == Direction::nearest_even) away = true;
        if (mode_.direction == (negative ? Direction::down : Direction::up)) away = true;
        return beyond(negative, away);
    }

    std::uint64_t beyond(bool negative, bool away) const {
        const std::uint64_t sign = negative ? sign_ : 0;
        const bool finite = !away || mode_.beyond == Beyond::saturate || format_.specials == Specials::none;
        if (finite) return sign | (largest_ << format_.padding_bits);
        if (format_.specials != Specials::ieee) return sign | nan();
        const std::uint64_t ones = (std::uint64_t{1} << format_.exponent_bits) - 1;
        return sign | (ones << (format_.fraction_bits + format_.padding_bits));
    }

    Format format_;
    Mode mode_;
    int keep_, bias_, smallest_;
    std::uint64_t sign_, largest_ = 0;
};

/// Correct rounding of an exact rational by definition: the multiples of the spacing next to it, compared as rationals.
inline std::uint64_t round_rational(const Format& format, const Rational& value, const Mode& mode) {
    const Rounder<Int> rounder(format, mode);
    const bool negative = value < 0;
    const Rational magnitude = negative ? Rational(-value) : value;
    if (magnitude == 0) return 0;
    // Scale up until at least 2 fraction bits more than any format has are integer, then replace the rest by a sticky
    // bit.
    int shift = 70 + static_cast<int>(msb(denominator(magnitude))) - static_cast<int>(msb(numerator(magnitude)));
    if (shift < 0) shift = 0;
    Int quotient, remainder;
    divide_qr(
        Int(numerator(magnitude) << static_cast<unsigned>(shift)), Int(denominator(magnitude)), quotient, remainder);
    quotient <<= 1;
    if (remainder != 0) quotient += 1;
    return rounder(negative, quotient, -shift - 1);
}

/// A code of one format into another.
template <class W = Int>
std::uint64_t convert(const Format& from, const Rounder<W>& to, std::uint64_t code) {
    const Value v = value_of(from, code);
    if (v.kind == Class::nan) return to.nan();
    if (v.kind == Class::infinite) return to.infinite(v.negative);
    return to(v.negative, W(v.significand), v.scale);
}

}  // namespace bitreplay::oracle
