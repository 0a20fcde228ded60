#include <catch2/catch.hpp>

#include "test/emu/function_cases.hpp"

using namespace bitreplay;

TEST_CASE("cuda math: all 2^32 inputs of 16 PyTorch functions") {
    const Mufu& unit = mufu(find_gpu("h200"));
    const nlohmann::json functions = test::read_json(test::testdata() / "h200/math/full_range.json");
    REQUIRE(functions.size() == 16);
    for (const auto& [name, hashes] : functions.items()) {
        DYNAMIC_SECTION(name) {  // one function alone: test_long "cuda math: all*" -c erf
            const cuda::Unary* fn = cuda::find_unary(name);
            REQUIRE(fn != nullptr);
            REQUIRE(hashes.size() == 256);
            for (std::uint32_t slice = 0; slice < 256; ++slice) {
                INFO("slice " << slice);
                CHECK(test::slice_hash(unit, *fn, slice) == test::hex(hashes[slice]));
            }
        }
    }
}

TEST_CASE("cuda math: every block of 9 sweeps of torch.pow") {
    const Mufu& unit = mufu(find_gpu("h200"));
    const nlohmann::json entries = test::read_json(test::testdata() / "h200/functions/functions.json");
    int compared = 0;
    for (const nlohmann::json& entry : entries) {
        const std::string name = entry["name"];
        if (!name.starts_with("pow_")) continue;
        const test::PowSweep sweep(name);
        for (std::uint64_t b = 0; b < 256; ++b) {
            INFO(name << " block " << b);
            CHECK(sweep.hash(unit, b << 16, 1 << 16) == test::hex(entry["hashes"][b]));
            ++compared;
        }
    }
    CHECK(compared == 9 * 256);
}
