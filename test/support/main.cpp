#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "arch/fp32.hpp"
#include "test/support/support.hpp"

int main(int argc, char** argv) {
    if (!bitreplay::mxcsr_is_default()) {
        std::cerr << "MXCSR is not at its default; floating-point results would be wrong\n";
        return 2;
    }
    const int failed = Catch::Session().run(argc, argv);
    return failed == 0 && bitreplay::test::was_skipped() ? 77 : failed;  // ctest reports 77 as skipped
}
