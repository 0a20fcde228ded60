// Traces of outputs that a GPU computed, and of what differs between two recorded runs.

#include <catch2/catch.hpp>

#include "emu/explain.hpp"
#include "emu/manifest_diff.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

TEST_CASE("explain: traces of captured products end in the recorded bits") {
    const Manifest manifest = load_manifest(test::testdata() / "h200/linear/gemm.json");
    int compared = 0;
    for (const ManifestOp& op : manifest.ops) {
        // One of each kind: bf16, FP32 from bf16, fp16, fp8 with and without fast accumulation; split and not.
        if (op.id != "case_000" && op.id != "case_034" && op.id != "case_091" && op.id != "case_115" &&
            op.id != "case_119" && op.id != "case_102")
            continue;
        const Expectation& expect = op.expect.at("");
        for (const std::size_t i : {std::size_t{0}, expect.cols->size() / 2, expect.cols->size() - 1}) {
            const std::int64_t row = expect.rows->at(i % expect.rows->size()), col = expect.cols->at(i);
            const Trace trace = explain(manifest, op.id, {row, col});
            INFO(op.id << " " << row << "," << col);
            REQUIRE(trace.expected);
            CHECK(trace.result == *trace.expected);
            if (trace.result.format == fp32) CHECK(trace.root.value == trace.result);
            ++compared;
        }
    }
    CHECK(compared == 18);
}

TEST_CASE("explain: two recorded layers of 17 and of 100 tokens part at the output projection, because of its split") {
    const auto folder = test::testdata() / "h200/layers";
    const ManifestDiff found =
        diff(load_manifest(folder / "qwen3_4b_flash_m17.json"), load_manifest(folder / "qwen3_4b_flash_m100.json"));
    CHECK(found.equal == std::vector<std::string>{"layer.ln1",
                                                  "layer.q",
                                                  "layer.q_norm",
                                                  "layer.k",
                                                  "layer.k_norm",
                                                  "layer.v",
                                                  "layer.q_rope",
                                                  "layer.k_rope",
                                                  "layer.attn"});
    CHECK(found.first == "layer.o");
    CHECK(found.computed.compared == 17 * 2560);
    CHECK(found.computed.different > 0);
    CHECK(found.inputs.empty());
    CHECK(found.explained_by == "kernel and parameters");
    CHECK(std::find(found.changes.begin(), found.changes.end(), "split_k: 2 -> 1") != found.changes.end());
    CHECK(diff(load_manifest(folder / "qwen3_4b_flash_m17.json"), load_manifest(folder / "qwen3_4b_flash_m17.json"))
              .first.empty());
}
