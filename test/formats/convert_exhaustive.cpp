#include <tbb/parallel_for.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

#include "formats/convert.hpp"
#include "test/oracle/rounding.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

constexpr oracle::Direction direction(Rounding r) {
    switch (r) {
        case Rounding::nearest_even: return oracle::Direction::nearest_even;
        case Rounding::toward_zero: return oracle::Direction::toward_zero;
        case Rounding::down: return oracle::Direction::down;
        case Rounding::up: return oracle::Direction::up;
    }
    return {};
}

constexpr oracle::Beyond beyond(Overflow o) {
    return o == Overflow::ieee       ? oracle::Beyond::ieee
           : o == Overflow::infinity ? oracle::Beyond::infinity
                                     : oracle::Beyond::saturate;
}

oracle::Mode mode(const RoundTo& how) { return {direction(how.rounding), beyond(how.overflow), how.keep}; }

/// Every rounding and overflow rule; each number of kept bits for formats up to 16 bits, some for the wider ones.
std::vector<RoundTo> modes(const Format& to) {
    std::vector<RoundTo> out;
    for (const Rounding r : {Rounding::nearest_even, Rounding::toward_zero, Rounding::down, Rounding::up})
        for (const Overflow o : {Overflow::ieee, Overflow::infinity, Overflow::saturate}) out.push_back({r, o, -1});
    for (const Rounding r : {Rounding::nearest_even, Rounding::toward_zero, Rounding::up})
        for (int keep = 0; keep <= to.fraction_bits; keep += to.storage_bits() > 16 ? 6 : to.storage_bits() > 8 ? 3 : 1)
            out.push_back({r, Overflow::ieee, keep});
    return out;
}

}  // namespace

TEST_CASE("convert: every code of every format up to 16 bits into every format, all modes") {
    using W = oracle::FixedInt<128>;
    std::atomic<std::uint64_t> compared = 0, different = 0;
    for (const NamedFormat& from : formats) {
        if (from.format.storage_bits() > 16) continue;
        tbb::parallel_for(std::size_t{0}, formats.size(), [&](std::size_t index) {
            const NamedFormat& to = formats[index];
            for (const RoundTo& how : modes(to.format)) {
                const oracle::Rounder<W> rounder(to.format, mode(how));
                std::uint64_t bad = 0;
                for (std::uint64_t code = 0; code < std::uint64_t{1} << from.format.storage_bits(); ++code)
                    if (convert(from.format, to.format, code, how) != oracle::convert(from.format, rounder, code))
                        ++bad;
                compared += std::uint64_t{1} << from.format.storage_bits();
                different += bad;
            }
        });
    }
    CHECK(different == 0);
    CHECK(compared > 20'000'000);
}

TEST_CASE("convert: every number of a format up to 16 bits survives decode, round_pack and convert") {
    std::uint64_t numbers = 0, different = 0;
    for (const NamedFormat& row : formats) {
        const Format& f = row.format;
        if (f.storage_bits() > 16) continue;
        for (std::uint64_t code = 0; code < std::uint64_t{1} << f.storage_bits(); ++code) {
            const Number x = decode(f, code);
            const oracle::Value v = oracle::value_of(f, code);
            const bool finite = x.kind == Kind::zero || x.kind == Kind::finite;
            if (finite != (v.kind == oracle::Class::finite) || (x.kind == Kind::nan) != (v.kind == oracle::Class::nan))
                ++different;
            ++numbers;
            if (x.kind == Kind::nan) {
                if (convert(f, f, code) != f.canonical_nan()) ++different;
                continue;
            }
            if (convert(f, f, code) != code || convert(fp32, f, convert(f, fp32, code)) != code) ++different;
            if (!finite) continue;
            if (x.negative != v.negative || x.significand != v.significand || x.exponent != v.exponent) ++different;
            if (round_pack(f, {x.negative, x.significand, x.exponent - f.fraction_bits}) != code) ++different;
        }
    }
    CHECK(different == 0);
    CHECK(numbers == 2 * 65536 + 3 * 256 + 64 * 2 + 16);
}

TEST_CASE("round_pack: random exact values of up to 128 bits into every format, all modes") {
    constexpr std::uint64_t per_mode = 20'000;
    std::atomic<std::uint64_t> compared = 0, different = 0, inexact = 0;
    tbb::parallel_for(std::size_t{0}, formats.size(), [&](std::size_t index) {
        const Format& f = formats[index].format;
        test::Random random(100 + index);
        for (const RoundTo& how : modes(f)) {
            const oracle::Rounder<oracle::FixedInt<512>> rounder(f, mode(how));
            std::uint64_t bad = 0;
            for (std::uint64_t i = 0; i < per_mode; ++i) {
                const auto bits = static_cast<int>(1 + random.below(128));
                Uint128 magnitude = (Uint128{random.next()} << 64 | random.next()) >> (128 - bits);
                if (random.below(3) == 0) magnitude &= ~Uint128{0} << (bits / 2);  // exact values and ties
                if (random.below(3) == 0) magnitude |= (Uint128{1} << (bits / 2)) - 1;
                const auto range = static_cast<std::uint64_t>(2 * (f.max_exponent() + f.fraction_bits + 8));
                const int top = static_cast<int>(random.below(range)) - static_cast<int>(range / 2);
                const int exponent = top - bits;
                const bool negative = random.below(2) == 0;
                const std::uint64_t got = round_pack(f, {negative, magnitude, exponent}, how);
                oracle::FixedInt<512> wide = static_cast<std::uint64_t>(magnitude >> 64);
                wide = (wide << 64) + static_cast<std::uint64_t>(magnitude);
                if (got != rounder(negative, wide, exponent)) ++bad;
                if (bits > f.fraction_bits + 1) ++inexact;
            }
            compared += per_mode;
            different += bad;
        }
    });
    CHECK(different == 0);
    CHECK(compared > 3'000'000);
    CHECK(inexact > compared / 2);
}

TEST_CASE("oracle: a rational rounds to the code that no other code beats") {
    test::Random random(7);
    int ties = 0, checked = 0, wrong = 0;
    for (const NamedFormat& row : formats) {
        const Format& f = row.format;
        if (f.storage_bits() > 8) continue;
        for (int i = 0; i < 300; ++i) {
            // Small denominators make ties frequent.
            const oracle::Int numerator = random.below(1'000), denominator = 1 + random.below(8);
            oracle::Rational value(numerator, denominator);
            value *= oracle::power_of_two(static_cast<int>(random.below(16)) - 10);
            const std::uint64_t code = oracle::round_rational(f, value, {});
            const oracle::Value chosen = oracle::value_of(f, code);
            if (chosen.kind != oracle::Class::finite || code == f.max_finite() || value == 0) continue;
            const oracle::Rational error = abs(oracle::Rational(oracle::rational(chosen) - value));
            for (std::uint64_t other = 0; other <= f.max_finite(); ++other) {
                if (other == code) continue;
                const oracle::Rational distance =
                    abs(oracle::Rational(oracle::rational(oracle::value_of(f, other)) - value));
                if (distance == error) ++ties;
                if (distance < error || (distance == error && code % 2 == 1)) ++wrong;
                ++checked;
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(checked > 10'000);
    CHECK(ties > 20);
}
