#include <catch2/catch.hpp>

#include "arch/gpu.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/indices.hpp"
#include "emu/parallel.hpp"
#include "test/emu/gemm_inputs.hpp"

using namespace bitreplay;

namespace {

Plan walk(std::vector<Range> ranges) {
    return {.kind = Plan::Kind::walk, .ranges = std::move(ranges), .parts = {}, .merge = {}};
}
Plan merge(std::vector<Plan> parts, Merge how) {
    return {.kind = Plan::Kind::merge, .ranges = {}, .parts = std::move(parts), .merge = how};
}

const DotRule& rule_of(std::string_view gpu, std::string_view instruction) {
    return find_gpu(gpu).dot_rule(parse_instruction(instruction));
}

bool same(const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() && std::equal(x.bytes().begin(), x.bytes().end(), y.bytes().begin(), y.bytes().end());
}

}  // namespace

TEST_CASE("gemm engine: plans with merges, residues and stripes equal the scalar definition") {
    using Precision = Merge::Precision;
    const std::int64_t k = 200;
    const std::vector<Plan> plans{
        walk({{0, k}}),
        walk({{0, 8}, {8, k}}),
        merge({walk({{0, 64}}), walk({{64, 128}}), walk({{128, k}})}, {}),
        merge({walk({{0, 96}}), walk({{96, 190}})}, {.order = Merge::Order::last_to_first}),
        merge({walk({{0, 64}}), walk({{64, k}})}, {.from_zero = true, .parts = Precision::result}),
        merge({walk({{0, 64}}), walk({{64, k}})}, {.sums = Precision::result}),
        merge({walk({{0, 32}, {64, 96}, {128, 160}}), walk({{32, 64}, {96, 128}, {160, k}})}, {}),
        merge({merge({walk({{100, 150}}), walk({{150, k}})}, {.order = Merge::Order::last_to_first}), walk({{0, 100}})},
              {}),
    };
    test::Random random(311);
    std::int64_t compared = 0;
    for (const auto& [gpu, instruction, depth] : {std::tuple{"h200", "wgmma.m64n64k16.f32.bf16.bf16", 16},
                                                  std::tuple{"a100", "mma.m16n8k16.f32.f16.f16.f32", 16},
                                                  std::tuple{"h200", "mma.m16n8k32.f32.e4m3.e4m3.f32", 32},
                                                  std::tuple{"h200", "wgmma.m64n64k16.f16.f16.f16", 16}})
        for (const Plan& plan : plans)
            for (const std::string_view kind : {"normal", "nan-inf", "overflow", "zero-heavy"}) {
                const DotRule& rule = rule_of(gpu, instruction);
                const Tensor x = test::gemm_input(random, kind, rule.types.a, 7, k, 0),
                             w = test::gemm_input(random, kind, rule.types.b, 70, k, 1);
                const auto rows = all_indices(7), cols = all_indices(70);
                GemmTask task{rule, depth, plan, x, w, fp16, rows, cols};
                INFO(instruction << " " << kind << " " << to_string(plan));
                CHECK(same(gemm_accumulators(task), gemm_accumulators_scalar(task)));
                const PackedWeights packed(task);
                task.packed = &packed;
                CHECK(same(gemm_accumulators(task), gemm_accumulators_scalar(task)));
                compared += 2 * 7 * 70;
                for (const Format& narrow : {bf16, fp16}) {
                    const Tensor acc = gemm_accumulators_scalar(task), rounded = gemm_rounded(task, narrow);
                    std::int64_t different = 0;
                    for (std::int64_t i = 0; i < acc.size(); ++i, ++compared)
                        different += rounded.get(i) != convert(rule.types.d, narrow, acc.get(i)) ? 1 : 0;
                    CHECK(different == 0);
                }
            }
    CHECK(compared == 4 * 7 * 70 * 4 * 8 * 4);
}

TEST_CASE("gemm engine: the number of threads changes nothing") {
    test::Random random(312);
    const DotRule& rule = rule_of("h200", "wgmma.m64n64k16.f32.bf16.bf16");
    const std::int64_t m = 300, n = 700, k = 336;
    const Tensor x = test::gemm_input(random, "normal", bf16, m, k, 0),
                 w = test::gemm_input(random, "normal", bf16, n, k, 1);
    const Plan plan = walk({{0, k}});
    const auto rows = all_indices(m), cols = all_indices(n);
    const GemmTask task{rule, 16, plan, x, w, bf16, rows, cols};
    GemmTask filtered = task;
    filtered.engine = GemmEngine::filtered;
    set_threads(1);
    const Tensor one = gemm_accumulators(task), one_rounded = gemm_rounded(filtered, bf16);
    for (const int threads : {2, 3, 8, 0}) {
        set_threads(threads);
        CHECK(same(gemm_accumulators(task), one));
        CHECK(same(gemm_rounded(filtered, bf16), one_rounded));
    }
    set_threads(0);
}

TEST_CASE("gemm engine: listed rows and columns are those of the whole") {
    test::Random random(313);
    const DotRule& rule = rule_of("a100", "mma.m16n8k16.f32.bf16.bf16.f32");
    const std::int64_t m = 150, n = 200, k = 90;
    const Tensor x = test::gemm_input(random, "wide-exponent", bf16, m, k, 0),
                 w = test::gemm_input(random, "normal", bf16, n, k, 1);
    const Plan plan = walk({{0, k}});
    const auto all_rows = all_indices(m), all_cols = all_indices(n);
    const Tensor whole = gemm_accumulators({rule, 16, plan, x, w, bf16, all_rows, all_cols});
    std::int64_t compared = 0;
    for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{130}}) {
        std::vector<std::int64_t> rows, cols;
        for (std::size_t i = 0; i < count; ++i)
            rows.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(m))));
        for (std::size_t i = 0; i < 140 / count; ++i)
            cols.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n))));
        const Tensor part = gemm_accumulators({rule, 16, plan, x, w, bf16, rows, cols});
        for (std::size_t i = 0; i < rows.size(); ++i)
            for (std::size_t j = 0; j < cols.size(); ++j, ++compared)
                if (part.get(static_cast<std::int64_t>(i * cols.size() + j)) != whole.get(rows[i] * n + cols[j]))
                    FAIL("row " << rows[i] << " column " << cols[j]);
    }
    CHECK(compared >= 400);
}

TEST_CASE("dot engine: products of strided operands from a live accumulator equal the scalar definition") {
    test::Random random(314);
    std::int64_t compared = 0;
    for (const auto& [gpu, instruction, depth] : {std::tuple{"h200", "wgmma.m64n64k16.f32.bf16.bf16", 16},
                                                  std::tuple{"a100", "mma.m16n8k16.f32.bf16.bf16.f32", 16},
                                                  std::tuple{"h200", "mma.m16n8k16.f16.f16.f16.f16", 16}})
        for (const std::string_view kind : {"normal", "nan-inf", "overflow", "zero-heavy", "any-code", "smallest"}) {
            const DotRule& rule = rule_of(gpu, instruction);
            const std::int64_t m = 35, n = 67, k = 88;
            const Tensor x = test::gemm_input(random, kind, rule.types.a, m, k, 0);
            const Tensor v = test::gemm_input(random, kind, rule.types.b, k, n, 1);  // depth is the first dimension
            const Codes columns{v.bytes().data(), v.format(), n, k, 1, n};
            std::vector<std::uint32_t> acc(static_cast<std::size_t>(m * (n + 3))), want;
            for (std::uint32_t& c : acc)
                c = static_cast<std::uint32_t>(random.below(20) == 0
                                                   ? random.next() &
                                                         ((std::uint64_t{2} << (rule.types.d.storage_bits() - 1)) - 1)
                                                   : convert(bf16, rule.types.d, 0x3F80 + random.below(900)));
            if (kind == "smallest")  // starts of the products' size, a few of them subnormal
                for (std::uint32_t& c : acc)
                    if (random.below(4) != 0)
                        c = static_cast<std::uint32_t>(random.next()) & (rule.types.d == fp32 ? 0x83FFFFFFU : 0x8FFFU);
            want = acc;
            for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) {
                    std::vector<Operand> a, b;
                    for (std::int64_t q = 0; q < k; ++q) {
                        a.push_back(decode_operand(rule.types.a, rule.unit_a, x.get(i * k + q)));
                        b.push_back(decode_operand(rule.types.b, rule.unit_b, v.get(q * n + j)));
                    }
                    std::uint32_t& place = want[static_cast<std::size_t>(i * (n + 3) + j)];
                    place = static_cast<std::uint32_t>(dot_walk(rule, depth, a, b, place));
                    ++compared;
                }
            const DotEngine engine(rule, depth);
            engine.accumulate(engine.rows(rows_of(x)), engine.columns(columns), acc.data(), n + 3);
            INFO(instruction << " " << kind);
            CHECK(acc == want);
        }
    CHECK(compared == 3 * 6 * 35 * 67);
}

TEST_CASE("gemm engine: accumulators are rounded as convert() rounds") {
    std::int64_t compared = 0, different = 0;
    const auto compare = [&](std::uint32_t code) {
        for (const Format& out : {bf16, fp16}) {
            ++compared;
            different += round_accumulator(fp32, out, code) != convert(fp32, out, code) ? 1 : 0;
        }
    };
    // Every sign, exponent and upper half of the significand, with lower halves around all midpoints.
    for (std::uint32_t high = 0; high < 1U << 20; ++high)
        for (const std::uint32_t low : {0x000U, 0x001U, 0x7FFU, 0x800U, 0xFFFU}) compare(high << 12 | low);
    CHECK(compared == 2 * 5 * (1 << 20));
    CHECK(different == 0);
}
