#include "emu/torch_cpu.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "emu/io/safetensors.hpp"
#include "formats/error.hpp"
#include "test/emu/function_cases.hpp"

using namespace bitreplay;

TEST_CASE("torch cpu: 20 captured tables of rotary frequencies") {
    // The bases and dimensions of the captures; the tables are committed, so that they are compared everywhere.
    const SafetensorsFile file = SafetensorsFile::open(test::testdata() / "h200/math/rotary.safetensors");
    int tables = 0, values = 0, different = 0, not_correctly_rounded = 0;
    for (const std::string& name : file.names()) {
        const std::string rest = name.substr(8);
        REQUIRE(name.starts_with("inv_cpu_"));
        const float theta = std::stof(rest);
        const int dim = std::stoi(rest.substr(rest.find('_') + 1));
        const std::vector<std::uint32_t> got = torch_cpu::inverse_frequencies(test::fp32_bits(theta), dim);
        const Tensor want = file.tensor(name);
        REQUIRE(want.size() == static_cast<std::int64_t>(got.size()));
        for (std::size_t i = 0; i < got.size(); ++i, ++values) {
            const auto code = static_cast<std::uint32_t>(want.get(static_cast<std::int64_t>(i)));
            different += got[i] != code ? 1 : 0;
            const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
            const auto power = static_cast<float>(std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
            not_correctly_rounded += test::fp32_bits(1 / power) != code ? 1 : 0;
        }
        ++tables;
    }
    CHECK(tables == 20);
    CHECK(values == 1248);
    CHECK(different == 0);
    CHECK(not_correctly_rounded == 8);  // the tables do tell the algorithm from an exact power
}

TEST_CASE("torch cpu: outside the modelled range pow is refused") {
    constexpr std::uint32_t one = 0x3F800000, two = 0x40000000;
    CHECK(torch_cpu::powf(two, 0x40400000) == 0x41000000);
    CHECK(torch_cpu::powf(two, 0) == one);
    for (const std::uint32_t x : {0U, 1U, 0x80000000U, 0xC0000000U, 0x7F800000U, 0x7FC00000U}) CHECK_THROWS_AS(torch_cpu::powf(x, one), NotModelled);
    CHECK_THROWS_AS(torch_cpu::powf(two, 0x7F800000), NotModelled);
    CHECK_THROWS_AS(torch_cpu::powf(two, 0x43480000), NotModelled);
    CHECK_THROWS_AS(torch_cpu::inverse_frequencies(two, 3), InputError);
    CHECK_THROWS_AS(torch_cpu::inverse_frequencies(two, 0), InputError);
}
