#include "test/emu/identify_cases.hpp"

using namespace bitreplay;

TEST_CASE("identify: all 77 captured products are the logged split") {
    const auto found = test::check_identified({}, [](std::size_t) { return true; });
    CHECK(found.cases == 77);
    CHECK(found.settled >= 1);
}
