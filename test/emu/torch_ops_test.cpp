// The ops that are PyTorch kernels: what they accept, and what is not modelled.

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "arch/fp32.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/ops/op.hpp"
#include "formats/error.hpp"

using namespace bitreplay;

namespace {

Tensor values(const Format& format, std::vector<std::int64_t> shape, std::vector<std::uint64_t> codes) {
    Tensor out(format, std::move(shape));
    for (std::size_t i = 0; i < codes.size(); ++i) out.set(static_cast<std::int64_t>(i), codes[i]);
    return out;
}

Tensor normal(const Format& format, std::vector<std::int64_t> shape) {
    return synthetic({.seed = 1, .format = format, .shape = std::move(shape)});
}

struct Call {
    std::string op;
    std::string params = "{}";
    std::string kernel = {};
    std::map<std::string, Tensor> in = {};
    std::optional<Format> out_format = {};
};

Tensor run(const Call& call) {
    const OpFunction function = find_op(call.op);
    REQUIRE(function != nullptr);
    const OpRequest request{.id = "t",
                            .op = call.op,
                            .gpu = find_gpu("h200"),
                            .kernel = call.kernel,
                            .kernel_names = {},
                            .params = Params::parse(call.params, "test", ""),
                            .in = call.in,
                            .out_format = call.out_format,
                            .recorded = {},
                            .rows = {},
                            .cols = {}};
    const OpResult result = function(request);
    return result.out.begin()->second;
}

}  // namespace

TEST_CASE("torch ops: add and mul round once, take scalars as FP32, keep NaN canonical") {
    const Tensor a = values(bf16, {4}, {0x3F80, 0x3F81, 0x7F80, 0xFFC1});
    const Tensor b = values(bf16, {4}, {0x3B80, 0x3B80, 0xFF80, 0x3F80});
    const Tensor sum = run({.op = "add", .in = {{"a", a}, {"b", b}}});
    // 1 + 2^-8 is a tie and goes to even, as does 1.0078125 + 2^-8; inf - inf and NaN give 0x7fff.
    CHECK(sum.get(0) == 0x3F80);
    CHECK(sum.get(1) == 0x3F82);
    CHECK(sum.get(2) == 0x7FFF);
    CHECK(sum.get(3) == 0x7FFF);
    // A scalar that bf16 cannot hold stays exact: 1.0078125 * (1 + 2^-23), rounded to fp32.
    const Tensor scaled =
        run({.op = "mul", .in = {{"a", a}, {"b", values(fp32, {}, {0x3F800001})}}, .out_format = fp32});
    CHECK(scaled.get(1) == f32::mul(0x3F810000, 0x3F800001));
    CHECK(scaled.shape() == std::vector<std::int64_t>{4});
    CHECK_THROWS_AS(run({.op = "add", .in = {{"a", a}, {"b", values(bf16, {2}, {})}}}), InputError);
    CHECK_THROWS_AS(run({.op = "add", .in = {{"a", a}, {"b", values(fp32, {4}, {})}}}), InputError);
    CHECK_THROWS_AS(run({.op = "add", .in = {{"a", a}}}), InputError);
    CHECK_THROWS_AS(run({.op = "mul", .in = {{"a", values(e4m3, {1}, {0})}, {"b", values(e4m3, {1}, {0})}}}),
                    NotModelled);
}

TEST_CASE("torch ops: maximum, and where its bits would depend on the order") {
    const auto maximum = [](const Tensor& x) {
        return run({.op = "reduce", .params = R"({"fn": "max"})", .in = {{"x", x}}});
    };
    const Tensor got = maximum(values(fp32,
                                      {3, 3},
                                      {0xBF800000,
                                       0xC0000000,
                                       0xFF800000,  //
                                       0x80000000,
                                       0x80000000,
                                       0xBF800000,  //
                                       0x3F800000,
                                       0x7FC00001,
                                       0x7F800000}));
    CHECK(got.get(0) == 0xBF800000);
    CHECK(got.get(1) == 0x80000000);
    CHECK(got.get(2) == 0x7FC00001);
    CHECK_THROWS_AS(maximum(values(fp32, {1, 2}, {0, 0x80000000})), NotModelled);
    CHECK_THROWS_AS(maximum(values(bf16, {1, 2}, {0x7FC0, 0x7FFF})), NotModelled);
}

TEST_CASE("torch ops: what is not modelled is not guessed") {
    const Tensor x = normal(bf16, {2, 8}), half = normal(fp16, {2, 8}), w = normal(bf16, {8}), wide = normal(fp32, {8});
    CHECK_THROWS_AS(run({.op = "reduce", .params = R"({"fn": "sum"})", .in = {{"x", half}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "reduce", .params = R"({"fn": "prod"})", .in = {{"x", x}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "reduce", .params = R"({"fn": "logsumexp"})", .in = {{"x", x}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "reduce", .in = {{"x", x}}}), InputError);
    CHECK_THROWS_AS(run({.op = "reduce", .params = R"({"fn": "sum", "axis": 0})", .in = {{"x", x}}}), InputError);
    CHECK_THROWS_AS(run({.op = "softmax", .in = {{"x", half}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "softmax", .kernel = "torch.2.5", .in = {{"x", x}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "layer_norm", .in = {{"x", x}, {"bias", w}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "layer_norm", .in = {{"x", x}, {"w", wide}}}), NotModelled);
    CHECK_THROWS_AS(run({.op = "layer_norm", .in = {{"x", x}, {"w", normal(bf16, {7})}}}), InputError);
    CHECK_THROWS_AS(run({.op = "rms_norm", .params = R"({"style": "gemma"})", .in = {{"x", x}, {"w", w}}}),
                    NotModelled);
    CHECK_THROWS_AS(run({.op = "rms_norm", .in = {{"x", x}}}), InputError);
    CHECK_THROWS_AS(run({.op = "rope_table", .in = {{"inv_freq", wide}}}), InputError);
    CHECK_THROWS_AS(run({.op = "rope", .in = {{"x", x}, {"cos", x}, {"sin", x}}}), InputError);
    CHECK(run({.op = "softmax", .kernel = "torch.2.11", .in = {{"x", x}}}).shape() == x.shape());
}

TEST_CASE("torch ops: a row with NaN or infinity") {
    const Tensor x = values(fp32, {3, 3}, {0x7FC00001, 0, 0, 0x7F800000, 0, 0, 0xFF800000, 0xFF800000, 0xFF800000});
    const Tensor soft = run({.op = "softmax", .in = {{"x", x}}});
    for (std::int64_t i = 0; i < 9; ++i) CHECK(soft.get(i) == 0x7FFFFFFF);
    const Tensor lse = run({.op = "reduce", .params = R"({"fn": "logsumexp"})", .in = {{"x", x}}});
    CHECK(lse.get(0) == 0x7FFFFFFF);
    CHECK(lse.get(1) == 0x7F800000);
    CHECK(lse.get(2) == 0xFF800000);
}
