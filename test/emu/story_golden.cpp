// The user story of README.md, on outputs of a GPU: a run with a batch of eight prompts is passed off as a run with
// one.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

std::string file(const std::string& name) { return (test::testdata() / "h200/story" / name).string(); }

nlohmann::json json_of(const std::string& arguments, int exit_code) {
    const auto result = test::run(test::cli() + " " + arguments + " --json -");
    INFO(arguments << "\n" << result.output);
    REQUIRE(result.exit_code == exit_code);
    return nlohmann::json::parse(result.output);
}

}  // namespace

TEST_CASE("story: the honest dumps are equal, the claim is rejected") {
    CHECK(json_of("replay " + file("batch1.json"), 0).at("checks").at(0).at("compared") == 2048);
    CHECK(json_of("replay " + file("batch8.json"), 0).at("checks").at(0).at("compared") == 2048);
    const auto claim = json_of("replay " + file("batch8_as_batch1.claim.json"), 1);
    CHECK(claim.at("result") == "different");
    CHECK(claim.at("checks").at(0).at("compared") == 256);
    CHECK(claim.at("checks").at(0).at("different") == 6);
}

TEST_CASE("story: identify names the split that the batch of eight ran, not the claimed one") {
    const auto report = json_of("identify " + file("batch8_as_batch1.claim.json"), 0);
    CHECK(report.at("recorded") == 256);
    CHECK(report.at("compared") == 256);
    REQUIRE(report.at("found").size() == 1);
    bool nvjet = false;
    for (const auto& name : report.at("found").at(0).at("names")) {
        CHECK(name.at("params").at("split_k") == 3);
        nvjet = nvjet || name.at("kernel") == "cublas.nvjet";
    }
    CHECK(nvjet);
    CHECK(report.at("separation").get<int>() >= 1);
    // The claimed kernel with its claimed split is not among the candidates that are left.
    CHECK(json_of(
              "identify " + file("batch8_as_batch1.claim.json") + " --kernel cublas.nvjet --param split_k=5 --gpu h200",
              1)
              .at("found")
              .empty());
}

TEST_CASE("story: explain shows where the first differing element parts from the claim") {
    const auto explained =
        json_of("explain " + file("batch8_as_batch1.claim.json") + " --element 0,161 --against-param split_k=3", 0);
    CHECK(explained.at("a").at("result").at("bits") == "0x355e");
    CHECK(explained.at("a").at("expected").at("bits") == "0x355d");
    CHECK(explained.at("b").at("result").at("bits") == "0x355d");
    CHECK(explained.at("summands").at(0) == 1984);  // where the first of five parts ends
    const auto diff = json_of("explain --diff " + file("batch1.json") + " " + file("batch8.json"), 1);
    CHECK(diff.at("first") == "down_proj");
    CHECK(diff.at("computed").at("compared") == 16 * 2560);
    CHECK(diff.at("computed").at("different") == 530);
    CHECK(diff.at("recorded").at("compared") == 256);
    CHECK(diff.at("recorded").at("different") == 6);
    CHECK(diff.at("explained_by") == "kernel and parameters");
    const auto& changes = diff.at("changes");
    CHECK(std::find(changes.begin(), changes.end(), "split_k: 5 -> 3") != changes.end());
}

TEST_CASE("story: a trace can be drawn") {
    const auto folder = test::scratch("story");
    const std::string graph = (folder / "sum.dot").string();
    const auto drawn = test::run(test::cli() + " explain " + file("batch8.json") + " --element 0,161 --dot " + graph);
    INFO(drawn.output);
    CHECK(drawn.exit_code == 0);
    CHECK_THAT(drawn.output,
               Catch::Matchers::Contains("recorded 0x355d") && Catch::Matchers::Contains(": equal") &&
                   Catch::Matchers::Contains("3 parts added first to last"));
    std::ifstream in(graph);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    CHECK_THAT(text, Catch::Matchers::StartsWith("digraph sum {") && Catch::Matchers::EndsWith("}\n"));
    std::size_t arrows = 0;
    for (std::size_t at = 0; (at = text.find(" -> ", at)) != std::string::npos; ++at) ++arrows;
    CHECK(arrows == 3);
}
