#include <catch2/catch.hpp>

#include "emu/attention.hpp"
#include "emu/ops/op.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

constexpr std::uint64_t one = 0x3F80;  // bf16

Tensor filled(std::vector<std::int64_t> shape, std::uint64_t code) {
    Tensor out(bf16, std::move(shape));
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, code);
    return out;
}

FlashCall ones(std::int64_t sq, std::int64_t sk) {
    FlashCall call{find_gpu("h200"), *find_flash_build("torch.flash2"), filled({1, 1, sq, 32}, one), filled({1, 1, sk, 32}, one),
                   filled({1, 1, sk, 32}, one)};
    call.scale = default_attention_scale(32);
    call.multiprocessors = 132;
    return call;
}

}  // namespace

TEST_CASE("attention: equal keys average the values") {
    const AttentionResult result = flash_attention(ones(3, 64));
    for (std::int64_t i = 0; i < result.o.size(); ++i) CHECK(result.o.get(i) == one);
}

TEST_CASE("attention: a NaN query gives NaN outputs and a log-sum-exp of +infinity, and leaves the other rows alone") {
    FlashCall call = ones(3, 64);
    call.q.set(32 + 5, 0x7FC0);
    const AttentionResult result = flash_attention(call);
    const AttentionResult clean = flash_attention(ones(3, 64));
    for (std::int64_t i = 0; i < 32; ++i) {
        CHECK(result.o.get(i) == one);
        CHECK(result.o.get(32 + i) == 0x7FFF);
        CHECK(result.o.get(64 + i) == one);
    }
    CHECK(result.lse.get(0) == clean.lse.get(0));
    CHECK(result.lse.get(1) == 0x7F800000);
    CHECK(result.lse.get(2) == clean.lse.get(2));
}

TEST_CASE("attention: an infinite value behind the causal mask still meets a probability of zero in its tile") {
    FlashCall call = ones(4, 4);
    call.causal = true;
    call.v.set(3 * 32, 0x7F80);  // only the last query sees it, but 0 · inf is NaN
    const AttentionResult result = flash_attention(call);
    for (std::int64_t row = 0; row < 3; ++row) CHECK(result.o.get(row * 32) == 0x7FFF);
    CHECK(result.o.get(3 * 32) == 0x7F80);
    CHECK(result.o.get(1) == one);
}

TEST_CASE("attention: rows without a key are zero with a log-sum-exp of +infinity") {
    FlashCall call = ones(200, 10);
    call.causal = true;
    const AttentionResult result = flash_attention(call);
    int empty = 0, visible = 0;
    for (std::int64_t row = 0; row < 200; ++row) {
        const bool none = row < 190;
        CHECK(result.o.get(row * 32) == (none ? 0U : one));
        CHECK((result.lse.get(row) == 0x7F800000) == none);
        ++(none ? empty : visible);
    }
    CHECK(empty == 190);
    CHECK(visible == 10);
}

TEST_CASE("attention: a variable-length call is its sequences, unsplit") {
    test::Random random(73);
    FlashCall call = ones(90, 120);
    for (Tensor* tensor : {&call.q, &call.k, &call.v})
        for (std::int64_t i = 0; i < tensor->size(); ++i) tensor->set(i, 0x3F00 + random.below(256) + (random.below(2) << 15));
    call.causal = true;
    call.bounds_q = {0, 20, 20, 90};
    call.bounds_k = {0, 30, 50, 120};
    const AttentionResult all = flash_attention(call);
    std::int64_t compared = 0;
    for (const std::size_t s : {std::size_t{0}, std::size_t{2}}) {
        const auto part = [&](const Tensor& tensor, const std::vector<std::int64_t>& bounds) {
            Tensor out(bf16, {1, 1, bounds[s + 1] - bounds[s], 32});
            for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, tensor.get(bounds[s] * 32 + i));
            return out;
        };
        FlashCall one_call{call.gpu, call.build, part(call.q, call.bounds_q), part(call.k, call.bounds_k), part(call.v, call.bounds_k)};
        one_call.causal = true;
        one_call.scale = call.scale;
        one_call.splits = 1;
        const AttentionResult single = flash_attention(one_call);
        for (std::int64_t i = 0; i < single.o.size(); ++i, ++compared) CHECK(single.o.get(i) == all.o.get(call.bounds_q[s] * 32 + i));
    }
    CHECK(compared == 90 * 32);
}

TEST_CASE("attention: what has no model is refused, what contradicts itself is an error") {
    FlashCall call = ones(4, 4);
    OpRequest op{.id = "a", .op = "attention", .gpu = call.gpu, .kernel = {}, .kernel_names = {}, .params = {}, .in = {}, .out_format = {},
                 .recorded = {}, .rows = {}, .cols = {}};
    op.in = {{"q", call.q}, {"k", call.k}, {"v", call.v}};
    const OpFunction run = find_op("attention");
    CHECK_THROWS_AS(run(op), NotModelled);
    op.kernel = "torch.unknown";
    CHECK_THROWS_AS(run(op), NotModelled);
    op.kernel = "";
    op.kernel_names = {"cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1_cga1x1x1_kernel0_0"};
    CHECK_THROWS_AS(run(op), NotModelled);
    op.kernel_names = {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<32, 128, 64, 4, false, false, cutlass::bfloat16_t>"};
    CHECK_THROWS_AS(run(op), InputError);  // another key tile than the rule's
    op.kernel_names = {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<32, 128, 128, 4, false, false, cutlass::bfloat16_t>"};
    CHECK(run(op).out.size() == 2);
    op.in["k"] = filled({1, 1, 4, 16}, one);
    CHECK_THROWS_AS(run(op), InputError);
    call.q = filled({1, 1, 4, 320}, one);
    call.k = call.v = call.q;
    CHECK_THROWS_AS(flash_attention(call), NotModelled);
    FlashCall old = ones(4, 4);
    const FlashCall volta{find_gpu("v100"), old.build, old.q, old.k, old.v, false, -1, -1, old.scale, 80};
    CHECK_THROWS_AS(flash_attention(volta), NotModelled);
}

TEST_CASE("attention: the fast-math build differs from PyTorch's only where rounding can") {
    FlashCall call = ones(5, 300);
    const FlashCall fast{call.gpu, *find_flash_build("flash_attn.flash2"), call.q, call.k, call.v, false, -1, -1, call.scale, 132};
    const AttentionResult result = flash_attention(fast);
    for (std::int64_t i = 0; i < result.o.size(); ++i) CHECK(result.o.get(i) == one);
}

TEST_CASE("attention: what no capture of cuDNN's kernels covers is refused") {
    const auto tensor = [](std::int64_t length, std::int64_t d, std::uint64_t code = one) { return filled({1, 2, length, d}, code); };
    const std::string sm90 = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0";
    const auto run = [&](std::int64_t sq, std::int64_t sk, std::int64_t d, const std::string& params = "{}", const std::string& gpu = "h200", const std::string& kernel = "") {
        OpRequest op{.id = "a", .op = "attention", .gpu = find_gpu(gpu), .kernel = kernel, .kernel_names = {sm90}, .params = Params::parse(params, "m", ""),
                     .in = {{"q", tensor(sq, d)}, {"k", tensor(sk, d)}, {"v", tensor(sk, d)}}, .out_format = {}, .recorded = {}, .rows = {}, .cols = {}};
        return find_op("attention")(op).out.at("o");
    };
    CHECK(run(5, 300, 128).get(0) == one);
    CHECK(run(5, 5, 128, R"({"causal": true, "scale": 0.08838834764831845})").get(0) == one);
    CHECK(run(5, 5, 64, "{}", "h100").get(0) == one);
    CHECK(run(1, 32, 128, "{}", "h200", "cudnn.flash_sm80_32").get(0) == one);
    CHECK(run(1, 200, 128, "{}", "h200", "cudnn.flash_sm80_64").get(0) == one);
    CHECK_THROWS_AS(run(1, 300, 128), NotModelled);
    CHECK_THROWS_AS(run(5, 300, 128, R"({"causal": true})"), NotModelled);
    CHECK_THROWS_AS(run(5, 5, 128, R"({"scale": 0.1})"), NotModelled);
    CHECK_THROWS_AS(run(5, 5, 128, R"({"window": [3, 0]})"), NotModelled);
    CHECK_THROWS_AS(run(5, 5, 80), NotModelled);
    CHECK_THROWS_AS(run(5, 5, 128, "{}", "a100"), NotModelled);
    CHECK_THROWS_AS(run(1, 33, 128, "{}", "h200", "cudnn.flash_sm80_32"), NotModelled);
    CHECK_THROWS_AS(run(2, 32, 128, "{}", "h200", "cudnn.flash_sm80_32"), NotModelled);
    CHECK_THROWS_AS(run(1, 257, 128, "{}", "h200", "cudnn.flash_sm80_64"), NotModelled);
    CHECK_THROWS_AS(run(1, 200, 64, "{}", "h200", "cudnn.flash_sm80_64"), NotModelled);
    CHECK_THROWS_AS(run(5, 5, 128, R"({"dropout": 0.1})"), InputError);

    // Values of which the captures do not tell whether they are flushed to zero, or what NaN and infinity do.
    CudnnCall call{find_gpu("h200"), *find_cudnn_kernel("cudnn.flash_sm90"), tensor(3, 64), tensor(3, 64), tensor(3, 64)};
    const auto refused = [&] {
        int count = 0;
        for (const bool fast : {false, true}) try {
                cudnn_attention(call, {.fast = fast});
            } catch (const NotModelled&) {
                ++count;
            }
        REQUIRE(count != 1);
        return count == 2;
    };
    CHECK_FALSE(refused());
    call.v = tensor(3, 64, 0x0040);  // subnormal
    CHECK(refused());
    call.v = tensor(3, 64, 0x7F80);
    CHECK(refused());
    call.v = tensor(3, 64);
    call.k = tensor(3, 64);
    for (std::int64_t i = 0; i < 64; ++i) call.k.set(i, 0xC2C8);  // -100: scores of -800 beside 8
    CHECK(refused());
    call.k = tensor(3, 64, 0x7F00);
    call.q = call.k;
    CHECK(refused());  // scores beyond the largest number
}
