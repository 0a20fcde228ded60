#include "emu/explain.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "emu/attention.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/ops/op.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

/// A folder with random tensors of all kinds of values and manifests that use them.
struct Case {
    std::filesystem::path folder = test::scratch("explain");
    test::Random random{17};

    /// wild: any exponent, zeros, subnormals and now and then an infinity or NaN; otherwise numbers around 1.
    Tensor make(const Format& format, std::vector<std::int64_t> shape, bool wild) {
        Tensor out(format, std::move(shape));
        const std::uint64_t codes = std::uint64_t{1} << format.storage_bits(), one = std::uint64_t(format.bias())
                                                                                     << format.fraction_bits;
        for (std::int64_t i = 0; i < out.size(); ++i) {
            const std::uint64_t sign = random.below(2) * format.sign_mask();
            std::uint64_t code = sign | (one - (random.below(3) << format.fraction_bits) +
                                         random.below(std::uint64_t{1} << format.fraction_bits));
            if (wild) code = random.next() % codes;
            if (wild && decode(format, code).kind == Kind::nan && random.below(8) != 0) code = 0;
            if (random.below(20) == 0) code = sign;
            out.set(i, code);
        }
        return out;
    }

    Manifest manifest(const std::map<std::string, Tensor>& tensors,
                      const std::string& gpu,
                      const std::string& op,
                      const std::string& rest) const {
        write_safetensors(folder / "t.safetensors", tensors);
        std::string text = R"({"bitreplay": 1, "gpu": ")" + gpu + R"(", "tensors": {)", in;
        for (const auto& [name, tensor] : tensors) {
            text += std::string(in.empty() ? "" : ", ") + "\"" + name + R"(": {"file": "t.safetensors", "key": ")" +
                    name + "\"}";
            in += std::string(in.empty() ? "" : ", ") + "\"" + name + "\": \"" + name + "\"";
        }
        return parse_manifest(
            text + R"(}, "ops": [{"id": "it", "op": ")" + op + R"(", "in": {)" + in + "}, " + rest + "}]}",
            folder / "m.json");
    }
};

struct Counted {
    int steps = 0, specials = 0, truncated = 0;
};

/// Every walk starts from zero, each step starts where the one before ended, and its terms add up to its sum.
void check_steps(const TraceNode& node, bool single_step_rule, Counted& counted) {
    const TraceStep* before = nullptr;
    for (const TraceStep& step : node.steps) {
        ++counted.steps;
        if (single_step_rule) CHECK(step.c.bits == (before == nullptr ? 0 : before->d.bits));
        before = &step;
        if (step.special) ++counted.specials;
        if (step.rule.kind != DotStep::Kind::fused_dot || step.special) continue;
        std::int64_t sum = 0;
        for (const DotTerm& term : step.terms) {
            sum += term.kept;
            const double exact = std::ldexp(double(term.significand), term.exponent - term.fraction_bits),
                         kept = std::ldexp(double(term.kept), step.top - step.rule.align_bits);
            CHECK(std::abs(kept) <= std::abs(exact));
            counted.truncated += kept != exact ? 1 : 0;
            if (term.significand != 0) CHECK(term.exponent <= step.top);
        }
        CHECK(sum == step.sum);
        const Exact exact{sum < 0, static_cast<Uint128>(std::abs(sum)), step.top - step.rule.align_bits};
        CHECK(round_pack(step.d.format, exact, {step.rule.rounding, Overflow::infinity, step.rule.keep}) ==
              step.d.bits);
    }
    if (before != nullptr) CHECK(before->d.bits == node.value.bits);
    for (const TraceNode& part : node.parts) check_steps(part, single_step_rule, counted);
    if (!node.sums.empty()) CHECK(node.sums.back().second == node.value);
}

Tensor whole_output(const Manifest& manifest) {
    const RecordedOp op = recorded_op(manifest, "it");
    const OpResult result = find_op(op.request.op)(op.request);
    return result.out.at(result.main);
}

}  // namespace

TEST_CASE("explain: a product's trace ends in the emulator's bits and its terms add up, on every kind of arithmetic") {
    Case c;
    struct Kind {
        std::string gpu, dtype, kernel;
        bool single_step;
    };
    const Kind kinds[] = {
        {"h200", "bf16", R"("kernel": "cublas.nvjet", "params": {"split_k": 3})", true},
        {"h200", "bf16", R"("kernel": "single_walk")", true},
        {"h200", "fp16", R"("kernel": "cutlass.tensorop", "params": {"split_k": 2, "reduction": "output_type"})", true},
        {"h200", "e4m3", R"("kernel": "cublas.nvjet")", true},
        {"a100",
         "bf16",
         R"("kernel": "cutlass.tensorop", "params": {"split_k": 3, "reduction": "inplace", "block_k": 64})",
         true},
        {"a100", "fp16", R"("kernel": "sliced_k", "params": {"warp_k": 16})", true},
        {"v100", "fp16", R"("kernel": "single_walk")", true},
        {"l40", "e5m2", R"("kernel": "single_walk")", true},
    };
    Counted counted;
    int compared = 0;
    for (const Kind& kind : kinds)
        for (const bool wild : {false, true}) {
            const Format format = find_format(kind.dtype)->format;
            const std::int64_t m = 4, n = 5, k = 192 + (kind.kernel.find("sliced") == std::string::npos ? 40 : 0);
            const Manifest manifest =
                c.manifest({{"x", c.make(format, {m, k}, wild)}, {"w", c.make(format, {n, k}, wild)}},
                           kind.gpu,
                           "linear",
                           R"("out_dtype": "fp32", )" + kind.kernel);
            const Tensor out = whole_output(manifest);
            for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) {
                    const Trace trace = explain(manifest, "it", {i, j});
                    INFO(kind.gpu << " " << kind.dtype << " " << kind.kernel << " " << i << "," << j);
                    check_steps(trace.root, kind.single_step, counted);
                    CHECK(trace.root.value.bits == out.get(i * n + j));
                    CHECK(trace.result.bits == out.get(i * n + j));
                    ++compared;
                }
        }
    CHECK(compared == 8 * 2 * 20);
    CHECK(counted.steps > 5000);
    CHECK(counted.specials > 50);
    CHECK(counted.truncated > 5000);
}

TEST_CASE("explain: a flash-attention row ends in the bits of the whole call") {
    Case c;
    int compared = 0;
    for (const bool causal : {false, true})
        for (const std::int64_t splits : {0, 3})
            for (const std::string gpu : {"h200", "a100"}) {
                const std::int64_t queries = 5, keys = 300, d = 24;
                const Manifest manifest = c.manifest({{"q", c.make(bf16, {2, 4, queries, d}, false)},
                                                      {"k", c.make(bf16, {2, 2, keys, d}, false)},
                                                      {"v", c.make(bf16, {2, 2, keys, d}, false)}},
                                                     gpu,
                                                     "attention",
                                                     R"("kernel": "torch.flash2", "params": {"causal": )" +
                                                         std::string(causal ? "true" : "false") + R"(, "splits": )" +
                                                         std::to_string(splits) + "}");
                const Tensor out = whole_output(manifest);
                for (int n = 0; n < 6; ++n) {
                    const std::int64_t row = static_cast<std::int64_t>(c.random.below(40)),
                                       col = static_cast<std::int64_t>(c.random.below(24));
                    const Trace trace = explain(manifest, "it", {row / 20, row / 5 % 4, row % 5, col});
                    Counted counted;
                    INFO(gpu << " " << splits << " row " << row << " col " << col);
                    CHECK(trace.result.bits == out.get(row * d + col));
                    CHECK(convert(fp32, bf16, trace.root.value.bits) == trace.result.bits);
                    CHECK(trace.root.parts.size() == (splits == 3 ? 3U : trace.root.parts.size()));
                    ++compared;
                }
            }
    CHECK(compared == 48);
}

TEST_CASE("explain: a reduction's tree ends in the emulator's bits and holds every element once") {
    Case c;
    int compared = 0;
    for (const std::string function : {"sum", "mean", "mean_sq"})
        for (const std::int64_t width : {1, 7, 130, 2560, 5000})
            for (const bool narrow : {false, true}) {
                const Manifest manifest = c.manifest({{"x", c.make(narrow ? bf16 : fp32, {3, width}, false)}},
                                                     "h200",
                                                     "reduce",
                                                     R"("out_dtype": "fp32", "params": {"fn": ")" + function + "\"}");
                const Tensor out = whole_output(manifest);
                for (std::int64_t row = 0; row < 3; ++row) {
                    const Trace trace = explain(manifest, "it", {row});
                    INFO(function << " " << width << " row " << row);
                    CHECK(trace.result.bits == out.get(row));
                    if (function == "sum") CHECK(trace.root.value.bits == out.get(row));
                    std::vector<int> seen(static_cast<std::size_t>(width), 0);
                    const auto count = [&](const auto& self, const TraceNode& node) -> void {
                        for (const TraceFact& summand : node.summands)
                            ++seen[static_cast<std::size_t>(std::stoll(summand.name))];
                        if (!node.parts.empty()) CHECK(node.sums.size() == node.parts.size());
                        for (const TraceNode& part : node.parts) self(self, part);
                    };
                    count(count, trace.root);
                    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
                    ++compared;
                }
            }
    CHECK(compared == 3 * 5 * 2 * 3);
}

TEST_CASE("explain: names the first step at which two GPUs part, and the product that one of them cuts") {
    Case c;
    // c = 0; 1.5 * 1.5 and three tiny products: published for A100 by Khattak & Mikaitis; MODELS section 1.
    Tensor x(bf16, {1, 16}), w(bf16, {1, 16});
    const auto put = [](Tensor& tensor, std::int64_t i, std::uint32_t fp32_bits) { tensor.set(i, fp32_bits >> 16); };
    put(x, 0, 0x3FC00000), put(w, 0, 0x3FC00000);  // 1.5 * 1.5
    put(x, 1, 0x3F800000), put(w, 1, 0x33000000);  // 2^-25
    put(x, 2, 0x3F800000), put(w, 2, 0x33000000);  // 2^-25
    const Manifest manifest =
        c.manifest({{"x", x}, {"w", w}}, "h200", "linear", R"("out_dtype": "fp32", "kernel": "single_walk")");
    const Trace hopper = explain(manifest, "it", {0, 0}),
                ampere = explain(manifest, "it", {0, 0}, {.gpu = "a100", .kernel = {}, .params = {}});
    const Parting parting = first_difference(hopper, ampere);
    // The sum differs inside the step, but both truncate to 24 significant bits: 2.25 either way.
    CHECK(hopper.root.value.bits == 0x40100000);
    CHECK(ampere.root.value.bits == 0x40100000);
    CHECK_FALSE(parting.apart);

    put(w, 1, 0x33800000), put(w, 2, 0x33000000), put(x, 3, 0x3F800000),
        put(w, 3, 0x33000000);                     // 2^-24 + 2^-25 + 2^-25
    put(x, 0, 0x3F800000), put(w, 0, 0x3F800000);  // 1
    put(x, 4, 0xBF800000), put(w, 4, 0x3F800000);  // -1: the rest is left
    const Manifest other =
        c.manifest({{"x", x}, {"w", w}}, "h200", "linear", R"("out_dtype": "fp32", "kernel": "single_walk")");
    const Trace a = explain(other, "it", {0, 0}),
                b = explain(other, "it", {0, 0}, {.gpu = "a100", .kernel = {}, .params = {}});
    const Parting apart = first_difference(a, b);
    REQUIRE(apart.apart);
    CHECK(a.root.value.bits == 0x34000000);  // 2^-23
    CHECK(b.root.value.bits == 0x33800000);  // 2^-24
    CHECK_THAT(apart.why,
               Catch::Matchers::Contains("product k=2 is 2^-25") && Catch::Matchers::Contains("h200 keeps 25 bits") &&
                   Catch::Matchers::Contains("keeps all of it") && Catch::Matchers::Contains("a100 keeps 24 bits") &&
                   Catch::Matchers::Contains("keeps nothing of it"));
    REQUIRE(apart.summands);
    CHECK(apart.summands->first == 0);
}

TEST_CASE("explain: two splits part where one starts a new part") {
    Case c;
    const Manifest manifest = c.manifest({{"x", c.make(bf16, {2, 640}, false)}, {"w", c.make(bf16, {3, 640}, false)}},
                                         "h200",
                                         "linear",
                                         R"("kernel": "cublas.nvjet", "params": {"split_k": 2})");
    const Trace two = explain(manifest, "it", {1, 2}),
                five = explain(manifest, "it", {1, 2}, {.gpu = {}, .kernel = {}, .params = R"({"split_k": 5})"});
    CHECK(two.root.parts.size() == 2);
    CHECK(five.root.parts.size() == 5);
    const Parting parting = first_difference(two, five);
    REQUIRE(parting.apart);
    REQUIRE(parting.summands);
    CHECK(parting.summands->first == 128);  // the first of five parts ends there
    CHECK_THAT(parting.why,
               Catch::Matchers::Contains("split_k=5") && Catch::Matchers::Contains("forms the sum after part 0"));
    CHECK_FALSE(first_difference(two, explain(manifest, "it", {1, 2})).apart);
}

TEST_CASE("explain: wrong elements and ops without a trace are named") {
    Case c;
    const Manifest manifest = c.manifest({{"x", c.make(bf16, {2, 64}, false)}, {"w", c.make(bf16, {3, 64}, false)}},
                                         "h200",
                                         "linear",
                                         R"("kernel": "single_walk")");
    CHECK_THROWS_AS(explain(manifest, "it", {2, 0}), InputError);
    CHECK_THROWS_AS(explain(manifest, "it", {0, 3}), InputError);
    CHECK_THROWS_AS(explain(manifest, "it", {0}), InputError);
    CHECK_THROWS_AS(explain(manifest, "it", {0, -1}), InputError);
    CHECK_THROWS_AS(explain(manifest, "that", {0, 0}), InputError);
    CHECK_THROWS_AS(explain(manifest, "it", {0, 0}, {.gpu = "h300", .kernel = {}, .params = {}}), NotModelled);
    const Manifest silu =
        c.manifest({{"x", c.make(bf16, {2, 64}, false)}}, "h200", "unary", R"("params": {"fn": "silu"})");
    CHECK_THROWS_AS(explain(silu, "it", {0, 0}), NotModelled);
}
