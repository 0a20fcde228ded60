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

inline std::string describe(const DistinctRule& d) {
    const Instruction instruction{d.rule->family, d.rule->shapes.front(), d.rule->types};
    return to_string(instruction) + " on " + d.gpus;
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

/// Codes to draw operands from, decoded by both sides: for each style groups of x, -x, x with its last bit flipped, and
/// minus that.
class OperandPool {
public:
    static constexpr std::size_t styles = 7, size = 1024;  // small enough for the cache

    template <class DecodeForOracle>
    OperandPool(const Format& stored, const Format& unit, const DecodeForOracle& decode_for_oracle, Random& random) {
        for (std::size_t style = 0; style < styles; ++style)
            for (std::size_t i = 0; i < size; i += 4) {
                const std::uint64_t x = random_code(stored, static_cast<int>(style), random.next());
                const std::uint64_t y = x ^ (std::uint64_t{1} << stored.padding_bits);
                for (const std::uint64_t code : {x, x ^ stored.sign_mask(), y, y ^ stored.sign_mask()}) {
                    operands_.push_back(decode_operand(stored, unit, code));
                    values_.push_back(decode_for_oracle(code));
                }
            }
    }
    const Operand& operand(std::size_t i) const { return operands_[i]; }
    const oracle::Value& value(std::size_t i) const { return values_[i]; }

private:
    std::vector<Operand> operands_;
    std::vector<oracle::Value> values_;
};

/// One random case: which operands, and c.
struct DotCase {
    std::vector<std::size_t> a, b;
    std::uint64_t c = 0;
    bool cancels = false;

    void fill(const DistinctRule& d, Random& random) {
        const Format& format_c = d.rule->types.c;
        const std::uint64_t choice = random.next();
        // Shorter than the instruction now and then: the rest counts as zero.
        const auto full = static_cast<std::size_t>(d.k);
        const std::size_t k = (choice & 7) == 0 ? 1 + (choice >> 8) % full : full;
        const std::size_t style_a = (choice >> 16) % 7,
                          style_b = (choice >> 24 & 1) != 0 ? style_a : (choice >> 20) % 7;
        cancels = (choice >> 32 & 3) == 0;
        a.resize(k);
        b.resize(k);
        for (std::size_t i = 0; i < k; ++i) {
            const std::uint64_t bits = random.next();
            a[i] = style_a * OperandPool::size + bits % OperandPool::size;
            b[i] = style_b * OperandPool::size + (bits >> 32) % OperandPool::size;
        }
        c = random_code(format_c, static_cast<int>((choice >> 28) % 7), random.next());
        if (cancels) {
            // Each product meets its opposite somewhere; one is off by a little, and c may be zero.
            for (std::size_t i = 0; i + 1 < k; i += 2) {
                a[i + 1] = a[i] ^ 1;
                b[i + 1] = b[i];
            }
            const auto turn = static_cast<std::ptrdiff_t>(k / 3);
            std::rotate(a.begin(), a.begin() + turn, a.end());
            std::rotate(b.begin(), b.begin() + turn, b.end());
            if ((choice >> 34 & 1) != 0) a[0] ^= 2;
            if ((choice >> 35 & 1) != 0) c = 0;
        }
        if ((choice >> 40 & 15) == 0) c = (choice >> 44 & 1) != 0 ? format_c.sign_mask() : 0;
    }
};

inline void compare_with_oracle(const DistinctRule& d, std::uint64_t cases, std::uint64_t stream, DotTally& tally) {
    const DotTypes& t = d.rule->types;
    const oracle::TensorCoreOracle oracle(d.model, t.a, t.b);
    constexpr std::uint64_t pieces = 16;
    Random pool_random(stream);
    const auto value_a = [&](std::uint64_t code) { return oracle.operand_a(code); };
    const auto value_b = [&](std::uint64_t code) { return oracle.operand_b(code); };
    const OperandPool pool_a(t.a, d.rule->unit_a, value_a, pool_random),
        pool_b(t.b, d.rule->unit_b, value_b, pool_random);
    tbb::parallel_for(std::uint64_t{0}, pieces, [&](std::uint64_t piece) {
        Random random(stream * pieces + piece + 1'000'000);
        DotCase one;
        std::vector<Operand> a, b;
        std::vector<oracle::Value> oracle_a, oracle_b;
        std::uint64_t different = 0, nan = 0, infinite = 0, zero = 0, subnormal = 0, cancelled = 0;
        const std::uint64_t count = (cases + pieces - 1) / pieces;
        for (std::uint64_t i = 0; i < count; ++i) {
            one.fill(d, random);
            const std::size_t k = one.a.size();
            a.resize(k), b.resize(k), oracle_a.resize(k), oracle_b.resize(k);
            for (std::size_t j = 0; j < k; ++j) {
                a[j] = pool_a.operand(one.a[j]), b[j] = pool_b.operand(one.b[j]);
                oracle_a[j] = pool_a.value(one.a[j]), oracle_b[j] = pool_b.value(one.b[j]);
            }
            const std::uint64_t got = dot_add(*d.rule, a, b, one.c);
            if (got != oracle(oracle_a, oracle_b, one.c)) ++different;
            const oracle::Value v = oracle::value_of(t.d, got);
            nan += v.kind == oracle::Class::nan;
            infinite += v.kind == oracle::Class::infinite;
            zero += v.kind == oracle::Class::finite && v.significand == 0;
            subnormal += v.kind == oracle::Class::finite && v.significand != 0 && v.significand <= t.d.fraction_mask();
            cancelled += one.cancels;
        }
        tally.compared += count;
        tally.different += different;
        tally.nan += nan;
        tally.infinite += infinite;
        tally.zero += zero;
        tally.subnormal += subnormal;
        tally.cancelled += cancelled;
    });
}

}  // namespace bitreplay::test
