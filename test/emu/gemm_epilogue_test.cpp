#include "emu/gemm_epilogue.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "arch/fp32.hpp"
#include "arch/gpu.hpp"
#include "emu/indices.hpp"
#include "emu/io/sha256.hpp"
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
    out.alpha = static_cast<double>(alpha);
    out.beta = static_cast<double>(beta);
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

TEST_CASE("epilogue: GELU of the biased accumulator, in the kernel and after it") {
    GemmEpilogue epilogue;
    const Mufu& unit = mufu(find_gpu("h200"));
    epilogue.gelu = &unit;
    epilogue.addend = Addend(vector(fp32, {0.5F}, {1}), 1, 1, 1);
    epilogue.bias = RecipeBias::Add::accumulator;
    const std::uint32_t x = bits(1.25F), half = bits(0.625F), one_ = bits(1);
    const std::uint32_t after = f32::mul(f32::mul(x, 0x3F4C422A), f32::fma(f32::mul(x, 0x3D372713), x, one_));
    CHECK(one(epilogue, {0.75F}) == f32::mul(half, f32::add(one_, unit.tanh(after))));
    CHECK(one(epilogue, {-10.5F}) == 0x80000000U);  // -5·(1 + -1)
    epilogue.gelu_in_kernel = true;
    const std::uint32_t own = f32::mul(x, f32::fma(f32::mul(x, 0x3D12227E), x, 0x3F4C422A));
    CHECK(one(epilogue, {0.75F}) == f32::fma(half, unit.tanh(own), half));
    CHECK(one(epilogue, {-10.5F}) == 0);
}

TEST_CASE("epilogue: GELU of every bf16 and fp16 value is what the H200 returned") {
    // SHA-256 of the outputs of _addmm_activation(zeros, x, w, use_gelu=True), torch 2.11, cuBLASLt 13.1. In the kernel
    // (nvjet ..._gelubias_TNT): x one value per row, K = 64, w all ones at k = 0; every code, NaN replaced by 0. After
    // split-K (nvjet ..._splitK_gelubias_, K = 4096, 8192 and 16384 alike): every normal value as 1.m times ±2^e,
    // columns filled up with zeros to a multiple of 8.
    struct Case {
        Format format;
        std::string_view in_kernel, after;
    };
    for (const Case& one : {Case{bf16,
                                 "d98c5fd080923cf29812b6121f23cc5ab972d84117cf91cc409557f8f950f88e",
                                 "135a9ae5e766fd24a8b7ab3054393b15f2327669dcd367fadd22f517e6fea69f"},
                            Case{fp16,
                                 "ee66b032e52c69e15674b4c0ad9a83a1fec837145b2f543acf9fe50325f3f6ec",
                                 "4aae91f7b5c526470f7aa71c27b8d9bf24678135c310abe9b6e46bae1509e905"}}) {
        const Format& format = one.format;
        std::vector<float> codes, products;
        for (std::uint32_t code = 0; code < 0x10000; ++code) {
            const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(convert(format, fp32, code)));
            codes.push_back(std::isnan(x) ? 0.0F : x);
        }
        const int fractions = 1 << format.fraction_bits, lowest = format.min_exponent(),
                  highest = format.max_exponent();
        const int exponents = highest - lowest + 1, columns = (2 * exponents + 7) / 8 * 8;
        for (int i = 0; i < fractions; ++i)
            for (int j = 0; j < columns; ++j) {
                const float x =
                    std::ldexp(1 + static_cast<float>(i) / static_cast<float>(fractions), lowest + j % exponents);
                products.push_back(j < exponents ? x : j < 2 * exponents ? -x : 0.0F);
            }
        for (const bool in_kernel : {true, false}) {
            const std::vector<float>& x = in_kernel ? codes : products;
            GemmEpilogue gelu;
            gelu.gelu = &mufu(find_gpu("h200"));
            gelu.gelu_in_kernel = in_kernel;
            const auto rows = all_indices(std::ssize(x));
            constexpr std::array<std::int64_t, 1> column{0};
            const std::array<Tensor, 1> sums{vector(fp32, x, {std::ssize(x), 1})};
            const Tensor out = apply_epilogue(gelu, sums, {0, rows, column}, format);
            REQUIRE(out.size() >= 60000);
            CHECK(sha256_hex(out.bytes()) == (in_kernel ? one.in_kernel : one.after));
        }
    }
}

TEST_CASE("epilogue: RELU, and what it does to a NaN is not known") {
    GemmEpilogue epilogue;
    epilogue.relu = true;
    epilogue.addend = Addend(vector(fp32, {0.5F}, {1}), 1, 1, 1);
    epilogue.bias = RecipeBias::Add::accumulator;
    CHECK_FALSE(epilogue.empty());
    CHECK(one(epilogue, {-2}) == 0);
    CHECK(one(epilogue, {2}) == bits(2.5F));
    CHECK_THROWS_AS(one(epilogue, {std::numeric_limits<float>::quiet_NaN()}), NotModelled);
}

TEST_CASE("epilogue: alpha multiplies every part of a serial reduction, each sum is rounded") {
    const auto as_bf16 = [](std::uint32_t x) {
        return static_cast<std::uint32_t>(convert(bf16, fp32, convert(fp32, bf16, x)));
    };
    const std::uint32_t alpha = bits(1.3F), beta = bits(0.7F), c = bits(0.011F), p = bits(1.2345F), q = bits(0.00777F);
    const std::uint32_t first_alpha = as_bf16(f32::fma(alpha, p, f32::mul(beta, c))),
                        first_beta = as_bf16(f32::fma(beta, c, f32::mul(alpha, p)));
    CHECK(one(with_c(0.011F, 1.3F, 0.7F, {Order::serial_fma_alpha}), {1.2345F, 0.00777F}, bf16) ==
          convert(fp32, bf16, f32::fma(alpha, q, first_alpha)));
    CHECK(one(with_c(0.011F, 1.3F, 0.7F, {Order::serial_fma_beta}), {1.2345F, 0.00777F}, bf16) ==
          convert(fp32, bf16, f32::add(first_beta, f32::mul(alpha, q))));
    CHECK(one(with_c(0.011F, 1.3F, 0.7F, {Order::serial_fma_alpha}), {1.2345F}) ==
          f32::fma(alpha, p, f32::mul(beta, c)));  // one part
}

TEST_CASE("epilogue: FP16 and FP64 kernels compute in their own format") {
    GemmEpilogue half = with_c(0.3F, 1.3F, 0.7F, {Order::fma_alpha});
    half.math = fp16;
    const auto f16 = [](double x) { return convert(fp64, fp16, std::bit_cast<std::uint64_t>(x)); };
    const auto wide = [](std::uint64_t x) { return std::bit_cast<double>(convert(fp16, fp64, x)); };
    const double alpha = wide(f16(1.3)), beta = wide(f16(0.7)), c = wide(f16(0.3)), acc = 1.5;
    CHECK(one(half, {1.5F}, fp16) == f16(alpha * acc + wide(f16(beta * c))));  // exact in double, then one rounding
    half.orders = {Order::fma_beta};
    CHECK(one(half, {1.5F}, fp16) == f16(beta * c + wide(f16(alpha * acc))));

    GemmEpilogue wide64 = with_c(0.3F, 0, 0, {Order::fma_alpha});
    wide64.alpha = 1.3;
    wide64.beta = 0.7;
    wide64.math = fp64;
    const auto code = [](double x) { return std::bit_cast<std::uint64_t>(x); };
    const std::uint64_t c64 = code(static_cast<double>(0.3F)), acc64 = code(1.5);
    CHECK(one(wide64, {1.5F}, fp64) == f64::fma(code(1.3), acc64, f64::mul(code(0.7), c64)));
    wide64.orders = {Order::fma_beta};
    CHECK(one(wide64, {1.5F}, fp64) == f64::fma(code(0.7), c64, f64::mul(code(1.3), acc64)));
}

TEST_CASE("epilogue: an addend is broadcast as torch does") {
    const Tensor full = vector(fp32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 2, 3});
    const auto value = [](const Addend& a, std::int64_t entry, std::int64_t row, std::int64_t col) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(a.at(entry, row, col)));
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
