#include "emu/io/synthetic.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// n of captures/README.md, written as the page says it.
std::int64_t sum_of_fields(std::uint64_t seed, std::uint64_t i) {
    std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15U;
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9U;
    z ^= z >> 27;
    z *= 0x94D049BB133111EBU;
    z ^= z >> 31;
    std::int64_t n = 0;
    for (int field = 0; field < 4; ++field) n += static_cast<std::int16_t>(z >> (16 * field));
    return n;
}

std::uint64_t expected(const SyntheticSpec& spec, std::uint64_t i) {
    const std::int64_t n = sum_of_fields(spec.seed, i);
    const auto value =
        static_cast<std::uint32_t>(round_pack(fp32, {n < 0, static_cast<Uint128>(n < 0 ? -n : n), spec.exp2 - 15}));
    return convert(fp32, spec.format, spec.plus ? f32::add(value, *spec.plus) : value);
}

bool same(const Tensor& x, const Tensor& y) {
    return x.format() == y.format() && x.shape() == y.shape() &&
           std::memcmp(x.bytes().data(), y.bytes().data(), x.bytes().size()) == 0;
}

}  // namespace

TEST_CASE("synthetic: small (direct) and large (table) tensors follow the definition in every format") {
    int compared = 0;
    for (const NamedFormat& row : formats)
        for (const std::int64_t rows : {3, 1500})
            for (const bool plus : {false, true})
                for (const int exp2 : {-5, 3, -140 + 20}) {
                    SyntheticSpec spec{
                        .seed = 0xFFFFFFFFFFFFFF00U, .exp2 = exp2, .format = row.format, .shape = {rows, 100}};
                    if (plus) spec.plus = 0x3F800000;
                    const Tensor t = synthetic(spec);
                    int wrong = 0;
                    for (std::int64_t i = 0; i < t.size(); i += rows == 3 ? 1 : 97, ++compared)
                        wrong += t.get(i) != expected(spec, static_cast<std::uint64_t>(i)) ? 1 : 0;
                    INFO(row.name << " " << rows << " " << exp2);
                    CHECK(wrong == 0);
                }
    CHECK(compared == 11 * 2 * 3 * (300 + 1547));
}

TEST_CASE("synthetic: values and rows of one tensor, known bits") {
    // n of seed 0: splitmix64's first output is e220a8397b1dcdaf; fields e220, a839, 7b1d, cdaf sum to -11483.
    CHECK(sum_of_fields(0, 0) == -11483);
    CHECK(synthetic({.shape = {1}}).get(0) == std::bit_cast<std::uint32_t>(-11483.0F / 32768.0F));
}

TEST_CASE("synthetic: rows are the rows of the whole") {
    for (const Mirror mirror : {Mirror::none, Mirror::even, Mirror::odd}) {
        const SyntheticSpec spec{.seed = 7, .mirror = mirror, .format = bf16, .shape = {6, 50, 33}};
        const Tensor whole = synthetic(spec);
        const std::vector<std::int64_t> rows{299, 0, 17, 17};
        const Tensor some = synthetic_rows(spec, rows);
        CHECK(some.shape() == std::vector<std::int64_t>{4, 33});
        for (std::size_t r = 0; r < rows.size(); ++r)
            for (std::int64_t k = 0; k < 33; ++k)
                CHECK(some.get(static_cast<std::int64_t>(r) * 33 + k) == whole.get(rows[r] * 33 + k));
    }
    CHECK_THROWS_AS(synthetic_rows({.shape = {4, 2}}, std::vector<std::int64_t>{4}), InputError);
    CHECK_THROWS_AS(synthetic_rows({.shape = {4, 2}}, std::vector<std::int64_t>{-1}), InputError);
}

TEST_CASE("synthetic: mirrored rows") {
    for (const std::int64_t k : {1, 2, 7, 8}) {
        SyntheticSpec spec{.seed = 9, .format = fp16, .shape = {5, k}};
        const Tensor plain = synthetic(spec);
        spec.mirror = Mirror::even;
        const Tensor even = synthetic(spec);
        spec.mirror = Mirror::odd;
        const Tensor odd = synthetic(spec);
        for (std::int64_t r = 0; r < 5; ++r)
            for (std::int64_t i = 0; i < k; ++i) {
                const std::int64_t j = std::min(i, k - 1 - i);
                const std::uint64_t v = plain.get(r * k + j);
                CHECK(even.get(r * k + i) == v);
                CHECK(odd.get(r * k + i) == (i < k - 1 - i ? v : i > k - 1 - i ? v ^ 0x8000 : v & 0x8000));
            }
    }
}

TEST_CASE("synthetic: 53 random bits, known codes and every format") {
    const SyntheticSpec spec{.generator = Generator::u53, .seed = 2005, .format = fp64, .shape = {3, 5}};
    const Tensor t = synthetic(spec);
    CHECK(t.get(0) == 0xBFE7C953F1E2AF48U);
    CHECK(t.get(1) == 0xBFE28A70AA1C272EU);
    CHECK(t.get(2) == 0x3FD7C7C00CD73E20U);
    CHECK(t.get(14) == 0xBFE97EFD78A9AD4CU);
    SyntheticSpec narrow = spec;
    narrow.format = bf16;
    narrow.exp2 = 3;
    for (std::int64_t i = 0; i < t.size(); ++i)
        CHECK(synthetic(narrow).get(i) == convert(fp64, bf16, t.get(i) + (std::uint64_t{3} << 52)));
    const std::vector<std::int64_t> rows{2, 0};
    CHECK(synthetic_rows(spec, rows).get(4) == t.get(14));
    SyntheticSpec large = spec;
    large.shape = {300, 1000};
    CHECK(synthetic(large).get(14) == t.get(14));
}

TEST_CASE("synthetic: empty tensors, scalars and refused specifications") {
    CHECK(synthetic({.shape = {0, 5}}).size() == 0);
    CHECK(synthetic({.shape = {5, 0}}).size() == 0);
    CHECK(synthetic({.shape = {}}).get(0) == synthetic({.shape = {1}}).get(0));
    CHECK_THROWS_AS(synthetic({.exp2 = 126, .shape = {1}}), InputError);
    CHECK_THROWS_AS(synthetic({.exp2 = -135, .shape = {1}}), InputError);
    CHECK_THROWS_AS(synthetic({.shape = {-1}}), InputError);
}

TEST_CASE("synthetic: the number of threads does not matter") {
    const SyntheticSpec spec{.seed = 1, .mirror = Mirror::odd, .format = e4m3, .shape = {700, 501}};
    const Tensor many = synthetic(spec);
    set_threads(1);
    const Tensor one = synthetic(spec);
    set_threads(0);
    CHECK(same(many, one));
}
