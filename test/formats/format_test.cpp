#include <catch2/catch.hpp>
#include <limits>

#include "formats/convert.hpp"

using namespace bitreplay;

TEST_CASE("format: every name of the table leads to its row, and only those") {
    int names = 0;
    for (const NamedFormat& row : formats) {
        for (const std::string_view name : {row.name, row.ptx, row.safetensors, row.torch}) {
            if (name.empty()) continue;
            REQUIRE(find_format(name) != nullptr);
            CHECK(find_format(name)->format == row.format);
            ++names;
        }
        CHECK(named(row.format).name == row.name);
    }
    CHECK(names == 36);
    CHECK(find_format("") == nullptr);
    CHECK(find_format("BFloat16") == nullptr);
    CHECK(find_format("float8_e4m3") == nullptr);
}

TEST_CASE("format: limits of each format as its specification prints them") {
    struct Row {
        Format format;
        int storage, min_exponent, max_exponent;
        std::uint64_t max_finite, nan;
    };
    const Row rows[] = {
        {fp64, 64, -1022, 1023, 0x7FEFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF},
        {fp32, 32, -126, 127, 0x7F7FFFFF, 0x7FFFFFFF},
        {tf32, 32, -126, 127, 0x7F7FE000, 0x7FFFFFFF},
        {fp16, 16, -14, 15, 0x7BFF, 0x7FFF},
        {bf16, 16, -126, 127, 0x7F7F, 0x7FFF},
        {e5m2, 8, -14, 15, 0x7B, 0x7F},
        {e4m3, 8, -6, 8, 0x7E, 0x7F},
        {e3m2, 6, -2, 4, 0x1F, 0},
        {e2m3, 6, 0, 2, 0x1F, 0},
        {e2m1, 4, 0, 2, 0x7, 0},
        {e8m0, 8, -127, 127, 0xFE, 0xFF},
    };
    CHECK(std::size(rows) == formats.size());
    for (const Row& row : rows) {
        INFO(named(row.format).name);
        CHECK(row.format.storage_bits() == row.storage);
        CHECK(row.format.min_exponent() == row.min_exponent);
        CHECK(row.format.max_exponent() == row.max_exponent);
        CHECK(row.format.max_finite() == row.max_finite);
        CHECK(row.format.canonical_nan() == row.nan);
    }
}

TEST_CASE("round_pack: the four roundings on both sides of a tie") {
    struct Row {
        std::uint64_t magnitude;  // in units of 2^-9: bf16 keeps 7 fraction bits, so 4 is one unit in the last place
        std::uint64_t nearest, zero, down, up, negative_down, negative_up;
    };
    const Row rows[] = {
        {512, 0x3F80, 0x3F80, 0x3F80, 0x3F80, 0xBF80, 0xBF80},
        {513, 0x3F80, 0x3F80, 0x3F80, 0x3F81, 0xBF81, 0xBF80},
        {514, 0x3F80, 0x3F80, 0x3F80, 0x3F81, 0xBF81, 0xBF80},  // tie to even, down
        {515, 0x3F81, 0x3F80, 0x3F80, 0x3F81, 0xBF81, 0xBF80},
        {518, 0x3F82, 0x3F81, 0x3F81, 0x3F82, 0xBF82, 0xBF81},   // tie to even, up
        {1022, 0x4000, 0x3FFF, 0x3FFF, 0x4000, 0xC000, 0xBFFF},  // carry into the exponent
    };
    for (const Row& row : rows) {
        const auto round = [&](bool negative, Rounding r) {
            return round_pack(bf16, {negative, row.magnitude, -9}, {.rounding = r});
        };
        CHECK(round(false, Rounding::nearest_even) == row.nearest);
        CHECK(round(true, Rounding::nearest_even) == (0x8000 | row.nearest));
        CHECK(round(false, Rounding::toward_zero) == row.zero);
        CHECK(round(true, Rounding::toward_zero) == (0x8000 | row.zero));
        CHECK(round(false, Rounding::down) == row.down);
        CHECK(round(false, Rounding::up) == row.up);
        CHECK(round(true, Rounding::down) == row.negative_down);
        CHECK(round(true, Rounding::up) == row.negative_up);
    }
}

TEST_CASE("round_pack: what overflows, by rounding and rule") {
    const Exact huge{false, 1, 200}, minus{true, 1, 200};
    CHECK(round_pack(fp32, huge) == 0x7F800000);
    CHECK(round_pack(fp32, huge, {Rounding::toward_zero, Overflow::ieee, -1}) == 0x7F7FFFFF);
    CHECK(round_pack(fp32, huge, {Rounding::toward_zero, Overflow::infinity, -1}) == 0x7F800000);
    CHECK(round_pack(fp32, huge, {Rounding::down, Overflow::ieee, -1}) == 0x7F7FFFFF);
    CHECK(round_pack(fp32, minus, {Rounding::down, Overflow::ieee, -1}) == 0xFF800000);
    CHECK(round_pack(fp32, minus, {Rounding::up, Overflow::ieee, -1}) == 0xFF7FFFFF);
    CHECK(round_pack(fp32, minus, {Rounding::nearest_even, Overflow::saturate, -1}) == 0xFF7FFFFF);
    // The largest number with 13 fraction bits, not the largest fp32.
    CHECK(round_pack(fp32, huge, {Rounding::toward_zero, Overflow::ieee, 13}) == 0x7F7FFC00);
    CHECK(round_pack(fp32, huge, {Rounding::toward_zero, Overflow::infinity, 13}) == 0x7F800000);
    CHECK(round_pack(e4m3, huge) == 0x7F);
    CHECK(round_pack(e4m3, minus) == 0xFF);
    CHECK(round_pack(e4m3, {false, 464, 0}) == 0x7E);  // the tie between 448 and the code of NaN
    CHECK(round_pack(e4m3, {false, 465, 0}) == 0x7F);
    CHECK(round_pack(e5m2, {false, 61440, 0}) == 0x7C);  // the tie between 57344 and infinity
    CHECK(round_pack(e2m1, huge) == 0x7);
    CHECK(round_pack(e2m1, {true, 5, 0}) == 0xE);  // the tie between 4 and 6
}

TEST_CASE("round_pack: underflow is gradual and keeps the sign") {
    CHECK(round_pack(fp32, {false, 1, -149}) == 1);
    CHECK(round_pack(fp32, {false, 1, -150}) == 0);
    CHECK(round_pack(fp32, {false, 3, -151}) == 1);
    CHECK(round_pack(fp32, {true, 1, -500}) == 0x80000000);
    CHECK(round_pack(fp32, {true, 1, -500}, {.rounding = Rounding::down}) == 0x80000001);
    CHECK(round_pack(fp32, {true, 0, 0}) == 0x80000000);
    CHECK(round_pack(fp32, {false, 0x7FFFFF, -149}, {.keep = 13}) == 0x00800000);
    CHECK(round_pack(fp32, {false, 0x7FFFFF, -149}, {.rounding = Rounding::toward_zero, .keep = 13}) == 0x007FFC00);
    CHECK(round_pack(fp32, {false, 0x3FF, -149}, {.rounding = Rounding::toward_zero, .keep = 13}) == 0);
}

TEST_CASE("round_pack: every exponent and 128-bit magnitude has an answer") {
    constexpr int least = std::numeric_limits<int>::min(), most = std::numeric_limits<int>::max();
    constexpr Uint128 all = ~Uint128{0};
    for (const NamedFormat& row : formats) {
        const Format& f = row.format;
        const std::uint64_t large = round_pack(f, {false, 1, 2000});
        CHECK(round_pack(f, {false, 1, most}) == large);
        CHECK(round_pack(f, {false, all, most}) == large);
        CHECK(round_pack(f, {false, all, least}) == 0);
        CHECK(round_pack(f, {false, 1, least}) == 0);
        CHECK(round_pack(f, {false, all, -128}) == round_pack(f, {false, 1, 0}));
        CHECK(round_pack(f, {false, Uint128{1} << 127, -127}, {.keep = 1000}) == round_pack(f, {false, 1, 0}));
    }
    static_assert(round_pack(fp32, {true, ~Uint128{0}, std::numeric_limits<int>::min()}) == 0x80000000);
}

TEST_CASE("round_pack: e8m0 has powers of two only, no zero and no sign") {
    CHECK(round_pack(e8m0, {false, 1, 0}) == 127);
    CHECK(round_pack(e8m0, {false, 3, -1}) == 128);  // the tie between 1 (odd code) and 2
    CHECK(round_pack(e8m0, {false, 3, 0}) == 128);   // the tie between 2 and 4 (odd code)
    CHECK(round_pack(e8m0, {false, 5, -2}) == 127);
    CHECK(round_pack(e8m0, {false, 5, -2}, {.rounding = Rounding::up}) == 128);
    CHECK(round_pack(e8m0, {false, 0, 0}) == 0);
    CHECK(round_pack(e8m0, {false, 1, -127}) == 0);
    CHECK(round_pack(e8m0, {false, 1, -140}, {.rounding = Rounding::up}) == 0);
    CHECK(round_pack(e8m0, {true, 1, 0}) == 0xFF);
    CHECK(round_pack(e8m0, {false, 1, 127}) == 0xFE);
    CHECK(round_pack(e8m0, {false, 1, 128}) == 0xFF);
    CHECK(round_pack(e8m0, {false, 1, 128}, {.overflow = Overflow::saturate}) == 0xFE);
}

TEST_CASE("decode: hand-picked codes") {
    CHECK(decode(fp32, 0x80000000).kind == Kind::zero);
    CHECK(decode(fp32, 0x80000000).negative);
    CHECK(decode(fp32, 0xFF800000).kind == Kind::infinity);
    CHECK(decode(tf32, 0x3F801FFF).significand == 0x400);  // the padding is ignored
    CHECK(decode(e5m2, 0x7C).kind == Kind::infinity);
    CHECK(decode(e5m2, 0x7D).kind == Kind::nan);
    CHECK(decode(e2m1, 0x9).significand == 1);
    CHECK(decode(fp64, 1).exponent == -1022);
    CHECK(convert(bf16, fp32, 0xFF81) == 0x7FFFFFFF);
    CHECK(convert(fp32, tf32, 0x3F801000) == 0x3F800000);
    CHECK(convert(fp32, tf32, 0x3F803000) == 0x3F804000);
    CHECK(convert(fp32, e8m0, 0xFF800000) == 0xFF);
    CHECK(convert(fp64, fp32, 0x3FF0000010000000) == 0x3F800000);
    CHECK(convert(fp64, fp32, 0x3FF0000030000000) == 0x3F800002);
}
