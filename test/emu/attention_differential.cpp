#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <optional>

#include "arch/fp32.hpp"
#include "arch/mufu.hpp"
#include "emu/attention.hpp"
#include "emu/compare.hpp"
#include "emu/simd/flash_rows.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

enum class Data { normal, wide, sparse, special };

/// Codes of `format`: sums of four bytes around 0; any exponent that keeps products finite; mostly zeros; some NaN and Inf.
Tensor random_tensor(test::Random& random, const Format& format, std::vector<std::int64_t> shape, Data data) {
    Tensor out(format, std::move(shape));
    for (std::int64_t i = 0; i < out.size(); ++i) {
        std::int64_t sum = -510;
        for (int n = 0; n < 4; ++n) sum += static_cast<std::int64_t>(random.below(256));
        int exponent = -7;
        if (data == Data::wide) exponent -= static_cast<int>(random.below(format == bf16 ? 60 : 16));
        if (data == Data::sparse && random.below(4) != 0) sum = 0;
        std::uint64_t code = round_pack(format, {sum < 0, static_cast<Uint128>(sum < 0 ? -sum : sum), exponent});
        if (data == Data::special && random.below(500) == 0)
            code = random.below(2) == 0 ? format.canonical_nan() : format.infinity() | (random.below(2) == 0 ? format.sign_mask() : 0);
        out.set(i, code);
    }
    return out;
}

struct Sizes {
    std::int64_t b, h, hk, sq, sk, d;
    bool causal;
    std::int64_t left, right;
};

}  // namespace

TEST_CASE("attention: every instruction set equals the scalar definition") {
    test::Random random(71);
    constexpr std::array<Sizes, 9> shapes{{{1, 2, 1, 70, 70, 64, true, -1, -1},
                                           {1, 1, 1, 130, 150, 40, false, -1, -1},
                                           {1, 4, 2, 1, 300, 128, false, -1, -1},
                                           {2, 1, 1, 33, 200, 128, true, -1, -1},
                                           {1, 1, 1, 150, 60, 32, true, -1, -1},
                                           {1, 1, 1, 140, 140, 72, false, 30, 10},
                                           {1, 1, 1, 90, 90, 256, false, 20, -1},
                                           {1, 300, 300, 5, 70, 16, true, -1, -1},
                                           {1, 150, 50, 70, 9, 8, true, -1, -1}}};
    std::int64_t compared = 0, specials = 0;
    int kernels = 0;
    for (const char* gpu : {"h200", "a100"})
        for (const Format& format : {bf16, fp16})
            for (const Data data : {Data::normal, Data::wide, Data::sparse, Data::special})
                for (const Sizes& s : shapes) {
                    FlashCall call{find_gpu(gpu), *find_flash_build("torch.flash2"), random_tensor(random, format, {s.b, s.h, s.sq, s.d}, data),
                                   random_tensor(random, format, {s.b, s.hk, s.sk, s.d}, data),
                                   random_tensor(random, format, {s.b, s.hk, s.sk, s.d}, data)};
                    call.causal = s.causal;
                    call.window_left = s.left;
                    call.window_right = s.right;
                    call.scale = default_attention_scale(s.d);
                    call.multiprocessors = 132;
                    const AttentionResult expected = flash_attention(call, {.fast = false});
                    for (const simd::FlashRowKernels* row : simd::flash_row_kernels()) {
                        const AttentionResult actual = flash_attention(call, {.fast = true, .isa = row->name});
                        INFO(gpu << ' ' << named(format).name << ' ' << static_cast<int>(data) << ' ' << row->name << ' ' << describe(call.q));
                        const Comparison o = compare(expected.o, actual.o), lse = compare(expected.lse, actual.lse);
                        REQUIRE(o.different == 0);
                        REQUIRE(lse.different == 0);
                        compared += o.compared + lse.compared;
                        ++kernels;
                    }
                    for (std::int64_t i = 0; i < expected.o.size(); ++i) specials += is_nan(format, expected.o.get(i)) ? 1 : 0;
                }
    if (kernels == 0) return test::skip("this CPU has no kernels");
    CHECK(kernels % (2 * 2 * 4 * 9) == 0);
    CHECK(compared > 1'000'000);
    CHECK(specials > 1000);
}

TEST_CASE("attention: cuDNN's kernels, every instruction set equals the scalar definition or refuses what it refuses") {
    test::Random random(73);
    struct Case {
        const char* kernel;
        std::int64_t h, hk, sq, sk, d;
        bool causal;
    };
    constexpr std::array<Case, 7> cases{{{"cudnn.flash_sm90", 2, 1, 70, 70, 64, true},
                                         {"cudnn.flash_sm90", 1, 1, 300, 300, 128, true},
                                         {"cudnn.flash_sm90", 2, 2, 65, 200, 96, false},
                                         {"cudnn.flash_sm90", 1, 1, 3, 300, 256, false},
                                         {"cudnn.flash_sm80_32", 4, 2, 1, 31, 64, false},
                                         {"cudnn.flash_sm80_64", 4, 4, 1, 64, 128, false},
                                         {"cudnn.flash_sm80_64", 2, 1, 1, 250, 128, false}}};
    const auto attempt = [](const CudnnCall& call, const FlashEngine& engine) -> std::optional<AttentionResult> {
        try {
            return cudnn_attention(call, engine);
        } catch (const NotModelled&) {
            return std::nullopt;
        }
    };
    std::int64_t compared = 0;
    int refused = 0, kernels = 0;
    for (const Format& format : {bf16, fp16})
        for (const Data data : {Data::normal, Data::wide, Data::sparse})
            for (const Case& c : cases) {
                CudnnCall call{find_gpu("h200"), *find_cudnn_kernel(c.kernel), random_tensor(random, format, {2, c.h, c.sq, c.d}, data),
                               random_tensor(random, format, {2, c.hk, c.sk, c.d}, data), random_tensor(random, format, {2, c.hk, c.sk, c.d}, data), c.causal};
                const auto expected = attempt(call, {.fast = false});
                refused += expected ? 0 : 1;
                for (const simd::FlashRowKernels* row : simd::flash_row_kernels()) {
                    const auto actual = attempt(call, {.fast = true, .isa = row->name});
                    INFO(c.kernel << ' ' << named(format).name << ' ' << static_cast<int>(data) << ' ' << row->name << ' ' << describe(call.q));
                    REQUIRE(expected.has_value() == actual.has_value());
                    ++kernels;
                    if (!expected) continue;
                    const Comparison o = compare(expected->o, actual->o), lse = compare(expected->lse, actual->lse);
                    REQUIRE(o.different == 0);
                    REQUIRE(lse.different == 0);
                    compared += o.compared + lse.compared;
                }
            }
    if (kernels == 0) return test::skip("this CPU has no kernels");
    CHECK(kernels % (2 * 3 * 7) == 0);
    CHECK(compared > 500'000);
    CHECK(refused < 10);
}

TEST_CASE("attention: the vector ex2 equals the scalar one") {
    const Mufu& unit = mufu(find_gpu("h200"));
    std::vector<double> constant, linear, square;
    for (const Mufu::Row& row : unit.ex2_curve().rows) {
        constant.push_back(static_cast<double>(row.constant));
        linear.push_back(static_cast<double>(row.linear));
        square.push_back(static_cast<double>(row.square));
    }
    const simd::Ex2Table table{constant.data(), linear.data(), square.data(), unit.ex2_curve().low_bits};
    test::Random random(72);
    std::int64_t compared = 0, subnormal = 0;
    for (const simd::FlashRowKernels* row : simd::flash_row_kernels()) {
        std::vector<float> x;
        // Every exponent from the smallest subnormal to -infinity, both ends of each binade, and random fractions.
        for (std::uint32_t field = 0; field < 255; ++field)
            for (std::uint32_t n = 0; n < 256; ++n) {
                const std::uint32_t fraction = n == 0 ? 0 : n == 1 ? 0x7FFFFF : static_cast<std::uint32_t>(random.below(1U << 23));
                x.push_back(std::bit_cast<float>(0x80000000U | field << 23 | fraction));
            }
        for (std::uint32_t n = 0; n < 32 * 256; ++n)  // where results become subnormal, and zero
            x.push_back(std::bit_cast<float>(0xC2F00000U + static_cast<std::uint32_t>(random.below(0x400000))));
        for (int n = 0; n < 64; ++n) x.push_back(n % 2 == 0 ? 0.0F : -__builtin_inff());
        REQUIRE(x.size() % simd::flash_rows == 0);
        std::vector<float> y = x;
        row->exp2(y.data(), static_cast<std::int64_t>(y.size()) / simd::flash_rows, table);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::uint32_t expected = unit.ex2(std::bit_cast<std::uint32_t>(x[i]));
            if (std::bit_cast<std::uint32_t>(y[i]) != expected) {
                CAPTURE(row->name, std::bit_cast<std::uint32_t>(x[i]));
                REQUIRE(std::bit_cast<std::uint32_t>(y[i]) == expected);
            }
            ++compared;
            subnormal += expected != 0 && expected < 0x00800000 ? 1 : 0;
        }
    }
    if (compared == 0) return test::skip("this CPU has no kernels");
    CHECK(compared % (255 * 256 + 32 * 256 + 64) == 0);
    CHECK(subnormal > 100);
}
