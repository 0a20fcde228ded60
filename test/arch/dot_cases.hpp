#pragma once
// Random dot products for comparing dot_add with the oracle, and the comparison itself.

#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "arch/dot.hpp"
#include "test/arch/tensor_core_models.hpp"
#include "test/support/support.hpp"

namespace bitreplay::test {

/// An arithmetic that some GPU has: rules of several GPUs that compute the same function are one.
struct DistinctRule {
    const DotRule* rule;
    oracle::TensorCore model;
    int k;             ///< the deepest instruction
    std::string gpus;  ///< who has it
};

inline std::vector<DistinctRule> distinct_rules() {
    std::vector<DistinctRule> out;
    for (const std::string& name : gpu_names()) {
        const Gpu& gpu = find_gpu(name);
        for (const DotRule& rule : gpu.dot) {
            const auto model = published_model(gpu.sm, rule);
            if (!model) throw std::logic_error(name + ": a rule that the published table does not have");
            int k = 0;
            for (const Shape& shape : rule.shapes) k = std::max(k, shape.k);
            const auto same = std::find_if(out.begin(), out.end(), [&](const DistinctRule& other) {
                return other.rule->types == rule.types && other.rule->steps == rule.steps &&
                       other.rule->unit_a == rule.unit_a && other.rule->unit_b == rule.unit_b && other.model == *model;
            });
            if (same == out.end()) {
                out.push_back({&rule, *model, k, name});
            } else {
                same->k = std::max(same->k, k);
                same->gpus += " " + name;
            }
        }
    }
    return out;
}

/// What the random cases reached.
struct DotTally {
    std::atomic<std::uint64_t> compared = 0, different = 0, nan = 0, infinite = 0, zero = 0, subnormal = 0,
                               cancelled = 0;
};

/// One random code. `style` picks a distribution, so that a whole case can stay in one exponent range.
inline std::uint64_t random_code(const Format& f, int style, std::uint64_t random) {
    const std::uint64_t low = random & (f.fraction_mask() << f.padding_bits);
    const std::uint64_t sign = (random >> 63) != 0 ? f.sign_mask() : 0;
    const auto pick = [&](std::uint64_t range) { return (random >> 54 & 0xFF) * range >> 8; };
    const auto field = [&](std::uint64_t value) { return value << (f.fraction_bits + f.padding_bits); };
    const auto fields = static_cast<std::uint64_t>(f.max_field());
    const auto middle = static_cast<std::uint64_t>(f.bias());
    switch (style) {
        case 0: return sign | field(pick(fields)) | low;                                  // any finite exponent
        case 1: return sign | field(std::min(fields - 1, middle + (pick(4) & 3))) | low;  // about 1
        case 2: return sign | field(pick(2)) | low;                                       // subnormal or nearly
        case 3: return sign | field(fields - 1 - pick(2)) | low;                          // near overflow
        case 4: return sign | field(middle - std::min(middle, pick(std::min<std::uint64_t>(fields / 2, 30)))) | low;
        default: break;
    }
    // Mostly ordinary, with specials in between; sparse zeros.
    const std::uint64_t kind = random >> 40 & 0xFF;
    if (kind < 4) return sign | field(fields) | low;  // infinity or NaN where the format has them
    if (kind < 8) return sign | f.infinity();
    if (kind < 60) return sign;
    return sign | field(pick(fields)) | low;
}

/// One case: codes of a, b and c.
struct DotCase {
    std::vector<std::uint64_t> a, b;
    std::uint64_t c = 0;

    void fill(const DistinctRule& d, Random& random, DotTally& tally) {
        const DotTypes& t = d.rule->types;
        const std::uint64_t choice = random.next();
        // Shorter than the instruction now and then: the rest counts as zero.
        const auto full = static_cast<std::size_t>(d.k);
        const std::size_t k = (choice & 7) == 0 ? 1 + (choice >> 8) % full : full;
        const int style_a = static_cast<int>((choice >> 16) % 7), style_b = static_cast<int>((choice >> 20) % 7);
        const int same = (choice >> 24 & 1) != 0 ? style_a : style_b;
        a.resize(k);
        b.resize(k);
        for (std::size_t i = 0; i < k; ++i) {
            a[i] = random_code(t.a, style_a, random.next());
            b[i] = random_code(t.b, same, random.next());
        }
        c = random_code(t.c, static_cast<int>((choice >> 28) % 7), random.next());
        if ((choice >> 32 & 3) == 0) {
            // Cancellation: each product meets its opposite somewhere; one is off by a little, and c may be zero.
            for (std::size_t i = 0; i + 1 < k; i += 2) {
                a[i + 1] = a[i] ^ t.a.sign_mask();
                b[i + 1] = b[i];
            }
            std::rotate(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(k / 3), a.end());
            std::rotate(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(k / 3), b.end());
            if ((choice >> 34 & 1) != 0) a[0] ^= std::uint64_t{1} << t.a.padding_bits;
            if ((choice >> 35 & 1) != 0) c = 0;
            ++tally.cancelled;
        }
        if ((choice >> 40 & 15) == 0) c = (choice >> 44 & 1) != 0 ? t.c.sign_mask() : 0;
    }
};

inline void compare_with_oracle(const DistinctRule& d, std::uint64_t cases, std::uint64_t stream, DotTally& tally) {
    const DotTypes& t = d.rule->types;
    const oracle::TensorCoreOracle oracle(d.model, t.a, t.b);
    constexpr std::uint64_t pieces = 16;
    tbb::parallel_for(std::uint64_t{0}, pieces, [&](std::uint64_t piece) {
        Random random(stream * pieces + piece);
        DotCase one;
        std::vector<Operand> a, b;
        std::uint64_t different = 0, nan = 0, infinite = 0, zero = 0, subnormal = 0;
        const std::uint64_t count = (cases + pieces - 1) / pieces;
        for (std::uint64_t i = 0; i < count; ++i) {
            one.fill(d, random, tally);
            a.resize(one.a.size());
            b.resize(one.b.size());
            for (std::size_t k = 0; k < a.size(); ++k) {
                a[k] = decode_operand(t.a, d.rule->unit_a, one.a[k]);
                b[k] = decode_operand(t.b, d.rule->unit_b, one.b[k]);
            }
            const std::uint64_t got = dot_add(*d.rule, a, b, one.c);
            if (got != oracle(one.a, one.b, one.c)) ++different;
            const oracle::Value v = oracle::value_of(t.d, got);
            nan += v.kind == oracle::Class::nan;
            infinite += v.kind == oracle::Class::infinite;
            zero += v.kind == oracle::Class::finite && v.significand == 0;
            subnormal += v.kind == oracle::Class::finite && v.significand != 0 && v.significand <= t.d.fraction_mask();
        }
        tally.compared += count;
        tally.different += different;
        tally.nan += nan;
        tally.infinite += infinite;
        tally.zero += zero;
        tally.subnormal += subnormal;
    });
}

}  // namespace bitreplay::test
