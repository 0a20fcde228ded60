#pragma once
// The conversion of fp32 to a narrower format as a step function: which fp32 codes, in ascending order, are the first
// to reach each target code. Built from the sorted list of all target values by exact comparison, without any rounding
// code.

#include <algorithm>
#include <vector>

#include "formats/round.hpp"
#include "test/oracle/value.hpp"

namespace bitreplay::test {

enum class Toward : std::uint8_t { nearest, zero, infinity };  ///< of the magnitude

/// The rounding of the magnitude of a number with this sign.
inline Toward of_magnitude(Rounding rounding, bool negative) {
    switch (rounding) {
        case Rounding::nearest_even: return Toward::nearest;
        case Rounding::toward_zero: return Toward::zero;
        case Rounding::down: return negative ? Toward::infinity : Toward::zero;
        case Rounding::up: return negative ? Toward::zero : Toward::infinity;
    }
    return Toward::nearest;
}

struct Fp32Steps {
    static constexpr std::uint32_t infinity = 0x7F800000;

    std::vector<std::uint32_t> first;  ///< first[i]: smallest non-negative fp32 code whose result is code[i] or later
    std::vector<std::uint64_t> code;   ///< ascending; the last one stands for "beyond the largest finite value"
    std::uint64_t sign = 0;

    using Scaled = oracle::FixedInt<512>;  // a value in units of 2^-160, exact for every fp32 value and midpoint

    static Scaled scaled(const oracle::Value& v) {
        return Scaled(v.significand) << static_cast<unsigned>(v.scale + 160);
    }

    Fp32Steps(const Format& format, Toward toward, Overflow overflow) {
        const int padding = format.padding_bits;
        sign = format.is_signed ? std::uint64_t{1} << (format.exponent_bits + format.fraction_bits + padding) : 0;
        std::vector<Scaled> value;
        for (std::uint64_t c = 0; c < std::uint64_t{1} << (format.exponent_bits + format.fraction_bits); ++c) {
            const oracle::Value v = oracle::value_of(format, c << padding);
            if (v.kind != oracle::Class::finite) continue;
            code.push_back(c << padding);
            value.push_back(scaled(v));
        }
        const std::size_t last = value.size() - 1;
        const bool powers = format.specials == Specials::exponent_only;
        value.push_back(value[last] + (powers ? value[last] : value[last] - value[last - 1]));
        const bool away = toward != Toward::zero || overflow == Overflow::infinity;
        if (!away || overflow == Overflow::saturate || format.specials == Specials::none) {
            code.push_back(code[last]);
        } else if (format.specials == Specials::ieee) {
            code.push_back(code[last] + (std::uint64_t{1} << padding));
        } else {
            code.push_back((std::uint64_t{1} << (format.exponent_bits + format.fraction_bits)) - 1);
        }
        first.push_back(0);
        for (std::size_t i = 0; i + 1 < value.size(); ++i) {
            const bool odd = ((code[i] >> padding) & 1) != 0;
            // True if fp32 value v belongs to code i + 1 or later.
            const auto beyond = [&](const Scaled& v) {
                if (toward == Toward::zero) return v >= value[i + 1];
                if (powers && v <= value[0]) return false;  // no zero: the smallest code takes everything below it
                if (toward == Toward::infinity) return v > value[i];
                const Scaled twice = v * 2, middle = value[i] + value[i + 1];
                return odd ? twice >= middle : twice > middle;
            };
            std::uint32_t low = first.back(), high = infinity;
            while (low < high) {
                const std::uint32_t middle = low + (high - low) / 2;
                if (beyond(scaled(oracle::value_of(fp32, middle))))
                    high = middle;
                else
                    low = middle + 1;
            }
            first.push_back(low);
        }
    }

    /// Index of the step that holds a finite non-negative fp32 code.
    std::size_t find(std::uint32_t magnitude) const {
        return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), magnitude) - first.begin()) - 1;
    }
};

/// What fp32 becomes in one format and mode, all 2^32 codes. Calls must be made in ascending order of the magnitude
/// within a run that starts with seek().
class Fp32Expectation {
public:
    Fp32Expectation(const Format& format, bool negative, const RoundTo& how)
        : format_(format),
          negative_(negative),
          how_(how),
          steps_(format, of_magnitude(how.rounding, negative), how.overflow) {}

    const Fp32Steps& steps() const { return steps_; }

    std::uint64_t operator()(std::uint32_t magnitude, std::size_t& step) const {
        const int bits = format_.exponent_bits + format_.fraction_bits + format_.padding_bits;
        const std::uint64_t nan =
            format_.specials == Specials::none ? steps_.code[steps_.code.size() - 2] : (std::uint64_t{1} << bits) - 1;
        if (magnitude > Fp32Steps::infinity) return nan;
        if (negative_ && !format_.is_signed && magnitude != 0) return nan;
        const std::uint64_t sign = negative_ ? steps_.sign : 0;
        if (magnitude == Fp32Steps::infinity) {
            const std::uint64_t largest = steps_.code[steps_.code.size() - 2];
            if (how_.overflow == Overflow::saturate || format_.specials == Specials::none) return sign | largest;
            if (format_.specials == Specials::ieee)
                return sign | (largest + (std::uint64_t{1} << format_.padding_bits));
            return sign | nan;
        }
        while (step + 1 < steps_.first.size() && steps_.first[step + 1] <= magnitude) ++step;
        return sign | steps_.code[step];
    }

private:
    Format format_;
    bool negative_;
    RoundTo how_;
    Fp32Steps steps_;
};

}  // namespace bitreplay::test
