#include <catch2/catch.hpp>

#include <bit>
#include <map>
#include <set>

#include "arch/gpu.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_fast.hpp"
#include "emu/indices.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/pack.hpp"
#include "test/emu/gemm_inputs.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// Every different arithmetic of the GPU files that has a kernel, with an instruction depth that it is used at.
struct Case {
    const DotRule* rule;
    int instruction_k;
};
std::vector<Case> cases() {
    std::vector<Case> out;
    for (const std::string& name : gpu_names())
        for (const DotRule& rule : find_gpu(name).dot)
            for (const Shape& shape : rule.shapes) {
                if (!walk_shape(rule, shape.k)) continue;
                const bool seen = std::any_of(out.begin(), out.end(), [&](const Case& other) {
                    return other.rule->steps == rule.steps && other.rule->types == rule.types &&
                           other.rule->unit_a == rule.unit_a &&
                           walk_shape(*other.rule, other.instruction_k) == walk_shape(rule, shape.k);
                });
                if (!seen) out.push_back({&rule, shape.k});
            }
    return out;
}

std::vector<std::string_view> kernels() {
    std::vector<std::string_view> out;
    for (const simd::KernelRow& row : simd::kernel_rows())
        if (row.supported()) out.push_back(row.name);
    return out;
}

std::int64_t differences(const Tensor& got, const Tensor& want, std::string& first) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < want.size(); ++i)
        if (got.get(i) != want.get(i) && count++ == 0) {
            char text[100];
            std::snprintf(text,
                          sizeof text,
                          "output %lld: got 0x%llx want 0x%llx",
                          static_cast<long long>(i),
                          static_cast<unsigned long long>(got.get(i)),
                          static_cast<unsigned long long>(want.get(i)));
            first = text;
        }
    return count;
}

Plan walk_of(std::int64_t k) { return {.kind = Plan::Kind::walk, .ranges = {{0, k}}, .parts = {}, .merge = {}}; }

}  // namespace

TEST_CASE("gemm kernels: every row equals the scalar definition on every kind of data") {
    const std::vector<Case> all = cases();
    CHECK(all.size() >= 20);
    std::map<std::pair<std::string_view, std::string_view>, std::int64_t> compared;
    test::Random random(301);
    for (const std::string_view kind : test::gemm_kinds)
        for (std::size_t index = 0; index < all.size(); ++index) {
            const auto& [rule, instruction_k] = all[index];
            // Depths from 1 on, most of them with tails; odd rows and a part of a panel.
            const std::int64_t k = 1 + static_cast<std::int64_t>(random.below(index % 3 == 0   ? 150
                                                                              : index % 3 == 1 ? 40
                                                                                               : 70));
            const std::int64_t m = 33 + static_cast<std::int64_t>(random.below(4)),
                               n = 65 + static_cast<std::int64_t>(random.below(70));
            const Tensor x = test::gemm_input(random, kind, rule->types.a, m, k, 0);
            const Tensor w = test::gemm_input(random, kind, rule->types.b, n, k, 1);
            const Plan plan = walk_of(k);
            const auto rows = all_indices(m), cols = all_indices(n);
            GemmTask task{*rule, instruction_k, plan, x, w, bf16, rows, cols};
            const Tensor want = gemm_accumulators_scalar(task);
            task.engine = GemmEngine::dense;
            for (const std::string_view kernel : kernels()) {
                task.kernel = kernel;
                std::string first;
                const std::int64_t different = differences(gemm_accumulators(task), want, first);
                INFO(kind << " " << kernel << " " << rule->family << " " << named(rule->types.d).ptx << "."
                          << named(rule->types.a).ptx << "." << named(rule->types.b).ptx << " k" << instruction_k
                          << " K=" << k << ": " << first);
                CHECK(different == 0);
                compared[{kind, kernel}] += want.size();
            }
        }
    REQUIRE(!kernels().empty());
    CHECK(compared.size() == test::gemm_kinds.size() * kernels().size());
    for (const auto& [key, count] : compared) {
        INFO(key.first << " " << key.second);
        CHECK(count >= 100000);
    }
}

// The windows of blocks that underflow reach down to 2^-277; of what they hold only the sign of the zero remains.
TEST_CASE("gemm kernels: a product of every exponent equals the scalar definition") {
    std::int64_t compared = 0, underflown = 0;
    for (const auto& [rule, instruction_k] : cases()) {
        if (rule->types.a.exponent_bits != 8 || rule->types.b.exponent_bits != 8) continue;
        const std::int64_t k = instruction_k;
        // Row or column i: one operand, 2^(i + least).
        const auto powers = [&](const Format& format, bool signs) {
            const std::int64_t least = format.min_exponent(), count = -least;
            Tensor out(format, {count, k});
            for (std::int64_t i = 0; i < count; ++i)
                out.set(i * k + k - 1,
                        (static_cast<std::uint64_t>(i + 1) << format.fraction_bits << format.padding_bits) |
                            (signs && i % 2 != 0 ? format.sign_mask() : 0));
            return out;
        };
        const Tensor x = powers(rule->types.a, true), w = powers(rule->types.b, false);
        const Plan plan = walk_of(k);
        const auto rows = all_indices(x.rows()), cols = all_indices(w.rows());
        GemmTask task{*rule, instruction_k, plan, x, w, bf16, rows, cols};
        const Tensor want = gemm_accumulators_scalar(task);
        for (std::int64_t i = 0; i < want.size(); ++i)
            underflown += (want.get(i) & ~rule->types.d.sign_mask()) == 0 ? 1 : 0;
        task.engine = GemmEngine::dense;
        for (const std::string_view kernel : kernels()) {
            task.kernel = kernel;
            std::string first;
            const std::int64_t different = differences(gemm_accumulators(task), want, first);
            INFO(kernel << " " << rule->family << " " << named(rule->types.a).ptx << " k" << instruction_k << ": "
                        << first);
            CHECK(different == 0);
            compared += want.size();
        }
    }
    CHECK(compared >= 100000);
    CHECK(underflown >= 10000);
}

TEST_CASE("gemm kernels: long sums with tails equal the scalar definition") {
    test::Random random(302);
    std::int64_t compared = 0;
    const std::vector<Case> all = cases();
    for (const std::int64_t k : {511, 512, 513, 2560, 4099, 20000})
        for (std::size_t pick = 0; pick < 6; ++pick) {
            const auto& [rule, instruction_k] = all[random.below(all.size())];
            const std::string_view kind =
                test::gemm_kinds[(pick * 2 + static_cast<std::size_t>(k)) % test::gemm_kinds.size()];
            const std::int64_t m = 3, n = k > 5000 ? 20 : 66;
            const Tensor x = test::gemm_input(random, kind, rule->types.a, m, k, 0);
            const Tensor w = test::gemm_input(random, kind, rule->types.b, n, k, 1);
            const Plan plan = walk_of(k);
            const auto rows = all_indices(m), cols = all_indices(n);
            GemmTask task{*rule, instruction_k, plan, x, w, bf16, rows, cols};
            const Tensor want = gemm_accumulators_scalar(task);
            task.engine = GemmEngine::dense;
            for (const std::string_view kernel : kernels()) {
                task.kernel = kernel;
                std::string first;
                INFO(kind << " " << kernel << " " << rule->family << " k" << instruction_k << " K=" << k << ": "
                          << first);
                CHECK(differences(gemm_accumulators(task), want, first) == 0);
                compared += want.size();
            }
        }
    CHECK(compared >= 10000);
}

TEST_CASE("gemm kernels: operands packed by kernels are those packed one number at a time") {
    if (simd::pack_kernels() == nullptr) return test::skip("this CPU has no AVX-512");
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("wgmma.m64n64k16.f32.bf16.bf16"));
    const simd::WalkShape shape = *walk_shape(rule, 16);
    test::Random random(303);
    std::int64_t compared = 0, compared_rows = 0, different = 0, special = 0;
    for (const std::string_view kind : test::gemm_kinds)
        for (const std::int64_t k : {16, 32, 48, 336}) {
            const std::int64_t n = 131;
            const Tensor w = test::gemm_input(random, kind, bf16, n, k, 1);
            Tensor turned(bf16, {k, n});
            for (std::int64_t j = 0; j < n; ++j)
                for (std::int64_t i = 0; i < k; ++i) turned.set(i * n + j, w.get(j * k + i));
            const WalkLayout layout = walk_layout(walk_of(k), shape, 16, k);
            const auto cols = all_indices(n);
            const PackedColumns got(rows_of(w), bf16, layout, cols, simd::operand_lift);
            // Read across, columns are not for the kernels.
            const Codes across{turned.bytes().data(), bf16, n, k, 1, n};
            const PackedColumns want(across, bf16, layout, cols, simd::operand_lift);
            const auto expect = [&](bool equal) { different += equal ? 0 : 1; };
            const auto same_number = [](float value, auto scale, float other_value, auto other_scale) {
                return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(other_value) &&
                       scale == other_scale;
            };
            for (std::int64_t panel = 0; panel < got.panels(); ++panel) {
                expect(got.top(panel) == want.top(panel) && got.lift(panel) == want.lift(panel));
                const auto filled = simd::columns_read(static_cast<int>(std::min<std::int64_t>(64, n - panel * 64)));
                for (std::int64_t i = 0; i < k; ++i)
                    for (std::int64_t j = 0; j < filled; ++j, ++compared) {
                        const std::int64_t at = i * simd::panel_columns + j;
                        expect(same_number(got.values(panel)[at],
                                           got.scale(panel)[at],
                                           want.values(panel)[at],
                                           want.scale(panel)[at]));
                    }
            }
            const PackedRows got_rows(rows_of(w), bf16, layout, cols, simd::row_lift),
                want_rows(across, bf16, layout, cols, simd::row_lift);
            for (std::int64_t j = 0; j < n; ++j) {
                expect(*got_rows.top(j) == *want_rows.top(j) && *got_rows.lift(j) == *want_rows.lift(j));
                expect(got_rows.special(j) == want_rows.special(j));
                for (std::int64_t i = 0; i < k; ++i, ++compared_rows)
                    expect(same_number(
                        got_rows.values(j)[i], got_rows.scale(j)[i], want_rows.values(j)[i], want_rows.scale(j)[i]));
                special += got.special(j) ? 1 : 0;
                expect(got.special(j) == want.special(j));
            }
        }
    CHECK(compared == static_cast<std::int64_t>(test::gemm_kinds.size()) * (16 + 32 + 48 + 336) * (64 + 64 + 16));
    CHECK(compared_rows == static_cast<std::int64_t>(test::gemm_kinds.size()) * (16 + 32 + 48 + 336) * 131);
    CHECK(special > 50);
    CHECK(different == 0);
}
