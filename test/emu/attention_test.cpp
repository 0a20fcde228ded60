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
    op.kernel_names = {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0"};
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
