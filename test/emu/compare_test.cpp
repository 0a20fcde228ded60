#include "emu/compare.hpp"

#include <catch2/catch.hpp>

#include "emu/parallel.hpp"
#include "formats/decode.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

TEST_CASE("compare: equal tensors, also empty ones") {
    const Tensor t(bf16, {3, 100'000});
    const Comparison same = compare(t, t);
    CHECK(same.equal());
    CHECK(same.compared == 300'000);
    CHECK(compare(Tensor(fp32, {0, 3}), Tensor(fp32, {0, 3})).compared == 0);
}

TEST_CASE("compare: every changed bit is found, with index, bits and distance") {
    for (const NamedFormat& row : formats) {
        test::Random random(static_cast<std::uint64_t>(row.format.storage_bits()));
        Tensor x(row.format, {7, 10'000});
        for (std::int64_t i = 0; i < x.size(); ++i)
            x.set(i, random.next() & ((std::uint64_t{2} << (row.format.storage_bits() - 1)) - 1));
        Tensor y(row.format, {7, 10'000});
        std::copy(x.bytes().begin(), x.bytes().end(), y.mutable_bytes().begin());
        std::vector<std::int64_t> changed{3, 16'383, 16'384, 69'999};
        for (const std::int64_t i : changed)
            y.set(i,
                  y.get(i) ^ (std::uint64_t{1} << random.below(static_cast<std::uint64_t>(row.format.storage_bits()))));
        const Comparison result = compare(x, y, {.max_first = 10});
        INFO(row.name);
        CHECK(result.compared == 70'000);
        CHECK(result.different == 4);
        REQUIRE(result.first.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) {
            CHECK(result.first[i].index == std::vector<std::int64_t>{changed[i] / 10'000, changed[i] % 10'000});
            CHECK(result.first[i].expected_bits == x.get(changed[i]));
            CHECK(result.first[i].actual_bits == y.get(changed[i]));
        }
        std::int64_t sum = 0;
        for (const std::int64_t n : result.histogram) sum += n;
        CHECK(sum == 4);
    }
}

TEST_CASE("compare: distances") {
    CHECK(ulp_distance(bf16, 0x0000, 0x8000) == 0);
    CHECK(ulp_distance(bf16, 0x0001, 0x8001) == 2);
    CHECK(ulp_distance(bf16, 0x3F80, 0x3F7F) == 1);
    CHECK(ulp_distance(bf16, 0x7F7F, 0x7F80) == 1);
    CHECK(ulp_distance(bf16, 0xBF80, 0xBF82) == 2);
    CHECK(ulp_distance(tf32, 0x3F800000, 0x3F802000) == 1);
    CHECK(ulp_distance(tf32, 0x3F800000, 0x3F800001) == 0);
    CHECK(ulp_distance(e8m0, 0x00, 0x7F) == 0x7F);
    CHECK(ulp_distance(fp64, 0xFFFFFFFFFFFFFFFFU, 0x7FFFFFFFFFFFFFFFU) == 0xFFFFFFFFFFFFFFFEU);
    // Ranks rise with the values, one by one.
    int compared = 0;
    for (std::uint64_t code = 0; code + 1 < e4m3.max_finite(); ++code, ++compared) {
        CHECK(ulp_distance(e4m3, code, code + 1) == 1);
        CHECK(ulp_distance(e4m3, code | 0x80, 0) == code);
    }
    CHECK(compared == 0x7D);
}

TEST_CASE("compare: histogram bins, signs of zero and NaNs") {
    Tensor x(fp16, {6}), y(fp16, {6});
    const std::uint64_t pairs[6][2] = {
        {0, 0x8000}, {0x3C00, 0x3C01}, {0x3C00, 0x3C03}, {0x7FFF, 0x7E00}, {0x7FFF, 0x3C00}, {1, 1}};
    for (std::int64_t i = 0; i < 6; ++i) {
        x.set(i, pairs[i][0]);
        y.set(i, pairs[i][1]);
    }
    const Comparison strict = compare(x, y);
    CHECK(strict.different == 5);
    CHECK(strict.nan_against_number == 1);
    CHECK(strict.histogram[0] == 1);
    CHECK(strict.histogram[1] == 1);
    CHECK(strict.histogram[2] == 1);
    const Comparison loose = compare(x, y, {.any_nan_equals_any_nan = true});
    CHECK(loose.different == 4);
}

TEST_CASE("compare: the first differences do not depend on the number of threads") {
    Tensor x(e5m2, {1'000, 1'000}), y(e5m2, {1'000, 1'000});
    for (std::int64_t i = 11; i < y.size(); i += 7) y.set(i, 1);
    const Comparison many = compare(x, y, {.max_first = 3});
    set_threads(1);
    const Comparison one = compare(x, y, {.max_first = 3});
    set_threads(0);
    for (const Comparison& result : {many, one}) {
        CHECK(result.different == 142'856);
        CHECK(result.histogram[1] == 142'856);
        REQUIRE(result.first.size() == 3);
        for (std::size_t i = 0; i < 3; ++i)
            CHECK(result.first[i].index == std::vector<std::int64_t>{0, 11 + 7 * static_cast<std::int64_t>(i)});
    }
    CHECK(compare(x, y, {.max_first = 0}).first.empty());
}

TEST_CASE("compare: other shapes and formats are refused") {
    CHECK_THROWS_WITH(compare(Tensor(bf16, {2, 3}), Tensor(bf16, {3, 2})),
                      "expected bf16 [2, 3] cannot be compared with bf16 [3, 2]");
    CHECK_THROWS_AS(compare(Tensor(bf16, {2}), Tensor(fp16, {2})), InputError);
}
