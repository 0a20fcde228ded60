#include "arch/fp32.hpp"

#include <catch2/catch.hpp>

using namespace bitreplay;

TEST_CASE("fp32: mul then add is not fused") {
    // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 exactly, and 0 after rounding the product.
    constexpr std::uint32_t x = 0x3F800800, minus = 0xBF801000;
    CHECK(f32::add(f32::mul(x, x), minus) == 0);
    CHECK(f32::fma(x, x, minus) == 0x33800000);
}

TEST_CASE("fp32: NaN results are canonical whatever comes in") {
    constexpr std::uint32_t nan = 0x7FFFFFFF, inf = 0x7F800000, minus_inf = 0xFF800000;
    for (const std::uint32_t in : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU, 0x7FFFFFFFU}) {
        CHECK(f32::add(in, 0x3F800000) == nan);
        CHECK(f32::sub(0x3F800000, in) == nan);
        CHECK(f32::mul(in, in) == nan);
        CHECK(f32::fma(0x3F800000, 0, in) == nan);
        CHECK(f32::div(in, 0x3F800000) == nan);
        CHECK(f32::sqrt(in) == nan);
    }
    CHECK(f32::add(inf, minus_inf) == nan);
    CHECK(f32::sub(inf, inf) == nan);
    CHECK(f32::mul(inf, 0x80000000) == nan);
    CHECK(f32::fma(inf, 0, 0x3F800000) == nan);
    CHECK(f32::div(0, 0x80000000) == nan);
    CHECK(f32::div(inf, inf) == nan);
    CHECK(f32::sqrt(0xBF800000) == nan);
    CHECK(f64::fma(0x7FF0000000000000, 0, 0) == 0xFFF8000000000000);
    CHECK(f64::fma(0xFFF8000000000000, 0, 0) == 0xFFF8000000000000);
}

TEST_CASE("fp32: subnormals and signed zeros are kept") {
    CHECK(f32::add(1, 1) == 2);
    CHECK(f32::sub(0x00800000, 1) == 0x007FFFFF);
    CHECK(f32::mul(0x00000002, 0x3F000000) == 1);
    CHECK(f32::mul(0x00000001, 0x3F000000) == 0);  // the tie goes to even
    CHECK(f32::mul(0x80000001, 0x3F000000) == 0x80000000);
    CHECK(f32::fma(0x1F800000, 0x1F800000, 1) == 0x00200001);  // 2^-64 * 2^-64 + 2^-149
    CHECK(f32::div(0x00800000, 0x40000000) == 0x00400000);
    CHECK(f32::sqrt(0x80000000) == 0x80000000);
    CHECK(f32::sqrt(1) == 0x1A3504F3);
    CHECK(f32::add(0x80000000, 0x80000000) == 0x80000000);
    CHECK(f32::add(0x80000000, 0) == 0);
    CHECK(f64::fma(1, 0x3FF0000000000000, 1) == 2);
}

TEST_CASE("fp32: the test process has the default floating-point mode") { CHECK(mxcsr_is_default()); }
