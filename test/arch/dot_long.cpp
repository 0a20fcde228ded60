#include <catch2/catch.hpp>

#include "test/arch/dot_cases.hpp"

using namespace bitreplay;

TEST_CASE("dot: every rule of every GPU against the exact oracle, 10^7 random cases each") {
    constexpr std::uint64_t per_rule = 10'000'000;
    std::uint64_t stream = 100'000;
    const auto rules = test::distinct_rules();
    for (const test::DistinctRule& d : rules) {
        test::DotTally tally;
        test::compare_with_oracle(d, per_rule, stream++, tally);
        INFO(describe(d) << ": " << tally.different << " of " << tally.compared);
        CHECK(tally.different == 0);
        CHECK(tally.compared >= per_rule);
    }
    CHECK(rules.size() >= 80);
}
