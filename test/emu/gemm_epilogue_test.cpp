#include "emu/gemm_epilogue.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <bit>

#include "arch/fp32.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

using namespace bitreplay;

namespace {

using Order = RecipeAddend::Order;

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

Tensor vector(const Format& format, const std::vector<float>& values, std::vector<std::int64_t> shape) {
    Tensor out(format, std::move(shape));
    for (std::size_t i = 0; i < values.size(); ++i)
        out.set(static_cast<std::int64_t>(i), convert(fp32, format, bits(values[i])));
    return out;
}

/// One output of one accumulator (or of several parts).
std::uint64_t one(const GemmEpilogue& epilogue, const std::vector<float>& parts, const Format& result = fp32) {
    std::vector<Tensor> tensors;
    for (const float part : parts) tensors.push_back(vector(fp32, {part}, {1, 1}));
    constexpr std::array<std::int64_t, 1> zero{0};
    return apply_epilogue(epilogue, tensors, {0, zero, zero}, result).get(0);
}

GemmEpilogue with_c(float c, float alpha, float beta, std::vector<Order> orders) {
    GemmEpilogue out;
    out.addend = Addend(vector(fp32, {c}, {1, 1}), 1, 1, 1);
    out.alpha = bits(alpha);
    out.beta = bits(beta);
    out.orders = std::move(orders);
    return out;
}

}  // namespace

TEST_CASE("epilogue: each order of alpha and beta rounds where it says") {
    // acc, c, alpha, beta of the captured call h200/gemm2 c566, output [0, 16, 26]: the three orders differ.
    const float acc = 0x1p-16F, c = 0.001153022050857544F, alpha = 1.3F, beta = 0.7F;
    const std::uint64_t first = one(with_c(c, alpha, beta, {Order::fma_alpha}), {acc});
    const std::uint64_t second = one(with_c(c, alpha, beta, {Order::fma_beta}), {acc});
    CHECK(first == f32::fma(bits(alpha), bits(acc), f32::mul(bits(beta), bits(c))));
    CHECK(second == bits(0.0008269518730230629F));  // what the GPU returned
    CHECK(first != second);
    CHECK(one(with_c(c, alpha, beta, {Order::separate}), {acc}) ==
          f32::add(f32::mul(bits(alpha), bits(acc)), f32::mul(bits(beta), bits(c))));
    // Rounded to bf16 before c is added: 1 + 3/8 of a step becomes 1, and a quarter more is not enough.
    CHECK(one(with_c(0x1p-9F, 1, 1, {Order::rounded}), {1 + 0x1.8p-9F}, bf16) == convert(fp32, bf16, bits(1)));
    CHECK(one(with_c(0x1p-9F, 1, 1, {Order::fma_alpha}), {1 + 0x1.8p-9F}, bf16) ==
          convert(fp32, bf16, bits(1 + 0x1p-7F)));
}

TEST_CASE("epilogue: of several possible orders all must agree on the output") {
    const float acc = 0x1p-16F, c = 0.001153022050857544F;
    const std::vector<Order> unknown{Order::fma_alpha, Order::fma_beta, Order::separate};
    CHECK_THROWS_AS(one(with_c(c, 1.3F, 0.7F, unknown), {acc}), NotModelled);
    CHECK(one(with_c(c, 1.3F, 0.7F, unknown), {acc}, bf16) ==
          convert(fp32, bf16, bits(0.000826951846F)));  // rounding hides it
    CHECK(one(with_c(c, 1, 1, unknown), {acc}) == f32::add(bits(acc), bits(c)));
}

TEST_CASE("epilogue: a bias enters the accumulator, the rounded result or the first part") {
    GemmEpilogue epilogue;
    epilogue.addend = Addend(vector(bf16, {0x1p-9F}, {1}), 1, 1, 1);
    epilogue.bias = RecipeBias::Add::accumulator;
    const auto as_bf16 = [](float x) { return convert(fp32, bf16, bits(x)); };
    CHECK(one(epilogue, {1 + 0x1.8p-9F}, bf16) == as_bf16(1 + 0x1p-7F));
    epilogue.bias = RecipeBias::Add::rounded;
    CHECK(one(epilogue, {1 + 0x1.8p-9F}, bf16) == as_bf16(1));
    epilogue.bias = RecipeBias::Add::first_part;
    REQUIRE(epilogue.needs_parts());
    // Half a step each, lost one after the other: (1 + bias) rounds to 1, and so does 1 + the second part.
    epilogue.addend = Addend(vector(bf16, {0x1p-8F}, {1}), 1, 1, 1);
    CHECK(one(epilogue, {1, 0x1p-8F}, bf16) == as_bf16(1));
    CHECK(one(epilogue, {1 + 0x1p-8F, 0x1p-8F}, bf16) == as_bf16(1 + 0x1p-6F));
}

TEST_CASE("epilogue: scales multiply in their order, tensor-wise and per row and column") {
    GemmEpilogue epilogue;
    epilogue.row_scale = {bits(1.1F)};
    epilogue.col_scale = {bits(1.3F)};
    CHECK(one(epilogue, {1.7F}) == f32::mul(bits(1.7F), f32::mul(bits(1.1F), bits(1.3F))));
    epilogue.row_scale = {bits(1.1F), bits(9.0F)};
    epilogue.col_scale = {bits(1.3F), bits(9.0F)};
    CHECK(one(epilogue, {1.7F}) == f32::mul(f32::mul(bits(1.7F), bits(1.3F)), bits(1.1F)));
}

TEST_CASE("epilogue: GELU of the biased accumulator") {
    GemmEpilogue epilogue;
    const Mufu& unit = mufu(find_gpu("h200"));
    epilogue.gelu = &unit;
    epilogue.addend = Addend(vector(fp32, {0.5F}, {1}), 1, 1, 1);
    epilogue.bias = RecipeBias::Add::accumulator;
    const std::uint32_t x = bits(1.25F), u = f32::mul(x, f32::fma(f32::mul(x, 0x3D12227E), x, 0x3F4C422A));
    CHECK(one(epilogue, {0.75F}) == f32::fma(bits(0.625F), unit.tanh(u), bits(0.625F)));
    CHECK(std::bit_cast<float>(static_cast<std::uint32_t>(one(epilogue, {-0.5F}))) == 0.0F);
}

TEST_CASE("epilogue: an addend is broadcast as torch does") {
    const Tensor full = vector(fp32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 2, 3});
    const auto value = [](const Addend& a, std::int64_t entry, std::int64_t row, std::int64_t col) {
        return std::bit_cast<float>(a.at(entry, row, col));
    };
    CHECK(value(Addend(full, 2, 2, 3), 1, 0, 2) == 8);
    CHECK(value(Addend(full.reshape({4, 3}), 1, 4, 3), 0, 3, 1) == 10);
    CHECK(value(Addend(vector(bf16, {5, 6, 7}, {3}), 2, 2, 3), 1, 1, 2) == 7);
    CHECK(value(Addend(vector(bf16, {5, 6}, {2, 1}), 2, 2, 3), 1, 1, 2) == 6);
    CHECK(value(Addend(vector(fp16, {5}, {}), 2, 2, 3), 1, 1, 2) == 5);
    CHECK_THROWS_AS(Addend(full, 2, 3, 2), InputError);
    CHECK_THROWS_AS(Addend(full, 1, 2, 3), InputError);
    CHECK(Addend().empty());
}
