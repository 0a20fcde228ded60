#include "reduction_trees/torch_norm.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/reduction_trees/symbols.hpp"

using namespace bitreplay;

namespace {
std::string e(std::int64_t i) { return std::to_string(i); }

std::string by_warps(const std::vector<std::string>& threads) {
    std::vector<std::string> warps;
    for (std::size_t first = 0; first < threads.size(); first += 32)
        warps.push_back(test::halving({threads.begin() + static_cast<std::ptrdiff_t>(first),
                                       threads.begin() + static_cast<std::ptrdiff_t>(first + 32)}));
    return test::halving(warps);
}
}  // namespace

TEST_CASE("torch_norm: 128 threads take vectors of four, then halve within and across four warps") {
    CHECK(test::symbolic(torch_norm_order(8, true)) == "((((0+1)+2)+3)+(((4+5)+6)+7))");
    std::vector<std::string> threads;
    for (int t = 0; t < 128; ++t) {
        std::vector<std::string> terms{e(4 * t), e(4 * t + 1), e(4 * t + 2), e(4 * t + 3)};
        if (t < 2)
            for (int k = 0; k < 4; ++k) terms.push_back(e(512 + 4 * t + k));
        threads.push_back(test::left_to_right(terms));
    }
    CHECK(test::symbolic(torch_norm_order(520, true)) == by_warps(threads));
}

TEST_CASE("torch_norm: otherwise 512 threads take single elements") {
    CHECK(test::symbolic(torch_norm_order(3, false)) == "((0+2)+1)");
    std::vector<std::string> threads;
    for (int t = 0; t < 512; ++t) threads.push_back(t < 5 ? test::left_to_right({e(t), e(t + 512)}) : e(t));
    CHECK(test::symbolic(torch_norm_order(517, false)) == by_warps(threads));
}

TEST_CASE("torch_norm: every element is loaded once, into a prefix of the lanes") {
    int cases = 0;
    for (const std::int64_t width : {4, 8, 128, 511, 512, 513, 1000, 2560, 11008})
        for (const bool vectorised : {false, true}) {
            if (vectorised && width % 4 != 0) continue;
            const LaneOrder order = torch_norm_order(width, vectorised);
            const std::vector<int> seen = test::loads_of(order, width);
            CHECK(std::count(seen.begin(), seen.end(), 1) == width);
            CHECK(std::all_of(order.loads.begin(), order.loads.end(), [](const LaneLoad& load) {
                return load.lane == 0 && load.lane_stride == 1;
            }));
            ++cases;
        }
    CHECK(cases == 16);
}
