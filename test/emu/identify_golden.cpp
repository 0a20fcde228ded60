// identify on outputs of a GPU whose kernels and splits were logged.

#include "test/emu/identify_cases.hpp"

using namespace bitreplay;

TEST_CASE("identify: captured products with FP32 outputs are the logged split on Hopper and nothing else") {
    // case_053, case_091 to case_093: splits 2, 5, 3, 2.
    const Manifest manifest = load_manifest(test::testdata() / "h200/linear/gemm.json");
    const auto found = test::check_identified({}, [&](std::size_t i) { return manifest.ops[i].id == "case_053" || manifest.ops[i].id == "case_092"; });
    CHECK(found.cases == 2);
    CHECK(found.alone == 2);
}

TEST_CASE("identify: every eighth captured product is the logged split, among what an H200 can do") {
    const auto found = test::check_identified({.gpu = "h200", .kernel = {}, .fixed = {}}, [](std::size_t i) { return i % 8 == 3; });
    CHECK(found.cases == 10);
    CHECK(found.alone >= 1);
}
