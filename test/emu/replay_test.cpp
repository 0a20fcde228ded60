#include "emu/replay.hpp"

#include <catch2/catch.hpp>

#include "emu/io/atomic_file.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/ops/op.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// A folder with y = x·wᵀ (bf16 [4, 6], K = 40) and z = y·vᵀ as this program computes them: what is tested here is the
/// bookkeeping around the ops, the ops have their own tests against GPU captures.
struct Case {
    std::filesystem::path folder = test::scratch("replay");
    Tensor y, z;
    const std::string tensors = R"("x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": [4, 40]},
        "w": {"synthetic": "splitmix64-ih4", "seed": 2, "exp2": -5, "dtype": "BF16", "shape": [6, 40]},
        "v": {"synthetic": "splitmix64-ih4", "seed": 3, "exp2": 0, "dtype": "bfloat16", "shape": [5, 6]})";

    Case() {
        const auto part = [](std::uint64_t seed, int exp2, std::vector<std::int64_t> shape) {
            return synthetic({.seed = seed, .exp2 = exp2, .plus = {}, .mirror = {}, .format = bf16, .shape = std::move(shape)});
        };
        const auto linear = [](const Tensor& x, const Tensor& w) {
            return find_op("linear")({.id = "", .op = "linear", .gpu = find_gpu("h200"), .kernel = "single_walk", .kernel_names = {}, .params = {},
                                      .in = {{"x", x}, {"w", w}}, .out_format = {}, .recorded = {}, .rows = {}, .cols = {}}).out.at("");
        };
        y = linear(part(1, 0, {4, 40}), part(2, -5, {6, 40}));
        z = linear(y, part(3, 0, {5, 6}));
        Tensor sample(bf16, {2, 3});
        for (std::int64_t i = 0; i < 2; ++i)
            for (std::int64_t j = 0; j < 3; ++j) sample.set(3 * i + j, y.get((i == 0 ? 3 : 0) * 6 + (j == 0 ? 5 : j)));
        Tensor wrong = part(9, 0, {4, 6});
        write_safetensors(folder / "dump.safetensors", {{"y", y}, {"z", z}, {"sample", sample}, {"wrong", wrong}});
    }

    std::string op(const std::string& id, const std::string& x, const std::string& w, const std::string& rest) const {
        return R"({"id": ")" + id + R"(", "op": "linear", "in": {"x": ")" + x + R"(", "w": ")" + w + R"("}, "kernel": "single_walk")" + rest + "}";
    }
    static std::string stored(const std::string& name, const std::string& key) {
        return ", \"" + name + R"(": {"file": "dump.safetensors", "key": ")" + key + "\"}";
    }

    ReplayReport replay_text(const std::string& more_tensors, const std::string& ops, const ReplayOptions& options = {}) const {
        const std::string text = R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + tensors + more_tensors + R"(}, "ops": [)" + ops + "]}";
        return replay(parse_manifest(text, folder / "m.json"), options);
    }
};

}  // namespace

TEST_CASE("replay: outputs feed later ops, tensors and digests are compared") {
    const Case c;
    const std::string ops = c.op("first", "x", "w", R"(, "out": "y", "expect": {"tensor": "y_gpu"})") + "," +
                            c.op("second", "y", "v", R"(, "out": "z", "expect": {"sha256": ")" + sha256_hex(c.z.bytes()) + "\"}");
    const ReplayReport report = c.replay_text(Case::stored("y_gpu", "y"), ops);
    REQUIRE(report.checks.size() == 2);
    CHECK(report.checks[0].comparison.compared == 24);
    CHECK(report.checks[1].comparison.compared == 20);
    CHECK(report.result() == "equal");
    CHECK(report.exit_code() == 0);
}

TEST_CASE("replay: rows and cols select what was kept, in their order") {
    const Case c;
    const std::string expect = R"(, "out": "y", "expect": {"tensor": "s", "rows": [3, 0], "cols": [5, 1, 2]})";
    const ReplayReport alone = c.replay_text(Case::stored("s", "sample"), c.op("first", "x", "w", expect));
    CHECK(alone.checks.at(0).comparison.compared == 6);
    CHECK(alone.exit_code() == 0);
    // The same where a later op needs the whole output.
    const ReplayReport chained = c.replay_text(Case::stored("s", "sample") + Case::stored("z_gpu", "z"),
                                               c.op("first", "x", "w", expect) + "," + c.op("second", "y", "v", R"(, "expect": {"tensor": "z_gpu"})"));
    CHECK(chained.checks.size() == 2);
    CHECK(chained.exit_code() == 0);
}

TEST_CASE("replay: a difference is found, counted and listed; recorded inputs isolate it") {
    const Case c;
    const std::string ops = c.op("first", "x", "w", R"(, "out": "y", "expect": {"tensor": "y"})") + "," + c.op("second", "y", "v", R"(, "expect": {"tensor": "z_gpu"})");
    const std::string wrong = Case::stored("y", "wrong") + Case::stored("z_gpu", "z");
    const ReplayReport chained = c.replay_text(wrong, ops, {.stages = {}, .recorded = false, .max_first = 2, .progress = {}});
    REQUIRE(chained.checks.size() == 2);
    CHECK(chained.checks[0].comparison.different > 20);
    CHECK(chained.checks[0].comparison.first.size() == 2);
    CHECK(chained.checks[0].comparison.first[0].index == std::vector<std::int64_t>{0, 0});
    CHECK(chained.checks[1].comparison.different == 0);
    CHECK(chained.exit_code() == 1);
    const ReplayReport recorded = c.replay_text(wrong, ops, {.stages = {"second"}, .recorded = true, .max_first = 2, .progress = {}});
    REQUIRE(recorded.checks.size() == 1);
    CHECK(recorded.checks[0].comparison.different > 0);  // fed with the wrong recorded y
    CHECK(c.replay_text(wrong, ops, {.stages = {"second"}, .recorded = false, .max_first = 2, .progress = {}}).exit_code() == 0);
}

TEST_CASE("replay: an op without a model says so, and so do those it feeds; the rest is compared") {
    const Case c;
    const std::string unknown = R"({"id": "first", "op": "linear", "in": {"x": "x", "w": "w"}, "out": "y", "kernel_names": ["mystery_gemm"], "expect": {"tensor": "y_gpu"}})";
    const std::string ops = unknown + "," + c.op("second", "y", "v", R"(, "expect": {"tensor": "z_gpu"})") + "," + c.op("third", "x", "w", R"(, "expect": {"tensor": "y_gpu"})");
    const ReplayReport report = c.replay_text(Case::stored("y_gpu", "y") + Case::stored("z_gpu", "z"), ops);
    REQUIRE(report.not_modelled.size() == 2);
    CHECK(report.not_modelled[0].reason.find("mystery_gemm") != std::string::npos);
    CHECK(report.checks.size() == 1);
    CHECK(report.exit_code() == 3);
}

TEST_CASE("replay: inconsistent input is refused with the place") {
    const Case c;
    const auto message = [&](const std::string& tensors, const std::string& ops, const ReplayOptions& options = {}) {
        try {
            c.replay_text(tensors, ops, options);
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    const std::string y = Case::stored("y_gpu", "y"), expect = R"(, "expect": {"tensor": "y_gpu"})";
    const auto has = [](const std::string& part) { return Catch::Matchers::Contains(part); };
    CHECK_THAT(message(y, c.op("a", "x", "v", expect)), has("m.json: op a: K differs: x is bf16 [4, 40], w is bf16 [5, 6]"));
    CHECK_THAT(message(Case::stored("y_gpu", "nothing"), c.op("a", "x", "w", expect)), has("dump.safetensors: nothing"));
    CHECK_THAT(message(y, c.op("a", "x", "q", expect)), has("/ops/0: input \"w\": no tensor and no earlier output is called \"q\""));
    CHECK_THAT(message(y, c.op("a", "x", "w", R"(, "expct": {})")), has("/ops/0/expct: unknown key (did you mean \"expect\"?)"));
    CHECK_THAT(message(y, c.op("a", "x", "w", R"(, "params": {"split": 2})" + expect)), has("/ops/0/params/split: unknown key"));
    CHECK_THAT(message(y, c.op("a", "x", "w", R"(, "out_dtype": "fp32")" + expect)), has("computed fp32 [4, 6], recorded bf16 [4, 6]"));
    CHECK_THAT(message(y, c.op("a", "x", "w", R"(, "expect": {"tensor": "y_gpu", "rows": [4]})")), has("op a: expect: row 4 is outside bf16 [4, 6]"));
    CHECK_THAT(message(y, c.op("a", "x", "w", "")), has("nothing to compare"));
    CHECK_THAT(message(y, c.op("a", "x", "w", expect) + "," + c.op("a", "x", "w", expect)), has("/ops/1: the id \"a\" is taken"));
    CHECK_THAT(message(y, c.op("a", "x", "w", expect), {.stages = {"b"}, .recorded = false, .max_first = 1, .progress = {}}), has("no check is called \"b\""));
    CHECK_THAT(message(", \"u\": 3", c.op("a", "x", "w", expect)), has("/tensors/u: must be an object"));
    CHECK_THAT(message(y + ", \"x\": {}", c.op("a", "x", "w", expect)), has("duplicate key \"x\""));
    CHECK_THAT(message(y, R"({"id": "a", "op": "liner", "in": {}, "expect": {"tensor": "y_gpu"}})"), has("unknown op \"liner\""));
    CHECK_THROWS_AS(parse_manifest(R"({"bitreplay": 1, "gpu": "h300", "tensors": {}, "ops": []})", "m.json"), NotModelled);
    CHECK_THROWS_AS(parse_manifest(R"({"bitreplay": 2, "gpu": "h200", "tensors": {}, "ops": []})", "m.json"), InputError);
    CHECK_THROWS_AS(load_manifest(c.folder / "absent.json"), InputError);
}
