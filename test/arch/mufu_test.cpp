#include "arch/mufu.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "formats/error.hpp"

using namespace bitreplay;

namespace {

/// The definition: a sum of partial products, those below the cut left out.
std::int64_t square_by_definition(std::uint32_t x, int bits) {
    const int cut = 2 * bits - 15;
    std::int64_t sum = 0;
    for (int i = 0; i < bits; ++i) {
        if (((x >> i) & 1) == 0) continue;
        if (2 * i >= cut) sum += std::int64_t{1} << (2 * i);
        for (int j = i + 1; j < bits; ++j)
            if (((x >> j) & 1) != 0 && i + j + 1 >= cut) sum += std::int64_t{1} << (i + j + 1);
    }
    return sum >> cut;
}

std::string broken(const std::string& from, const std::string& to) {
    std::string text(mufu_json("sm80_sm90"));
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("mufu: the truncated square equals the sum of its partial products for every number") {
    int compared = 0, different = 0;
    for (const int bits : {16, 17})
        for (std::uint32_t x = 0; x < 1U << bits; ++x, ++compared)
            different += mufu_square(x, bits) != square_by_definition(x, bits) ? 1 : 0;
    CHECK(compared == 65536 + 131072);
    CHECK(different == 0);
}

TEST_CASE("mufu: special cases of every function") {
    constexpr std::uint32_t nan = 0x7FFFFFFF, inf = 0x7F800000, minus_inf = 0xFF800000, minus = 0x80000000, one = 0x3F800000;
    const Mufu& unit = mufu_table("sm80_sm90");
    struct Case {
        const char* ptx;
        std::uint32_t x, want;
    };
    const Case cases[] = {
        {"rcp.approx.ftz.f32", 0, inf},            {"rcp.approx.ftz.f32", minus, minus_inf},
        {"rcp.approx.ftz.f32", 1, inf},            {"rcp.approx.ftz.f32", minus_inf, minus},
        {"rcp.approx.ftz.f32", one, one},          {"rcp.approx.ftz.f32", 0x7F000000, 0},
        {"rcp.approx.f32", 1, inf},                {"rcp.approx.f32", 0x80000001, minus_inf},
        {"rcp.approx.f32", 0x7F000000, 0x00400000}, {"rcp.approx.f32", inf, 0},
        {"rsqrt.approx.ftz.f32", 0, inf},          {"rsqrt.approx.ftz.f32", minus, minus_inf},
        {"rsqrt.approx.ftz.f32", 0xBF800000, nan}, {"rsqrt.approx.ftz.f32", 0x40800000, 0x3F000000},
        {"rsqrt.approx.f32", 0x80000001, nan},     {"rsqrt.approx.ftz.f32", inf, 0},
        {"sqrt.approx.ftz.f32", minus, minus},     {"sqrt.approx.ftz.f32", 0x807FFFFF, minus},
        {"sqrt.approx.f32", 0x807FFFFF, nan},      {"sqrt.approx.f32", inf, inf},
        {"ex2.approx.ftz.f32", 0, one},            {"ex2.approx.ftz.f32", 0x43000000, inf},
        {"ex2.approx.ftz.f32", 0xC2FC0000, 0x00800000}, {"ex2.approx.ftz.f32", 0xC2FE0000, 0},
        {"ex2.approx.f32", 0xC3000000, 0x00200000}, {"ex2.approx.f32", minus_inf, 0},
        {"lg2.approx.ftz.f32", one, 0},            {"lg2.approx.ftz.f32", minus, minus_inf},
        {"lg2.approx.ftz.f32", 1, minus_inf},      {"lg2.approx.f32", 1, 0xC3150000},
        {"lg2.approx.f32", 0x80000001, nan},       {"lg2.approx.f32", 0xBF800000, nan},
        {"sin.approx.f32", minus, minus},          {"sin.approx.f32", inf, nan},
        {"cos.approx.f32", minus, one},            {"cos.approx.ftz.f32", 1, one},
        {"tanh.approx.f32", 1, 1},                 {"tanh.approx.f32", minus_inf, 0xBF800000},
        {"ex2.approx.f16", 0x4C00, 0x7C00},        {"tanh.approx.bf16", 0xFFC0, 0x7FFF},
    };
    for (const Case& item : cases) {
        INFO(item.ptx << " of " << std::hex << item.x);
        CHECK((unit.*find_mufu_form(item.ptx).function)(item.x) == item.want);
    }
    for (const MufuForm& form : mufu_forms()) {
        const auto any_nan = static_cast<std::uint32_t>(form.format.infinity() | form.format.sign_mask() | 1);
        INFO(form.ptx);
        CHECK((unit.*form.function)(any_nan) == form.format.canonical_nan());
    }
}

TEST_CASE("mufu: names and GPUs without a model are refused") {
    CHECK(mufu_forms().size() == 23);
    CHECK_THROWS_AS(find_mufu_form("ex2.approx"), NotModelled);
    CHECK_THROWS_AS(find_mufu_form("ex2.approx.ftz.f16"), NotModelled);
    CHECK_THROWS_AS(mufu_table("sm70"), InputError);
    int with = 0;
    for (const std::string& name : gpu_names()) {
        if (!find_gpu(name).mufu) {
            CHECK_THROWS_AS(mufu(find_gpu(name)), NotModelled);
            continue;
        }
        ++with;
        CHECK(&mufu(find_gpu(name)) == &mufu_table("sm80_sm90"));
    }
    CHECK(with == 13);
    CHECK(find_gpu("h200").mufu->evidence.level == Evidence::Level::measured);
    CHECK(find_gpu("l40s").mufu->evidence.level == Evidence::Level::published);
    CHECK(find_gpu("rtx4090").mufu->evidence.level == Evidence::Level::unverified);
}

TEST_CASE("mufu: a table file is read strictly and all tables are small") {
    std::size_t bytes = 0;
    for (const std::string_view name : mufu_names()) bytes += mufu_json(name).size();
    CHECK(bytes > 1000);
    CHECK(bytes <= 65536);
    CHECK_NOTHROW(Mufu::parse(mufu_json("sm80_sm90"), "t.json"));
    const std::pair<const char*, const char*> changes[] = {
        {"\"offset\"", "\"ofset\""},          {"\"offset\": 2023", "\"offset\": 2023.5"}, {"\"low_bits\": 16", "\"low_bits\": 17"},
        {"67108864, ", ""},                   {"67108864", "\"67108864\""},               {"\"sum_fraction\": 39", "\"sum_fraction\": 90"},
        {"\"exponent\": -8", "\"exponent\": -7"}, {"\"first_row\": 1", "\"first_row\": 2"}, {"\"row_bits\": 0", "\"row_bits\": 1"},
        {"\"title\"", "\"titel\""},           {"\"rcp\"", "\"rpc\""},
    };
    for (const auto& [from, to] : changes) {
        INFO(from << " -> " << to);
        CHECK_THROWS_AS(Mufu::parse(broken(from, to), "t.json"), InputError);
    }
}
