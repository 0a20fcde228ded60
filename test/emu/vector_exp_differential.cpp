#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "emu/cuda_math.hpp"
#include "emu/vector_exp.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// All 2^16 high halves with low halves that walk, and the edges of each half: specials included.
std::vector<std::uint32_t> inputs() {
    std::vector<std::uint32_t> out;
    for (std::uint32_t high = 0; high < 65536; ++high) {
        for (std::uint32_t low = high * 7 % 1021; low < 65536; low += 1021) out.push_back(high << 16 | low);
        for (const std::uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0xFFFFU}) out.push_back(high << 16 | low);
    }
    return out;
}

std::size_t differences(const std::vector<std::uint32_t>& x, const std::vector<std::uint32_t>& y) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < x.size(); ++i) n += x[i] != y[i] ? 1U : 0U;
    return n;
}

}  // namespace

TEST_CASE("vector exp: every kernel of this CPU equals the scalar functions") {
    const Mufu& unit = mufu_table("sm80_sm90");
    const std::vector<std::uint32_t> in = inputs();
    REQUIRE(in.size() > 4'000'000);
    using Words = std::vector<std::uint32_t>;
    Words ex2_ftz(in.size()), ex2(in.size()), expf(in.size()), power(in.size()), scale(in.size());
    const VectorExp scalar(unit, "scalar");
    CHECK(scalar.kernel() == "scalar");
    scalar.ex2_ftz(in, ex2_ftz);
    scalar.ex2(in, ex2);
    scalar.expf(in, expf);
    scalar.exp_parts(in, power, scale);
    CHECK(std::count(ex2.begin(), ex2.end(), 0x7FFFFFFFU) > 10000);
    CHECK(differences(ex2, ex2_ftz) > 100);  // subnormal results
    int kernels = 0;
    for (const std::string_view name : VectorExp::kernels()) {
        if (name == "scalar") continue;
        INFO(name);
        const VectorExp fast(unit, name);
        CHECK(fast.kernel() == name);
        Words out(in.size()), other(in.size());
        fast.ex2_ftz(in, out);
        CHECK(differences(out, ex2_ftz) == 0);
        fast.ex2(in, out);
        CHECK(differences(out, ex2) == 0);
        out = in;
        fast.expf(out, out);  // in place
        CHECK(differences(out, expf) == 0);
        fast.exp_parts(in, out, other);
        CHECK(differences(out, power) == 0);
        CHECK(differences(other, scale) == 0);
        ++kernels;
    }
    std::size_t supported = 0;
    for (const simd::ExpRow& row : simd::exp_rows()) supported += row.supported() ? 1U : 0U;
    CHECK(kernels == static_cast<int>(supported));
    if (kernels == 0) test::skip("this CPU has none of the instruction sets");
}

TEST_CASE("vector exp: any length, nothing written beyond the end") {
    const Mufu& unit = mufu_table("sm80_sm90");
    test::Random random(41);
    int compared = 0;
    for (const std::string_view name : VectorExp::kernels()) {
        const VectorExp fast(unit, name);
        for (std::size_t n = 0; n < 70; ++n) {
            std::vector<std::uint32_t> in(n), out(n + 1, 0xDEADBEEF), scale(n + 1, 0xDEADBEEF);
            for (std::uint32_t& x : in) x = 0xC0000000U + static_cast<std::uint32_t>(random.below(0x1000000));
            fast.expf(in, std::span(out).first(n));
            for (std::size_t i = 0; i < n; ++i, ++compared) REQUIRE(out[i] == cuda::expf(unit, in[i]));
            CHECK(out[n] == 0xDEADBEEF);
            fast.exp_parts(in, std::span(out).first(n), std::span(scale).first(n));
            CHECK((out[n] == 0xDEADBEEF && scale[n] == 0xDEADBEEF));
        }
    }
    CHECK(compared >= 69 * 35);
    CHECK_THROWS_AS(VectorExp(unit, "avx9"), InputError);
}

TEST_CASE("vector exp: a table that does not fit the lanes falls back to the scalar function") {
    std::string text(mufu_json("sm80_sm90"));
    const std::string from = "\"sum_fraction\": 38, \"offset\": 6114";
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), "\"sum_fraction\": 39, \"offset\": 6114");
    const Mufu unit = Mufu::parse(text, "t.json");
    CHECK(VectorExp(unit).kernel() == "scalar");
}
