#include "arch/fp32.hpp"

#include <catch2/catch.hpp>

#include "formats/decode.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

TEST_CASE("fp32: the integer fma rounded to nearest equals the host's, and the directed ones bracket it") {
    test::Random random(51);
    int compared = 0, different = 0, disordered = 0, inexact = 0, cancelled = 0;
    const auto order = [](std::uint32_t x) { return (x & 0x80000000U) != 0 ? -static_cast<std::int64_t>(x & 0x7FFFFFFFU) : x; };
    for (int i = 0; i < 400000; ++i) {
        const auto x = static_cast<std::uint32_t>(random.next()), y = static_cast<std::uint32_t>(random.next());
        auto z = static_cast<std::uint32_t>(random.next());
        // Half of the time z is near −x·y, so that the sum cancels.
        if (i % 2 == 0) z = (f32::mul(x, y) ^ 0x80000000U) + static_cast<std::uint32_t>(random.below(9)) - 4;
        const std::uint32_t nearest = f32::fma(x, y, z);
        different += f32::fma(x, y, z, Rounding::nearest_even) != nearest ? 1 : 0;
        ++compared;
        if (is_nan(fp32, nearest)) continue;
        const std::uint32_t down = f32::fma(x, y, z, Rounding::down), up = f32::fma(x, y, z, Rounding::up);
        const std::uint32_t zero = f32::fma(x, y, z, Rounding::toward_zero);
        disordered += order(down) > order(nearest) || order(nearest) > order(up) || order(up) - order(down) > 1 ? 1 : 0;
        disordered += order(zero) != order((down & 0x80000000U) != 0 ? up : down) && order(down) != 0 ? 1 : 0;
        inexact += order(down) != order(up) ? 1 : 0;
        cancelled += (nearest & 0x7FFFFFFFU) < (z & 0x7FFFFFFFU) ? 1 : 0;
    }
    CHECK(compared == 400000);
    CHECK(different == 0);
    CHECK(disordered == 0);
    CHECK(inexact > 100000);
    CHECK(cancelled > 50000);
}

TEST_CASE("fp32: directed rounding, chosen cases") {
    constexpr std::uint32_t one = 0x3F800000, tiny = 0x00000001, minus = 0x80000000;
    CHECK(f32::add(one, tiny, Rounding::toward_zero) == one);
    CHECK(f32::add(one, tiny, Rounding::up) == one + 1);
    CHECK(f32::add(one, tiny | minus, Rounding::toward_zero) == one - 1);
    CHECK(f32::add(one, tiny | minus, Rounding::nearest_even) == one);
    CHECK(f32::add(one, one | minus, Rounding::down) == minus);
    CHECK(f32::add(one, one | minus, Rounding::toward_zero) == 0);
    CHECK(f32::add(0x7F7FFFFF, 0x7F7FFFFF, Rounding::toward_zero) == 0x7F7FFFFF);
    CHECK(f32::add(minus, minus, Rounding::toward_zero) == minus);
    CHECK(f32::fma(0x1F800000, 0x1F800000, one, Rounding::down) == one);
    CHECK(f32::fma(0x7F800000, 0, one, Rounding::down) == 0x7FFFFFFF);
}

TEST_CASE("fp32: maximum, comparisons and conversions") {
    constexpr std::uint32_t nan = 0xFFC00001, minus = 0x80000000, one = 0x3F800000, inf = 0x7F800000;
    CHECK(f32::max(0, minus) == 0);
    CHECK(f32::max(minus, 0) == 0);
    CHECK(f32::min(0, minus) == minus);
    CHECK(f32::max(nan, minus) == minus);
    CHECK(f32::min(one, nan) == one);
    CHECK(f32::max(nan, nan) == 0x7FFFFFFF);
    CHECK(f32::max(0xBF800000, 0xC0000000) == 0xBF800000);
    CHECK_FALSE(f32::less(nan, one));
    CHECK(f32::less(0xFF800000, minus));
    CHECK_FALSE(f32::less(minus, 0));
    CHECK(f32::equal(minus, 0));
    CHECK(f32::to_int(nan) == 0);
    CHECK(f32::to_int(inf) == INT32_MAX);
    CHECK(f32::to_int(0xFF800000) == INT32_MIN);
    CHECK(f32::to_int(0xBFFFFFFF) == -1);
    CHECK(f32::from_int(16777217) == 0x4B800000);
    CHECK(f32::round_to_integer(0x3F000000) == 0);
    CHECK(f32::round_to_integer(0x3FC00000) == 0x40000000);
    CHECK(f32::truncate(0xBFFFFFFF) == 0xBF800000);
    CHECK(f32::floor(0xBF000000) == 0xBF800000);
    CHECK(f64::to_f32(f64::from_int(1)) == one);
    CHECK(f64::mul(f64::from_int(3), f64::from_int(5)) == f64::from_int(15));
}
