#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "test/arch/dot_cases.hpp"

using namespace bitreplay;

TEST_CASE("dot: every rule of every GPU against the exact oracle, random cases") {
    const auto rules = test::distinct_rules();
    const char* env = std::getenv("N");
    const std::uint64_t per_rule = env ? std::strtoull(env, nullptr, 0) : 200'000;
    std::uint64_t stream = 1;
    test::DotTally all;
    for (const test::DistinctRule& d : rules) {
        test::DotTally tally;
        test::compare_with_oracle(d, per_rule, stream++, tally);
        std::string types;
        for (const Format* f : {&d.rule->types.d, &d.rule->types.a, &d.rule->types.b})
            types += std::string(named(*f).ptx) + " ";
        INFO(d.rule->family << " " << types << "on " << d.gpus << ": " << tally.different << " of " << tally.compared);
        CHECK(tally.different == 0);
        CHECK(tally.compared >= per_rule);
        CHECK(tally.zero > per_rule / 10'000);
        CHECK(tally.cancelled > per_rule / 8);
        all.compared += tally.compared;
        all.nan += tally.nan;
        all.infinite += tally.infinite;
        all.subnormal += tally.subnormal;
    }
    CHECK(rules.size() >= 80);
    CHECK(all.compared >= rules.size() * per_rule);
    CHECK(all.nan > all.compared / 1000);
    CHECK(all.infinite > all.compared / 1000);
    CHECK(all.subnormal > all.compared / 1000);
    std::cout << rules.size() << " rules, " << all.compared << " cases; nan " << all.nan << " inf " << all.infinite
              << " sub " << all.subnormal << "\n";
}
