#include <tbb/parallel_for.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "formats/convert.hpp"
#include "test/formats/fp32_steps.hpp"

using namespace bitreplay;

TEST_CASE("convert: fp32 to every narrower format, all 2^32 codes") {
    std::atomic<std::uint64_t> compared = 0, different = 0, first_bad = 0;
    for (const NamedFormat& row : formats) {
        if (row.format == fp64 || row.format == fp32) continue;
        for (const bool negative : {false, true}) {
            const test::Fp32Expectation want(row.format, negative, {});
            tbb::parallel_for(0U, 2048U, [&](std::uint32_t part) {
                const std::uint32_t begin = part << 20;
                std::size_t step = want.steps().find(std::min(begin, test::Fp32Steps::infinity - 1));
                std::uint64_t bad = 0;
                for (std::uint32_t i = 0; i < 1U << 20; ++i) {
                    const std::uint32_t u = begin + i;
                    if (convert(fp32, row.format, (negative ? 0x80000000U : 0U) | u) != want(u, step))
                        ++bad, first_bad = u;
                }
                compared += 1U << 20;
                different += bad;
            });
        }
    }
    INFO("a differing fp32 code: " << std::hex << first_bad);
    CHECK(different == 0);
    CHECK(compared == std::uint64_t{9} << 32);
}
