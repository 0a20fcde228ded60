#include "reduction_trees/torch_reduce.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/reduction_trees/symbols.hpp"

using namespace bitreplay;
using test::left_to_right;
using test::loads_of;
using test::symbolic;
using test::Symbols;

namespace {

TorchReduce launch(std::int64_t rows, std::int64_t width, int vector_width = 4) {
    return torch_reduce({rows, width, vector_width, 132, 2048});
}

}  // namespace

TEST_CASE("torch_reduce: launch shapes") {
    // The block of the decoder layer capture: mean over 1024 of 192 rows ran as grid 12, block (32, 16).
    const TorchReduce norm = launch(192, 1024);
    CHECK(norm.vectorised);
    CHECK((norm.block_x == 32 && norm.block_y == 16));
    CHECK_FALSE(norm.split_y);
    CHECK(norm.threads == 32);
    // One long row: the whole block and several blocks share it.
    const TorchReduce one = launch(1, 5000000);
    CHECK((one.block_x == 512 && one.block_y == 1 && one.split_y));
    CHECK(one.ctas == 528);
    CHECK(launch(1, 127).vectorised == false);
    CHECK(launch(1, 128).block_x == 32);
}

TEST_CASE("torch_reduce: narrow rows go one element per thread, then a halving tree") {
    CHECK(symbolic(lane_order(launch(5, 1), 0)) == "0");
    CHECK(symbolic(lane_order(launch(5, 4), 0)) == "((0+2)+(1+3))");
    // Seven elements on four threads: thread 0 has 0 and 4, each in an accumulator of its own.
    CHECK(symbolic(lane_order(launch(5, 7), 0)) == "(((0+4)+(2+6))+((1+5)+3))");
}

TEST_CASE("torch_reduce: each thread's accumulators are added left to right") {
    const TorchReduce two{.width = 19,
                          .vector_width = 4,
                          .vectorised = false,
                          .block_x = 2,
                          .block_y = 1,
                          .split_y = false,
                          .ctas = 1,
                          .threads = 2};
    const std::string thread0 = left_to_right({"((0+8)+16)", "((2+10)+18)", "(4+12)", "(6+14)"});
    const std::string thread1 = left_to_right({"((1+9)+17)", "(3+11)", "(5+13)", "(7+15)"});
    CHECK(symbolic(lane_order(two, 0)) == Symbols::sum(thread0, thread1));
}

TEST_CASE("torch_reduce: vector loads; a misaligned head and the tail go to accumulator 0") {
    const TorchReduce four{.width = 30,
                           .vector_width = 4,
                           .vectorised = true,
                           .block_x = 4,
                           .block_y = 1,
                           .split_y = false,
                           .ctas = 1,
                           .threads = 4};
    // Three elements past a boundary: element 0 is the last one before the next boundary and belongs to thread 3.
    const std::string t0 = left_to_right({"((1+17)+29)", "(2+18)", "(3+19)", "(4+20)"});
    const std::string t1 = left_to_right({"(5+21)", "(6+22)", "(7+23)", "(8+24)"});
    const std::string t2 = left_to_right({"(9+25)", "(10+26)", "(11+27)", "(12+28)"});
    const std::string t3 = left_to_right({"(0+13)", "14", "15", "16"});
    CHECK(symbolic(lane_order(four, 3)) == Symbols::sum(Symbols::sum(t0, t2), Symbols::sum(t1, t3)));
    // On a boundary: two elements are left over, one for thread 0 and one for thread 1.
    const std::string u0 = left_to_right({"((0+16)+28)", "(1+17)", "(2+18)", "(3+19)"});
    const std::string u1 = left_to_right({"((4+20)+29)", "(5+21)", "(6+22)", "(7+23)"});
    const std::string u2 = left_to_right({"(8+24)", "(9+25)", "(10+26)", "(11+27)"});
    const std::string u3 = left_to_right({"12", "13", "14", "15"});
    CHECK(symbolic(lane_order(four, 0)) == Symbols::sum(Symbols::sum(u0, u2), Symbols::sum(u1, u3)));
}

TEST_CASE("torch_reduce: a block sums over x, then y; across blocks over y, then x") {
    const TorchReduce split{.width = 12,
                            .vector_width = 4,
                            .vectorised = false,
                            .block_x = 2,
                            .block_y = 2,
                            .split_y = true,
                            .ctas = 3,
                            .threads = 12};
    CHECK(symbolic(lane_order(split, 0)) == "((((0+1)+(2+3))+((8+9)+(10+11)))+((4+5)+(6+7)))");
}

TEST_CASE("torch_reduce: every element is loaded once, whatever the shape") {
    int cases = 0;
    for (const std::int64_t rows : {1, 2, 3, 13, 257, 3000})
        for (const std::int64_t width : {1, 2, 31, 127, 128, 129, 257, 1000, 4097, 16384, 151936})
            for (const int v : {4, 8})
                for (std::int64_t shift = 0; shift < v; ++shift) {
                    const LaneOrder order = lane_order(launch(rows, width, v), shift);
                    const std::vector<int> seen = loads_of(order, width);
                    CHECK(std::count(seen.begin(), seen.end(), 1) == width);
                    ++cases;
                }
    CHECK(cases == 6 * 11 * 12);
}
