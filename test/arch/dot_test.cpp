#include "arch/dot.hpp"

#include <catch2/catch.hpp>

#include "arch/fp32.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

using namespace bitreplay;

namespace {

/// A code of `f` for a small exact value numerator * 2^exponent.
std::uint64_t code(const Format& f, int numerator, int exponent) {
    return round_pack(f, {numerator < 0, static_cast<Uint128>(numerator < 0 ? -numerator : numerator), exponent});
}

struct Factor {
    int numerator, exponent;  // numerator * 2^exponent
};

/// Every rule with these operand formats and result among the GPUs of one architecture; at least one.
std::vector<const DotRule*> rules_of(int sm, std::string_view family, const Format& a, const Format& d) {
    std::vector<const DotRule*> out;
    for (const std::string& name : gpu_names()) {
        const Gpu& gpu = find_gpu(name);
        if (gpu.sm != sm) continue;
        for (const DotRule& rule : gpu.dot)
            if (rule.family == family && rule.types.a == a && rule.types.b == a && rule.types.d == d)
                out.push_back(&rule);
    }
    return out;
}

std::uint64_t dot(const DotRule& rule, const std::vector<Factor>& a, const std::vector<Factor>& b, Factor c) {
    REQUIRE(a.size() == b.size());
    std::vector<Operand> x, y;
    for (const Factor& f : a)
        x.push_back(decode_operand(rule.types.a, rule.unit_a, code(rule.types.a, f.numerator, f.exponent)));
    for (const Factor& f : b)
        y.push_back(decode_operand(rule.types.b, rule.unit_b, code(rule.types.b, f.numerator, f.exponent)));
    return dot_add(rule, x, y, code(rule.types.c, c.numerator, c.exponent));
}

constexpr std::uint64_t zero = 0, minus_half = 0xBF000000, minus_three_quarters = 0xBF400000;

}  // namespace

TEST_CASE("dot: 2^23 - 2^23 - 0.5 - 0.25 - 0.125 tells the architectures apart (MMA-Sim, table 8)") {
    const std::vector<Factor> a{{-1, 13}, {-1, -1}, {-1, -2}, {-1, -3}}, b{{1, 10}, {1, 0}, {1, 0}, {1, 0}};
    struct Row {
        int sm;
        Format format;
        std::uint64_t want;
    };
    const Row rows[] = {
        {70, fp16, zero},
        {75, fp16, minus_half},
        {80, fp16, minus_half},
        {80, bf16, minus_half},
        {80, tf32, minus_half},
        {86, fp16, minus_half},
        {86, bf16, minus_half},
        {89, fp16, minus_half},
        {89, bf16, minus_half},
        {89, tf32, minus_half},
        {90, fp16, minus_three_quarters},
        {90, bf16, minus_three_quarters},
        {90, tf32, minus_three_quarters},
        {100, fp16, minus_three_quarters},
        {100, bf16, minus_three_quarters},
        {100, tf32, minus_three_quarters},
        {120, fp16, minus_three_quarters},
        {120, bf16, minus_three_quarters},
    };
    for (const Row& row : rows) {
        const auto rules = rules_of(row.sm, "mma", row.format, fp32);
        INFO("sm_" << row.sm << " " << named(row.format).name);
        CHECK_FALSE(rules.empty());
        for (const DotRule* rule : rules) CHECK(dot(*rule, a, b, {1, 23}) == row.want);
    }
    // The same products from fp8 factors: e5m2 holds 2^13 and 2^10.
    for (const DotRule* rule : rules_of(89, "mma", e5m2, fp32)) CHECK(dot(*rule, a, b, {1, 23}) == zero);
    for (const DotRule* rule : rules_of(90, "wgmma", e5m2, fp32)) CHECK(dot(*rule, a, b, {1, 23}) == zero);
    CHECK_FALSE(rules_of(89, "mma", e5m2, fp32).empty());
    CHECK_FALSE(rules_of(90, "wgmma", e5m2, fp32).empty());
}

TEST_CASE("dot: a product is not normalised before alignment (Khattak & Mikaitis)") {
    // 1.5 * 1.5 has exponent 0, so one more bit survives than beside 2.25 * 1.0, whose exponent is 1.
    const std::vector<Factor> small{{1, -11}, {1, -12}, {1, -12}}, smaller{{1, -12}, {1, -12}, {1, -12}};
    int rules = 0;
    for (const int sm : {80, 86, 89})
        for (const DotRule* rule : rules_of(sm, "mma", fp16, fp32)) {
            ++rules;
            const auto with = [&](Factor x, Factor y) {
                return dot(*rule, {x, small[0], small[1], small[2]}, {y, smaller[0], smaller[1], smaller[2]}, {0, 0});
            };
            CHECK(with({3, -1}, {3, -1}) == 0x40100001);  // 2.25 + 2^-22
            CHECK(with({9, -2}, {1, 0}) == 0x40100000);   // 2.25
        }
    CHECK(rules >= 5);
}

TEST_CASE("dot: C - A.B of length 8192 leaves what the alignment width lets through") {
    // The walk starts at 2^20; every other product, -2^-5 and -2^-6 in turn, is far below it. C = 2^20 then cancels the
    // start.
    struct Row {
        int sm, k;
        std::uint32_t want;
    };
    for (const Row& row : {Row{70, 4, 0}, Row{80, 16, 0}, Row{90, 16, 0x433FE000}}) {  // 191.875
        const auto rules = rules_of(row.sm, "mma", fp16, fp32);
        REQUIRE_FALSE(rules.empty());
        for (const DotRule* rule : rules) {
            const auto operand = [&](int sign, int exponent) {
                return decode_operand(rule->types.a, rule->unit_a, code(fp16, sign, exponent));
            };
            std::vector<Operand> a{operand(1, 10)}, b{operand(1, 10)};
            for (int i = 1; i < 8192; ++i) {
                a.push_back(operand(1, i % 2 == 1 ? -2 : -3));
                b.push_back(operand(-1, -3));
            }
            const auto product = static_cast<std::uint32_t>(dot_walk(*rule, row.k, a, b, 0));
            INFO("sm_" << row.sm);
            CHECK(f32::sub(0x49800000, product) == row.want);
        }
    }
}

TEST_CASE("dot: specials give one NaN, and infinity only without its opposite") {
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f32.f16.f16.f32"));
    const auto one = [&](std::uint64_t a, std::uint64_t b, std::uint64_t c) {
        const Operand x[] = {decode_operand(fp16, fp16, a)}, y[] = {decode_operand(fp16, fp16, b)};
        return dot_add(rule, x, y, c);
    };
    constexpr std::uint64_t nan = 0x7FFFFFFF;
    CHECK(one(0x7E01, 0, 0) == nan);
    CHECK(one(0xFC01, 0x3C00, 0) == nan);
    CHECK(one(0x7C00, 0, 0) == nan);
    CHECK(one(0x7C00, 0x8000, 0) == nan);
    CHECK(one(0x7C00, 0x3C00, 0xFF800000) == nan);
    CHECK(one(0, 0, 0xFFC00001) == nan);
    CHECK(one(0x7C00, 0x3C00, 0x7F800000) == 0x7F800000);
    CHECK(one(0x7C00, 0xBC00, 0) == 0xFF800000);
    CHECK(one(0, 0, 0xFF800000) == 0xFF800000);
    CHECK(one(0x8000, 0, 0x80000000) == 0);                // an exact zero is +0
    CHECK(one(0x0001, 0x8001, 0) == 0xA7800000);           // -2^-48
    CHECK(one(0x7BFF, 0x7BFF, 0x7F7FFFFF) == 0x7F7FFFFF);  // truncation stops below infinity
    CHECK(one(0x3C00, 0x3C00, 0x80000000) == 0x3F800000);
}

TEST_CASE("dot: an instruction without a rule is not modelled") {
    CHECK_THROWS_AS(find_gpu("v100").dot_rule(parse_instruction("mma.m16n8k16.f32.bf16.bf16.f32")), NotModelled);
    CHECK_THROWS_AS(find_gpu("a100").dot_rule(parse_instruction("mma.m16n8k32.f32.e4m3.e4m3.f32")), NotModelled);
    CHECK_THROWS_AS(find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k128.f32.bf16.bf16.f32")), NotModelled);
}
