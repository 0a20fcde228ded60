#include <tbb/parallel_for.h>
#include <atomic>
#include <catch2/catch.hpp>

#include "formats/convert.hpp"
#include "test/formats/fp32_steps.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

constexpr Rounding roundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::down, Rounding::up};
constexpr Overflow overflows[] = {Overflow::ieee, Overflow::infinity, Overflow::saturate};

}  // namespace

TEST_CASE("convert: fp32 to every narrower format, 2^24 codes of all exponents") {
    std::atomic<std::uint64_t> compared = 0, different = 0, first_bad = 0;
    int formats_seen = 0;
    for (const NamedFormat& row : formats) {
        if (row.format == fp64 || row.format == fp32) continue;
        ++formats_seen;
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero})
            for (const bool negative : {false, true}) {
                const RoundTo how{.rounding = rounding};
                const test::Fp32Expectation want(row.format, negative, how);
                // One code of every block of 256, another one in each format: 2^23 codes of each sign.
                tbb::parallel_for(0U, 64U, [&](std::uint32_t part) {
                    test::Random random(part);
                    const std::uint32_t begin = part << 17, end = (part + 1) << 17;
                    std::size_t step = want.steps().find(std::min(begin << 8, test::Fp32Steps::infinity - 1));
                    std::uint64_t bad = 0;
                    for (std::uint32_t block = begin; block < end; ++block) {
                        const std::uint32_t u = (block << 8) | static_cast<std::uint32_t>(random.below(256));
                        const std::uint64_t code = convert(fp32, row.format, (negative ? 0x80000000U : 0U) | u, how);
                        if (code != want(u, step)) ++bad, first_bad = u;
                    }
                    compared += end - begin;
                    different += bad;
                });
            }
    }
    INFO("a differing fp32 code: " << std::hex << first_bad);
    CHECK(different == 0);
    CHECK(formats_seen == 9);
    CHECK(compared == std::uint64_t{9} * 2 * 2 * (1U << 23));
}

TEST_CASE("convert: fp32 at both sides of every step, all roundings and overflow rules") {
    std::uint64_t compared = 0, different = 0, first_bad = 0;
    for (const NamedFormat& row : formats) {
        if (row.format == fp64 || row.format == fp32) continue;
        for (const Rounding rounding : roundings)
            for (const Overflow overflow : overflows)
                for (const bool negative : {false, true}) {
                    const RoundTo how{rounding, overflow, -1};
                    const test::Fp32Expectation want(row.format, negative, how);
                    const auto check = [&](std::uint32_t u, std::size_t step) {
                        ++compared;
                        if (convert(fp32, row.format, (negative ? 0x80000000U : 0U) | u, how) == want(u, step)) return;
                        ++different;
                        first_bad = u;
                    };
                    const test::Fp32Steps& steps = want.steps();
                    for (std::size_t i = 0; i < steps.first.size(); ++i) {
                        const std::uint32_t u = steps.first[i];
                        if (u > 0) check(u - 1, steps.find(u - 1));
                        check(u, i);
                        if (u < 0x7FFFFFFF) check(u + 1, i);
                    }
                    for (const std::uint32_t u :
                         {0U, 1U, 0x7F7FFFFFU, 0x7F800000U, 0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU})
                        check(u, steps.find(std::min(u, 0x7F7FFFFFU)));
                }
    }
    INFO("a differing fp32 code: " << std::hex << first_bad);
    CHECK(different == 0);
    CHECK(compared > 20'000'000);
}
