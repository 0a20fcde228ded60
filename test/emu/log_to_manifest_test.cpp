// tools/capture/log_to_manifest.py: a log and dumped tensors become a manifest that replays.

#include <catch2/catch.hpp>

#include <fstream>

#include "emu/io/safetensors.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

Tensor random(std::uint64_t seed, std::vector<std::int64_t> shape) {
    return synthetic({.seed = seed, .exp2 = 0, .plus = {}, .mirror = {}, .format = bf16, .shape = std::move(shape)});
}

Tensor split_product(const Tensor& x, const Tensor& w, const std::string& params) {
    return find_op("linear")({.id = "",
                              .op = "linear",
                              .gpu = find_gpu("h200"),
                              .kernel = "cublas.nvjet",
                              .kernel_names = {},
                              .params = Params::parse(params, "", ""),
                              .in = {{"x", x}, {"w", w}},
                              .out_format = fp32,
                              .recorded = {},
                              .rows = {},
                              .cols = {}})
        .out.at("");
}

const std::string log_head = "[2026-11-29 20:00:00][cublasLt][4711][Info][cublasLtCreate] lightHandle=0x7f\n";
std::string call(const std::string& more, int n) {
    return "[2026-11-29 20:00:00][cublasLt][4711][Trace][cublasLtTSTMatmul] A=0x7f Adesc=[type=R_16BF rows=200 cols=6 "
           "ld=200] Ddesc=[type=R_16BF rows=" +
           std::to_string(n) +
           " cols=4 ld=6] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transa=OP_T biasPointer=0x7d] "
           "algo=[algoId=66 tile=MATMUL_TILE_64x8 stages=MATMUL_STAGES_64xAUTO" +
           more + "] workSpace=0x7d workSpaceSizeInBytes=1048576\n";
}

struct Run {
    std::filesystem::path folder = test::scratch("log_to_manifest");
    Tensor x = random(1, {4, 200}), w = random(2, {6, 200});

    Run() {
        write_safetensors(folder / "dump.safetensors",
                          {{"q2.x", x},
                           {"q2.w", w},
                           {"q2.y", split_product(x, w, R"({"split_k": 3})")},
                           {"q10.x", x},
                           {"q10.w", w},
                           {"q10.y", split_product(x, w, "{}")}});
    }
    test::CommandResult make(const std::string& log, const std::string& more = "") const {
        std::ofstream(folder / "lt.log") << log;
        const std::string script = (test::testdata().parent_path() / "tools/capture/log_to_manifest.py").string();
        return test::run("python3 " + script + " " + (folder / "lt.log").string() + " " +
                         (folder / "dump.safetensors").string() + " " + (folder / "m.json").string() + " --gpu h200 " +
                         more);
    }
};

}  // namespace

TEST_CASE("log_to_manifest: calls and tensors are matched in order, and the manifest replays") {
    const Run run;
    const auto made =
        run.make(log_head + call(" reductionScheme=REDUCTION_SCHEME_COMPUTE_TYPE numSplitsK=3", 6) + call("", 6));
    INFO(made.output);
    REQUIRE(made.exit_code == 0);
    const auto replayed = test::run(test::cli() + " replay " + (run.folder / "m.json").string());
    INFO(replayed.output);
    CHECK(replayed.exit_code == 0);
    CHECK(replayed.output.find("48 elements compared, 0 checks differ") != std::string::npos);
    // In the other order the orders of summation do not fit: the names really decide.
    REQUIRE(run.make(log_head + call(" numSplitsK=3", 6) + call("", 6), "--names q10 q2").exit_code == 0);
    CHECK(test::run(test::cli() + " replay " + (run.folder / "m.json").string()).exit_code == 1);
}

TEST_CASE("log_to_manifest: what does not fit is refused") {
    const Run run;
    const auto refused = [&](const std::string& log, const std::string& more, const std::string& reason) {
        const auto made = run.make(log, more);
        INFO(made.output);
        CHECK(made.exit_code != 0);
        CHECK(made.output.find(reason) != std::string::npos);
        CHECK(made.output.find("Traceback") == std::string::npos);
    };
    refused(call("", 6), "", "2 outputs are dumped, 1 products are in the log");
    refused(call("", 6) + call("", 7), "", "the log says [4, 7]");
    refused(call("", 6) + call("", 6), "--names q2 q3", "no tensor q3.y");
    refused(call("", 6) + call("", 6), "--kernels " + (run.folder / "none.json").string(), "none.json");
}
