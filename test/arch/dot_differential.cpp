#include <catch2/catch.hpp>

#include "test/arch/dot_cases.hpp"

using namespace bitreplay;

TEST_CASE("dot: every rule of every GPU against the exact oracle, 10^6 random cases each") {
    constexpr std::uint64_t per_rule = 1'000'000;
    const auto rules = test::distinct_rules();
    std::uint64_t stream = 1, compared = 0, nan = 0, infinite = 0, subnormal = 0;
    for (const test::DistinctRule& d : rules) {
        test::DotTally tally;
        test::compare_with_oracle(d, per_rule, stream++, tally);
        INFO(describe(d) << ": " << tally.different << " of " << tally.compared);
        CHECK(tally.different == 0);
        CHECK(tally.compared >= per_rule);
        CHECK(tally.zero > per_rule / 10'000);
        CHECK(tally.cancelled > per_rule / 8);
        compared += tally.compared;
        nan += tally.nan;
        infinite += tally.infinite;
        subnormal += tally.subnormal;
    }
    CHECK(rules.size() >= 80);
    CHECK(compared >= rules.size() * per_rule);
    CHECK(nan > compared / 1000);
    CHECK(infinite > compared / 1000);
    CHECK(subnormal > compared / 1000);
}
