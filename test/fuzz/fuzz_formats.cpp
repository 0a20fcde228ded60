// decode and round_pack are inverse in every format; round_pack and convert equal the exact oracle for any value and
// mode.
#include "formats/convert.hpp"
#include "test/fuzz/fuzz.hpp"
#include "test/oracle/rounding.hpp"

using namespace bitreplay;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    while (!input.empty()) {
        const Format from = formats[input.below(formats.size())].format,
                     to = formats[input.below(formats.size())].format;
        const auto direction = static_cast<std::uint8_t>(input.below(4)),
                   beyond = static_cast<std::uint8_t>(input.below(3));
        const int keep = static_cast<int>(input.below(static_cast<std::size_t>(to.fraction_bits) + 2)) - 1;
        const std::uint64_t all = (std::uint64_t{2} << (from.storage_bits() - 1)) - 1;
        const std::uint64_t code = input.take<std::uint64_t>() & all;

        const Number x = decode(from, code);
        if (x.kind == Kind::finite || x.kind == Kind::zero) {
            const std::uint64_t padding = (std::uint64_t{1} << from.padding_bits) - 1;
            const std::uint64_t back = round_pack(from, {x.negative, x.significand, x.exponent - from.fraction_bits});
            fuzz::require(back == (code & ~padding), "round_pack(decode(code)) is the code");
        }

        const RoundTo how{static_cast<Rounding>(direction), static_cast<Overflow>(beyond), keep};
        const oracle::Rounder<oracle::Int> exact(
            to, {static_cast<oracle::Direction>(direction), static_cast<oracle::Beyond>(beyond), keep});
        fuzz::require(convert(from, to, code, how) == oracle::convert(from, exact, code), "convert equals the oracle");

        const bool negative = input.below(2) != 0;
        const int exponent = input.take<std::int16_t>() % 1300;
        const auto high = input.take<std::uint64_t>(), low = input.take<std::uint64_t>();
        const Uint128 magnitude = ((Uint128{high} << 64) | low) >> input.below(128);
        const oracle::Int wide =
            (oracle::Int(static_cast<std::uint64_t>(magnitude >> 64)) << 64) + static_cast<std::uint64_t>(magnitude);
        fuzz::require(round_pack(to, {negative, magnitude, exponent}, how) == exact(negative, wide, exponent),
                      "round_pack equals the oracle");
    }
    return 0;
}
