#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/convert.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

using Words = std::vector<std::uint32_t>;

/// Every exponent, with zeros, infinities, NaNs and subnormals well represented.
Words patterns(std::uint64_t stream, std::size_t n) {
    test::Random random(stream);
    const std::uint32_t corners[] = {0,
                                     0x80000000,
                                     1,
                                     0x80000001,
                                     0x007FFFFF,
                                     0x00800000,
                                     0x3F800000,
                                     0xBF800000,
                                     0x7F7FFFFF,
                                     0x7F800000,
                                     0xFF800000,
                                     0x7FC00000,
                                     0xFF800001,
                                     0x7FFFFFFF};
    Words out(n);
    for (std::uint32_t& bits : out) {
        bits = static_cast<std::uint32_t>(random.next());
        if (random.below(4) == 0) bits = corners[random.below(std::size(corners))];
        if (random.below(4) == 0) bits = (bits & 0x807FFFFF) | 0x3F800000;  // cancellation
    }
    return out;
}

}  // namespace

TEST_CASE("fp32 kernels: every row equals the scalar functions, at every length") {
    const auto rows = fp32_kernel_rows();
    REQUIRE(rows.size() >= 1);
    CHECK(rows.back()->name == "generic");
    std::int64_t compared = 0;
    for (const Fp32Kernels* row : rows) {
        INFO(std::string(row->name));
        for (const std::size_t n : std::initializer_list<std::size_t>{0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 100, 20000}) {
            const Words x = patterns(n, n), y = patterns(n + 1000, n), z = patterns(n + 2000, n);
            const std::uint32_t c = n == 0 ? 0x40490FDB : y[0];
            const auto check = [&](const char* what, const Words& got, auto scalar) {
                INFO(what << ", length " << n);
                std::int64_t different = 0;
                for (std::size_t i = 0; i < n; ++i) different += got[i] != scalar(i) ? 1 : 0;
                CHECK(different == 0);
                compared += static_cast<std::int64_t>(n);
            };
            Words out(n);
            row->add(x.data(), y.data(), out.data(), n);
            check("add", out, [&](std::size_t i) { return f32::add(x[i], y[i]); });
            row->mul(x.data(), y.data(), out.data(), n);
            check("mul", out, [&](std::size_t i) { return f32::mul(x[i], y[i]); });
            row->fma(x.data(), y.data(), z.data(), out.data(), n);
            check("fma", out, [&](std::size_t i) { return f32::fma(x[i], y[i], z[i]); });
            row->sub_scalar(x.data(), c, out.data(), n);
            check("sub_scalar", out, [&](std::size_t i) { return f32::sub(x[i], c); });
            row->mul_scalar(x.data(), c, out.data(), n);
            check("mul_scalar", out, [&](std::size_t i) { return f32::mul(x[i], c); });
            row->div_scalar(x.data(), c, out.data(), n);
            check("div_scalar", out, [&](std::size_t i) { return f32::div(x[i], c); });

            // In place, and strided: every second accumulator, every third element.
            Words acc = z;
            row->add(acc.data(), x.data(), acc.data(), n);
            check("add in place", acc, [&](std::size_t i) { return f32::add(z[i], x[i]); });
            const std::size_t m = n / 3;
            acc = z;
            row->add_strided(acc.data(), 2, x.data(), 3, m);
            check("add_strided", acc, [&](std::size_t i) {
                return i % 2 == 0 && i / 2 < m ? f32::add(z[i], x[i / 2 * 3]) : z[i];
            });
            acc = z;
            row->fma_strided(acc.data(), 2, x.data(), y.data(), 3, m);
            check("fma_strided", acc, [&](std::size_t i) {
                return i % 2 == 0 && i / 2 < m ? f32::fma(x[i / 2 * 3], y[i / 2 * 3], z[i]) : z[i];
            });

            for (const std::size_t width : {1U, 2U, 5U, 16U, 77U, 300U}) {
                const std::size_t rounds = n / width;
                if (rounds == 0) continue;
                acc = z;
                row->fma_rounds(x.data(), y.data(), width, rounds, acc.data());
                Words want = z;
                for (std::size_t j = 0; j < rounds * width; ++j) want[j % width] = f32::fma(x[j], y[j], want[j % width]);
                check("fma_rounds", acc, [&](std::size_t i) { return want[i]; });
                acc = z;
                row->fma_runs(x.data(), y.data(), width, rounds, acc.data());
                want = z;
                for (std::size_t j = 0; j < rounds * width; ++j) want[j / width] = f32::fma(x[j], y[j], want[j / width]);
                check("fma_runs", acc, [&](std::size_t i) { return want[i]; });
            }

            std::vector<std::byte> codes(2 * n + 1);
            row->round_bf16(x.data(), codes.data() + 1, n);  // an odd address
            Words rounded(n);
            for (std::size_t i = 0; i < n; ++i) std::memcpy(&rounded[i], codes.data() + 1 + 2 * i, 2);
            check("round_bf16", rounded, [&](std::size_t i) {
                return static_cast<std::uint32_t>(convert(fp32, bf16, x[i]));
            });
            row->widen_bf16(codes.data() + 1, out.data(), n);
            check("widen_bf16", out, [&](std::size_t i) { return rounded[i] << 16; });
        }
    }
    CHECK(compared == static_cast<std::int64_t>(rows.size()) * (11 * 20204 + 2 * 120869));
}

TEST_CASE("fp32 kernels: every row widens every fp16 code and transposes at every width") {
    for (const Fp32Kernels* row : fp32_kernel_rows()) {
        INFO(std::string(row->name));
        std::vector<std::uint16_t> codes(0x10000);
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
        Words out(codes.size());
        row->widen_fp16(reinterpret_cast<const std::byte*>(codes.data()), out.data(), out.size());
        std::int64_t different = 0;
        for (std::size_t i = 0; i < codes.size(); ++i) different += out[i] != convert(fp16, fp32, i) ? 1 : 0;
        CHECK(different == 0);

        for (const std::size_t columns : {16U, 32U, 48U, 64U}) {
            const std::size_t n = 36, stride = 41;
            const Words x = patterns(columns, columns * stride);
            Words turned(n * columns);
            row->transpose(x.data(), stride, n, turned.data(), columns);
            different = 0;
            for (std::size_t k = 0; k < n; ++k)
                for (std::size_t j = 0; j < columns; ++j) different += turned[k * columns + j] != x[j * stride + k] ? 1 : 0;
            CHECK(different == 0);
        }
    }
}
