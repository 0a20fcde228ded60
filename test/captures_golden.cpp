// Replays every manifest that tools/manifests/make_manifests.py derives from the captures beside the repository. Golden
// cases inside testdata/ need no code: CMake runs `bitreplay replay` on each manifest there.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

struct Totals {
    int manifests = 0;
    std::int64_t checks = 0, compared = 0;
};

/// Makes the manifests of one folder of captures and replays them; every one must be equal.
Totals replay_all(const std::string& folder, const std::string& options = "", const std::string& replay_options = "") {
    const std::filesystem::path out = test::scratch("manifests");
    const std::string make = "python3 " + (test::testdata().parent_path() / "tools/manifests/make_manifests.py").string();
    const auto made = test::run(make + " " + (test::captures() / folder).string() + " " + out.string() + " " + options);
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    Totals totals;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
        if (entry.path().extension() != ".json") continue;
        const auto result = test::run(test::cli() + " replay " + entry.path().string() + " --json - --first 2 " + replay_options);
        INFO(entry.path().filename().string() << "\n" << result.output);
        REQUIRE(result.exit_code == 0);
        ++totals.manifests;
        const nlohmann::json report = nlohmann::json::parse(result.output);
        for (const auto& check : report.at("checks")) {
            ++totals.checks;
            totals.compared += check.at("compared").get<std::int64_t>();
        }
    }
    return totals;
}

}  // namespace

TEST_CASE("captures: published dot products of V100, A100, L40S and H100") {
    if (!std::filesystem::exists(test::captures() / "public")) return test::skip("no captures beside the repository");
    const Totals totals = replay_all("public");
    CHECK(totals.manifests == 14);
    CHECK(totals.compared == 50000);
}

TEST_CASE("captures: H200 instruction tiles, six input classes") {
    if (!std::filesystem::exists(test::captures() / "h200/instructions")) return test::skip("no captures beside the repository");
    const Totals totals = replay_all("h200/instructions");
    CHECK(totals.manifests == 23);
    CHECK(totals.checks == 138);
    CHECK(totals.compared == 23 * 24576);
}

TEST_CASE("captures: H200 cuBLAS GEMMs, every whole output by its SHA-256") {
    if (!std::filesystem::exists(test::captures() / "h200/gemm")) return test::skip("no captures beside the repository");
    const Totals totals = replay_all("h200/gemm", "--full-below 1000000");
    CHECK(totals.checks == 77);
    CHECK(totals.compared == 210276864);
}

TEST_CASE("captures: H200 matrix products off the beaten path") {
    if (!std::filesystem::exists(test::captures() / "h200/gemm2")) return test::skip("no captures beside the repository");
    const Totals totals = replay_all("h200/gemm2");
    CHECK(totals.checks == 416);  // of 417: nobody describes the inputs of one, tag gelu_acc
    CHECK(totals.compared == 1130440 + 3 * 320);
}

TEST_CASE("captures: H200 decoder layers with flash and eager attention, every stage whole") {
    if (!std::filesystem::exists(test::captures() / "h200/block")) return test::skip("no captures beside the repository");
    // Chained from the input, and every stage with recorded inputs.
    for (const char* inputs : {"--inputs chained", "--inputs recorded"}) {
        const Totals totals = replay_all("h200/block", "", inputs);
        CHECK(totals.manifests == 2);
        CHECK(totals.checks == 36);
        CHECK(totals.compared == 2 * 192 * (10 * 1024 + 4 * 3072 + 4 * 256));
    }
}
