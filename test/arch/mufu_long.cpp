#include <atomic>
#include <catch2/catch.hpp>

#include "arch/mufu.hpp"
#include "emu/parallel.hpp"
#include "test/support/sweep_hash.hpp"

using namespace bitreplay;

TEST_CASE("mufu: all 2^32 inputs of 13 instructions") {
    const Mufu& unit = mufu_table(find_gpu("h200").mufu->table);
    const nlohmann::json functions = test::read_json(test::testdata() / "h200/mufu/full_range_hashes.json")["functions"];
    int compared = 0;
    for (const auto& [ptx, expected] : functions.items()) {
        const MufuForm& form = find_mufu_form(ptx);
        std::atomic<std::uint64_t> hash = 0, nonzero = 0;
        parallel_for(4096, 1, [&](std::int64_t begin, std::int64_t end) {
            std::uint64_t sum = 0, count = 0;
            for (auto u = static_cast<std::uint64_t>(begin) << 20; u < static_cast<std::uint64_t>(end) << 20; ++u) {
                const auto x = static_cast<std::uint32_t>(u);
                const std::uint32_t y = (unit.*form.function)(x);
                sum += std::uint64_t{y ^ (x * 0x9E3779B1U)} * 0x9E3779B97F4A7C15U;
                count += y != 0 ? 1 : 0;
            }
            hash += sum;
            nonzero += count;
        });
        INFO(ptx);
        CHECK(hash == test::hex(expected["hash"]));
        CHECK(nonzero == expected["nonzero"].get<std::uint64_t>());
        ++compared;
    }
    CHECK(compared == 13);
}
