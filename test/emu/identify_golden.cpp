// identify on outputs of a GPU whose kernels and splits were logged.

#include "test/emu/identify_cases.hpp"

using namespace bitreplay;

TEST_CASE("identify: captured products with FP32 outputs are the logged split on Hopper and nothing else") {
    // case_053, case_091 to case_093: splits 2, 5, 3, 2.
    const Manifest manifest = load_manifest(test::testdata() / "h200/linear/gemm.json");
    const auto found = test::check_identified(
        {}, [&](std::size_t i) { return manifest.ops[i].id == "case_053" || manifest.ops[i].id == "case_092"; });
    CHECK(found.cases == 2);
    CHECK(found.settled == 2);
}

TEST_CASE("identify: every sixteenth captured product is the logged split, among what an H200 can do") {
    const auto found = test::check_identified({.gpu = "h200"}, [](std::size_t i) { return i % 16 == 3; });
    CHECK(found.cases == 5);
    CHECK(found.settled >= 1);
}

TEST_CASE("identify: a captured attention is PyTorch's build on Hopper with the split that the host rule chose") {
    const Manifest manifest = load_manifest(test::testdata() / "h200/attention/flash.json");
    const std::pair<const char*, const char*> calls[] = {{"fa_512_2_2_64_0", R"({"splits":2})"},
                                                         {"fa_1000_1_1_128_0", R"({"splits":8})"},
                                                         {"fa_200_2_1_128_1", R"({"splits":2})"}};
    for (const auto& [id, params] : calls) {
        const IdentifyReport report = identify(recorded_op(manifest, id), {});
        INFO(id);
        REQUIRE(report.found.size() == 1);
        REQUIRE(report.found.front().names.size() == 1);
        const CandidateName& name = report.found.front().names.front();
        CHECK(name.kernel == "torch.flash2");
        CHECK(name.params == params);
        CHECK(name.gpus == std::vector<std::string>{"gh200", "h100", "h200"});
        CHECK(report.compared == report.recorded);
        CHECK(report.separation > 0);
    }
}
