#pragma once
// Independent exact oracle, part 1: number formats. It shares nothing with the library but the five numbers of a
// Format.

#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <limits>

#include "formats/format.hpp"

namespace bitreplay::oracle {

using Int = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;
template <unsigned Bits>
using FixedInt = boost::multiprecision::number<
    boost::multiprecision::
        cpp_int_backend<Bits, Bits, boost::multiprecision::signed_magnitude, boost::multiprecision::unchecked, void>,
    boost::multiprecision::et_off>;

enum class Class : std::uint8_t { finite, infinite, nan };

/// What a code means: (-1)^negative * significand * 2^scale where finite; a zero has significand 0.
/// The significand of an IEEE NaN is its payload.
/// exponent is the e of "1.f * 2^e" or, for subnormals and zero, "0.f * 2^e".
struct Value {
    Class kind;
    bool negative;
    std::uint64_t significand;
    int scale;
    int exponent;
};

/// The meaning of a code by the text of IEEE 754 and of the OCP FP8 and MX specifications.
inline Value value_of(const Format& f, std::uint64_t code) {
    const auto take = [&code](int bits) {  // the lowest bits, removed from code
        const std::uint64_t part = bits == 0 ? 0 : code % (std::uint64_t{1} << bits);
        code /= std::uint64_t{1} << bits;
        return part;
    };
    take(f.padding_bits);
    const std::uint64_t fraction = take(f.fraction_bits);
    const std::uint64_t field = take(f.exponent_bits);
    const bool negative = f.is_signed && code == 1;
    const std::uint64_t ones_field = (std::uint64_t{2} << (f.exponent_bits - 1)) - 1;
    const std::uint64_t ones_fraction = (std::uint64_t{1} << f.fraction_bits) - 1;
    const int bias = static_cast<int>(ones_field / 2);

    if (field == ones_field) {
        switch (f.specials) {
            case Specials::ieee: return {fraction == 0 ? Class::infinite : Class::nan, negative, fraction, 0, 0};
            case Specials::nan_only:
                if (fraction == ones_fraction) return {Class::nan, negative, 0, 0, 0};
                break;
            case Specials::exponent_only: return {Class::nan, negative, 0, 0, 0};
            case Specials::none: break;
        }
    }
    if (f.specials == Specials::exponent_only) {
        const int e = static_cast<int>(field) - bias;
        return {Class::finite, false, 1, e, e};
    }
    const int e = field == 0 ? 1 - bias : static_cast<int>(field) - bias;
    const std::uint64_t significand = field == 0 ? fraction : fraction + ones_fraction + 1;
    return {Class::finite, negative, significand, e - f.fraction_bits, e};
}

inline Rational power_of_two(int n) { return n >= 0 ? Rational(Int(1) << n) : Rational(Int(1), Int(1) << -n); }

/// The exact value of a finite code.
inline Rational rational(const Value& v) {
    const Rational magnitude = Rational(Int(v.significand)) * power_of_two(v.scale);
    return v.negative ? Rational(-magnitude) : magnitude;
}

}  // namespace bitreplay::oracle
