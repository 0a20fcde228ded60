#include "arch/dot.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "arch/fp32.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

bool selected(DotStep::Select select, std::size_t k) noexcept {
    if (select == DotStep::Select::all) return true;
    return (k % 4 < 2) == (select == DotStep::Select::low_pairs);
}

/// A product or c: signed integer * 2^(exponent - fraction_bits).
struct Term {
    std::int64_t significand;
    int exponent;
    int fraction_bits;
};

/// Truncates towards zero (sign and magnitude) to `align_bits` fraction bits below exponent `top`.
std::int64_t align(const Term& term, int top, int align_bits) noexcept {
    // A zero takes no part in top: its exponent may lie above it, and no shift would be wide enough.
    if (term.significand == 0) return 0;
    const int drop = top - term.exponent + term.fraction_bits - align_bits;
    if (drop <= 0) return term.significand * (std::int64_t{1} << -drop);
    if (drop >= 63) return 0;
    return term.significand / (std::int64_t{1} << drop);
}

constexpr std::size_t max_block = 64;  // the loader allows no larger block

/// Reports nothing, at no cost.
struct Unwatched {
    template <class Terms>
    void fused(std::span<const std::size_t>, DotEvent, const Terms&) const noexcept {}
    void plain(const DotStep&, const Format&, std::uint64_t, std::uint64_t, std::uint64_t) const noexcept {}
};

/// Reports the steps of one instruction, which reads products [first, last).
struct Watched {
    DotObserver& observer;
    std::int64_t first, last;

    /// terms(emit) calls emit(index or -1, term) for the accumulator and the products.
    template <class Terms>
    void fused(std::span<const std::size_t> index, DotEvent event, const Terms& terms) const {
        const bool run = event.step.select == DotStep::Select::all && !index.empty();
        event.first = run ? first + static_cast<std::int64_t>(index.front()) : first;
        event.last = run ? first + static_cast<std::int64_t>(index.back()) + 1 : last;
        std::array<DotTerm, max_block + 1> list;
        std::size_t count = 0;
        terms([&](std::int64_t k, const Term& term) {
            list[count++] = {k < 0 ? k : first + k, term.significand, term.exponent, term.fraction_bits, align(term, event.top, event.step.align_bits)};
        });
        event.terms = {list.data(), count};
        observer.step(event);
    }
    void plain(const DotStep& step, const Format& c_format, std::uint64_t c, std::uint64_t addend, std::uint64_t d) const {
        observer.step({step, first, last, c_format, c, addend, d, false, 0, {}, 0});
    }
};

/// One T-FDPA step over the given products (`terms`) and c.
template <class Watch>
struct FusedDot {
    const DotRule& rule;
    const DotStep& step;
    const Watch& watch;

    std::uint64_t operator()(std::span<const Operand> a, std::span<const Operand> b, std::span<const std::size_t> index,
                             const Format& c_format, std::uint64_t c) const {
        const Format& d = rule.types.d;
        const Number start = decode(c_format, c);
        bool nan = start.kind == Kind::nan;
        bool plus = start.kind == Kind::infinity && !start.negative;
        bool minus = start.kind == Kind::infinity && start.negative;
        const std::int64_t c_value = static_cast<std::int64_t>(start.significand) * (start.negative ? -1 : 1);
        const Term c_term{c_value, start.exponent, c_format.fraction_bits};

        bool any = c_term.significand != 0;
        int top = any ? c_term.exponent : 0;
        for (const std::size_t k : index) {
            const Operand &x = a[k], &y = b[k];
            if (x.kind == Kind::nan || y.kind == Kind::nan) {
                nan = true;
            } else if (x.kind == Kind::infinity || y.kind == Kind::infinity) {
                if (x.kind == Kind::zero || y.kind == Kind::zero) nan = true;
                (x.negative != y.negative ? minus : plus) = true;
            } else if (x.kind != Kind::zero && y.kind != Kind::zero) {
                const int exponent = x.exponent + y.exponent;
                top = any ? std::max(top, exponent) : exponent;
                any = true;
            }
        }
        if (nan || plus || minus) {
            const std::uint64_t special = nan || (plus && minus) ? d.canonical_nan() : (minus ? d.sign_mask() : 0) | d.infinity();
            watch.fused(index, {step, 0, 0, c_format, c, 0, special, true, 0, {}, 0}, [](const auto&) {});
            return special;
        }

        const int product_fraction = rule.unit_a.fraction_bits + rule.unit_b.fraction_bits;
        const auto product = [&](std::size_t k) -> Term {
            return {a[k].significand * b[k].significand, a[k].exponent + b[k].exponent, product_fraction};
        };
        std::int64_t sum = align(c_term, top, step.align_bits);
        for (const std::size_t k : index) sum += align(product(k), top, step.align_bits);
        const Exact exact{sum < 0, static_cast<Uint128>(std::abs(sum)), top - step.align_bits};
        const std::uint64_t result = round_pack(d, exact, {step.rounding, Overflow::infinity, step.keep});
        watch.fused(index, {step, 0, 0, c_format, c, 0, result, false, top, {}, sum}, [&](const auto& emit) {
            emit(std::int64_t{-1}, c_term);
            for (const std::size_t k : index) emit(static_cast<std::int64_t>(k), product(k));
        });
        return result;
    }
};

/// IEEE round-to-nearest-even x + y of two codes of `format`, at most fp32; NaN is canonical.
std::uint64_t add(const Format& format, std::uint64_t x, std::uint64_t y) noexcept {
    const auto wide = [&](std::uint64_t bits) { return static_cast<std::uint32_t>(convert(format, fp32, bits)); };
    // One addition of two fp16 numbers is exact in fp32 or rounds innocuously (24 >= 2 * 11 + 2).
    return convert(fp32, format, f32::add(wide(x), wide(y)));
}

std::uint64_t to_fp64(const Operand& x) noexcept {
    if (x.kind == Kind::nan) return (x.negative ? fp64.sign_mask() : 0) | fp64.infinity() | static_cast<std::uint64_t>(std::abs(x.significand));
    if (x.kind == Kind::infinity) return (x.negative ? fp64.sign_mask() : 0) | fp64.infinity();
    return round_pack(fp64, {x.negative, static_cast<Uint128>(std::abs(x.significand)), x.exponent - fp64.fraction_bits});
}

/// acc + a·b in one rounding. A NaN operand is passed on quieted with its payload, b's before acc's before a's; an invalid
/// operation gives the default NaN: captures testdata/h200/instructions, mma f64, classes with specials.
std::uint64_t fma_fp64(const Operand& a, const Operand& b, std::uint64_t acc) noexcept {
    constexpr std::uint64_t quiet = std::uint64_t{1} << (fp64.fraction_bits - 1);
    const std::uint64_t x = to_fp64(a), y = to_fp64(b);
    for (const std::uint64_t operand : {y, acc, x})
        if (is_nan(fp64, operand)) return operand | quiet;
    return f64::fma(x, y, acc);
}

/// f32::fma of two operands that fp32 holds exactly.
std::uint64_t fma_fp32(const Operand& a, const Operand& b, std::uint64_t acc) noexcept {
    const auto code = [](const Operand& x) {
        if (x.kind == Kind::nan) return static_cast<std::uint32_t>(fp32.canonical_nan());
        if (x.kind == Kind::infinity) return static_cast<std::uint32_t>((x.negative ? fp32.sign_mask() : 0) | fp32.infinity());
        const Exact value{x.negative, static_cast<Uint128>(std::abs(x.significand)), x.exponent - fp32.fraction_bits};
        return static_cast<std::uint32_t>(round_pack(fp32, value));
    };
    return f32::fma(code(a), code(b), static_cast<std::uint32_t>(acc));
}

template <class Watch>
std::uint64_t instruction(const DotRule& rule, std::span<const Operand> a, std::span<const Operand> b, std::uint64_t c, const Watch& watch) {
    std::uint64_t last = 0;
    for (const DotStep& step : rule.steps) {
        if (step.kind == DotStep::Kind::add_c) {
            const std::uint64_t before = last;
            last = add(rule.types.d, last, c);
            watch.plain(step, rule.types.d, before, c, last);
            continue;
        }
        std::uint64_t acc = step.from == DotStep::From::c ? c : step.from == DotStep::From::last ? last : 0;
        Format acc_format = step.from == DotStep::From::c ? rule.types.c : rule.types.d;
        if (step.kind == DotStep::Kind::fma_chain) {
            last = acc;
            for (std::size_t k = 0; k < a.size(); ++k)
                last = rule.types.d == fp32 ? fma_fp32(a[k], b[k], last) : fma_fp64(a[k], b[k], last);
            watch.plain(step, acc_format, acc, 0, last);
            continue;
        }
        const FusedDot<Watch> dot{rule, step, watch};
        std::size_t index[max_block];
        std::size_t count = 0;
        bool done = false;
        const auto flush = [&] {
            acc = dot(a, b, {index, count}, acc_format, acc);
            acc_format = rule.types.d;
            count = 0;
            done = true;
        };
        for (std::size_t k = 0; k < a.size(); ++k) {
            if (!selected(step.select, k)) continue;
            index[count++] = k;
            if (count == static_cast<std::size_t>(step.block)) flush();
        }
        if (count != 0 || !done) flush();
        last = acc;
    }
    return last;
}

void decode_all(const Format& stored, const Format& unit, std::span<const std::uint32_t> bits, std::span<Operand> out) noexcept {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = decode_operand(stored, unit, bits[i]);
}

}  // namespace

Operand decode_operand(const Format& stored, const Format& unit, std::uint64_t bits) noexcept {
    const Number x = decode(unit, stored == unit ? bits : convert(stored, unit, bits));
    const auto significand = static_cast<std::int64_t>(x.significand);
    return {x.negative ? -significand : significand, x.exponent, x.kind, x.negative};
}

void decode_a(const DotRule& rule, std::span<const std::uint32_t> bits, std::span<Operand> out) noexcept {
    decode_all(rule.types.a, rule.unit_a, bits, out);
}

void decode_b(const DotRule& rule, std::span<const std::uint32_t> bits, std::span<Operand> out) noexcept {
    decode_all(rule.types.b, rule.unit_b, bits, out);
}

std::uint64_t dot_add(const DotRule& rule, std::span<const Operand> a, std::span<const Operand> b, std::uint64_t c) noexcept {
    return instruction(rule, a, b, c, Unwatched{});
}

std::uint64_t dot_walk(const DotRule& rule,
                       int instruction_k,
                       std::span<const Operand> a,
                       std::span<const Operand> b,
                       std::uint64_t c) noexcept {
    const auto step = static_cast<std::size_t>(instruction_k);
    for (std::size_t k = 0; k < a.size(); k += step) {
        const std::size_t count = std::min(step, a.size() - k);
        c = dot_add(rule, a.subspan(k, count), b.subspan(k, count), c);
    }
    return c;
}

std::uint64_t dot_walk(const DotRule& rule,
                       int instruction_k,
                       std::span<const Operand> a,
                       std::span<const Operand> b,
                       std::uint64_t c,
                       std::int64_t first,
                       DotObserver& observer) {
    const auto step = static_cast<std::size_t>(instruction_k);
    for (std::size_t k = 0; k < a.size(); k += step) {
        const std::size_t count = std::min(step, a.size() - k);
        const std::int64_t at = first + static_cast<std::int64_t>(k);
        c = instruction(rule, a.subspan(k, count), b.subspan(k, count), c, Watched{observer, at, at + static_cast<std::int64_t>(count)});
    }
    return c;
}

const DotRule* cuda_core_rule(const Format& a, const Format& b) noexcept {
    static const std::vector<DotRule> rules = [] {
        std::vector<DotRule> out;
        for (const Format& x : {fp32, bf16, fp16})
            for (const Format& y : {fp32, bf16, fp16})
                out.push_back({.family = "cuda_core",
                               .shapes = {{1, 1, 1}},
                               .types = {.d = fp32, .a = x, .b = y, .c = fp32},
                               .unit_a = fp32,
                               .unit_b = fp32,
                               .steps = {{.kind = DotStep::Kind::fma_chain}},
                               .evidence = {Evidence::Level::measured, "IEEE 754 (CUDA C++ programming guide)"}});
        DotRule wide = out.front();
        wide.types = {.d = fp64, .a = fp64, .b = fp64, .c = fp64};
        wide.unit_a = wide.unit_b = fp64;
        out.push_back(std::move(wide));
        return out;
    }();
    for (const DotRule& rule : rules)
        if (rule.types.a == a && rule.types.b == b) return &rule;
    return nullptr;
}

bool is_fp32_chain(const DotRule& rule) noexcept {
    return rule.types.d == fp32 && rule.steps.size() == 1 && rule.steps.front().kind == DotStep::Kind::fma_chain;
}

}  // namespace bitreplay
