#include "emu/unary.hpp"

#include <catch2/catch.hpp>

#include "emu/ops/op.hpp"
#include "formats/error.hpp"

using namespace bitreplay;

namespace {

OpRequest request(const std::string& op, const char* gpu, Tensor x, const std::string& params) {
    OpRequest out{"s", op, find_gpu(gpu), {}, {}, Params::parse(params, "m.json", "/ops/0/params"), {}, {}, {}, {}, {}, {}};
    out.in.emplace("x", std::move(x));
    return out;
}

Tensor values(const Format& format, std::initializer_list<std::uint64_t> codes) {
    Tensor out(format, {static_cast<std::int64_t>(codes.size())});
    std::int64_t i = 0;
    for (const std::uint64_t code : codes) out.set(i++, code);
    return out;
}

Tensor run(const OpRequest& op) { return find_op(op.op)(op).out.at(""); }

}  // namespace

TEST_CASE("unary: widens, computes in FP32, rounds to the output format") {
    const Tensor x = values(bf16, {0x0000, 0x3F80, 0xFF80, 0x7FC1, 0x4120});
    const Tensor y = run(request("unary", "h200", x, R"({"fn": "silu"})"));
    CHECK(y.format() == bf16);
    CHECK(y.get(0) == 0);
    CHECK(y.get(1) == 0x3F3B);  // 0.73105
    CHECK(y.get(2) == 0x7FFF);
    CHECK(y.get(3) == 0x7FFF);
    CHECK(y.get(4) == 0x4120);

    OpRequest wide = request("unary", "h200", x, R"({"fn": "exp"})");
    wide.out_format = fp32;
    const Tensor e = run(wide);
    CHECK(e.format() == fp32);
    CHECK(e.get(0) == 0x3F800000);
    CHECK(e.get(1) == 0x402DF854);
    CHECK(run(request("unary", "a100", values(fp32, {0x80000000}), R"({"fn": "sin"})")).get(0) == 0x80000000);
    CHECK(run(request("unary", "h200", Tensor(fp32, {0}), R"({"fn": "sin"})")).size() == 0);
}

TEST_CASE("unary: what is not known is refused") {
    const Tensor x = values(fp32, {0x3F800000});
    CHECK_THROWS_AS(run(request("unary", "h200", x, R"({"fn": "digamma"})")), NotModelled);
    CHECK_THROWS_AS(run(request("unary", "v100", x, R"({"fn": "exp"})")), NotModelled);
    CHECK_THROWS_AS(run(request("unary", "h200", values(e4m3, {1}), R"({"fn": "exp"})")), NotModelled);
    CHECK_THROWS_AS(run(request("unary", "h200", x, R"({"fn": "exp", "fm": 1})")), InputError);
    OpRequest old = request("unary", "h200", x, R"({"fn": "exp"})");
    old.kernel = "torch.1.0";
    CHECK_THROWS_AS(run(old), NotModelled);
    old.kernel = "";
    old.in.emplace("w", x);
    CHECK_THROWS_AS(run(old), InputError);
}

TEST_CASE("mufu op: FP32 bits of any shape, 16-bit forms element by element") {
    const Tensor x = values(fp32, {0x3F800000, 0x7FC00000, 0x43000000}).reshape({1, 3, 1});
    const Tensor y = run(request("mufu", "h200", x, R"({"ptx": "ex2.approx.ftz.f32"})"));
    CHECK(y.shape() == std::vector<std::int64_t>{1, 3, 1});
    CHECK(y.get(0) == 0x40000000);
    CHECK(y.get(1) == 0x7FFFFFFF);
    CHECK(y.get(2) == 0x7F800000);
    CHECK(run(request("mufu", "h200", values(fp16, {0x3C00, 0x7E00}), R"({"ptx": "ex2.approx.f16x2"})")).get(0) == 0x4000);
    CHECK_THROWS_AS(run(request("mufu", "h200", x, R"({"ptx": "ex2.approx.f64"})")), NotModelled);
    CHECK_THROWS_AS(run(request("mufu", "h200", x, R"({"ptx": "ex2.approx.f16"})")), InputError);
    CHECK_THROWS_AS(run(request("mufu", "b200", x, R"({"ptx": "ex2.approx.ftz.f32"})")), NotModelled);
}
