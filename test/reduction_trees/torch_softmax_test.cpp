#include "reduction_trees/torch_softmax.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/reduction_trees/symbols.hpp"

using namespace bitreplay;
using Kernel = TorchSoftmax::Kernel;

namespace {

std::string e(std::int64_t i) { return std::to_string(i); }

/// What a block of 1024 threads does with its threads' sums: 32 warps, then the 32 warp sums.
std::string block(const std::vector<std::string>& threads) {
    std::vector<std::string> warps;
    for (int warp = 0; warp < 32; ++warp)
        warps.push_back(test::halving({threads.begin() + 32 * warp, threads.begin() + 32 * (warp + 1)}));
    return test::halving(warps);
}

}  // namespace

TEST_CASE("torch_softmax: kernel by width, type and alignment") {
    const auto kernel = [](std::int64_t width, int bytes) { return torch_softmax(width, bytes, true).kernel; };
    CHECK(kernel(1, 4) == Kernel::warp);
    CHECK(kernel(2048, 4) == Kernel::warp);
    CHECK(kernel(2049, 4) == Kernel::registers);
    CHECK(kernel(9216, 4) == Kernel::registers);
    CHECK(kernel(9217, 4) == Kernel::vectors);
    CHECK(kernel(9220, 4) == Kernel::shared);
    CHECK(kernel(12252, 4) == Kernel::shared);
    CHECK(kernel(12256, 4) == Kernel::vectors);
    CHECK(kernel(12256, 2) == Kernel::shared);
    CHECK(kernel(24504, 2) == Kernel::shared);
    CHECK(kernel(24512, 2) == Kernel::vectors);
    CHECK(torch_softmax(9220, 4, false).kernel == Kernel::vectors);
    CHECK(torch_softmax(32000, 2, true).vector_width == 8);
}

TEST_CASE("torch_softmax: a warp takes strided elements and halves") {
    CHECK(test::symbolic(lane_order(torch_softmax(1, 4, true), 0)) == "0");
    CHECK(test::symbolic(lane_order(torch_softmax(3, 4, true), 0)) == "((0+2)+1)");
    std::vector<std::string> lanes;
    for (int lane = 0; lane < 32; ++lane)
        lanes.push_back(lane < 6 ? test::left_to_right({e(lane), e(lane + 32), e(lane + 64)})
                                 : test::left_to_right({e(lane), e(lane + 32)}));
    CHECK(test::symbolic(lane_order(torch_softmax(70, 4, true), 0)) == test::halving(lanes));
}

TEST_CASE("torch_softmax: blocks in registers, in shared memory, and by vectors with a misaligned start") {
    std::vector<std::string> threads;
    for (int t = 0; t < 1024; ++t)
        threads.push_back(test::left_to_right({e(t), e(t + 1024), t < 2 ? e(t + 2048) : ""}));
    CHECK(test::symbolic(lane_order(torch_softmax(2050, 4, true), 0)) == block(threads));

    threads.clear();
    for (int t = 0; t < 1024; ++t) {
        std::vector<std::string> terms;
        for (int chunk = 0; chunk < 3; ++chunk)
            for (int k = 0; k < 4; ++k)
                if (const int i = (chunk * 1024 + t) * 4 + k; i < 9220) terms.push_back(e(i));
        threads.push_back(test::left_to_right(terms));
    }
    CHECK(test::symbolic(lane_order(torch_softmax(9220, 4, true), 0)) == block(threads));

    // 9217 elements, three past a boundary: threads 3 to 1023 take one element each, then 2 rounds of whole vectors
    // (8192 elements), then the last 4 one by one.
    threads.clear();
    for (int t = 0; t < 1024; ++t) {
        std::vector<std::string> terms;
        if (t >= 3) terms.push_back(e(t - 3));
        for (int chunk = 0; chunk < 2; ++chunk)
            for (int k = 0; k < 4; ++k) terms.push_back(e(1021 + (chunk * 1024 + t) * 4 + k));
        if (t < 4) terms.push_back(e(1021 + 8192 + t));
        threads.push_back(test::left_to_right(terms));
    }
    CHECK(test::symbolic(lane_order(torch_softmax(9217, 4, true), 3)) == block(threads));
}

TEST_CASE("torch_softmax: every element is loaded once") {
    int cases = 0;
    for (const std::int64_t width : {1, 2, 31, 33, 1024, 2048, 2049, 9216, 9217, 9224, 12256, 24573, 151937})
        for (const int bytes : {2, 4})
            for (std::int64_t shift = 0; shift < 16 / bytes; ++shift) {
                const std::vector<int> seen =
                    test::loads_of(lane_order(torch_softmax(width, bytes, true), shift), width);
                CHECK(std::count(seen.begin(), seen.end(), 1) == width);
                ++cases;
            }
    CHECK(cases == 13 * 12);
}
