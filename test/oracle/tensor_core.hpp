#pragma once
// Independent exact oracle, part 3: the tensor-core dot product, from the published descriptions: T-FDPA of Xie et al.
// (MMA-Sim, arXiv 2511.10909), NFMA of Khattak & Mikaitis (arXiv 2512.07004).

#include <span>
#include <vector>

#include "test/oracle/rounding.hpp"

namespace bitreplay::oracle {

/// The arithmetic of one instruction as the papers tabulate it.
struct TensorCore {
    enum class Kind : std::uint8_t {
        fused,        ///< chain of T-FDPA steps of L products
        fp8_on_fp16,  ///< fp8 operands executed on an fp16 unit: two chains from zero, then c is added
        fma_chain,    ///< IEEE fused multiply-adds in k order
    };
    enum class Output : std::uint8_t { rz_fp32, rz_e8m13, rne_fp16, fp64 };
    Kind kind;
    int L, F;
    Output output;
    bool operator==(const TensorCore&) const = default;
};

class TensorCoreOracle {
public:
    TensorCoreOracle(const TensorCore& core, const Format& a, const Format& b)
        : core_(core),
          stored_a_(a),
          stored_b_(b),
          d_(output_format(core.output)),
          round_(d_, mode(core.output)),
          nearest_(d_, {}),
          to_fp16_(fp16, {}),
          wide_(fp64, {}) {}

    /// Operands as the unit sees them: those of an fp16 unit become fp16, so that fp8 subnormals have the exponents of
    /// the fp16 numbers that they are.
    Value operand_a(std::uint64_t code) const { return operand(stored_a_, code); }
    Value operand_b(std::uint64_t code) const { return operand(stored_b_, code); }

    /// d = a.b + c; c and d are codes of the output format.
    std::uint64_t operator()(std::span<const Value> a, std::span<const Value> b, std::uint64_t c) const {
        switch (core_.kind) {
            case TensorCore::Kind::fused: return chain(a, b, c);
            case TensorCore::Kind::fp8_on_fp16: {
                // S1: k mod 4 in {0, 1}; S2: the rest.
                std::vector<Value> a1, b1, a2, b2;
                for (std::size_t k = 0; k < a.size(); ++k) {
                    const bool first = k % 4 == 0 || k % 4 == 1;
                    (first ? a1 : a2).push_back(a[k]);
                    (first ? b1 : b2).push_back(b[k]);
                }
                const std::uint64_t t1 = chain(a1, b1, 0);
                const std::uint64_t t2 = chain(a2, b2, t1);
                return sum(t2, c);
            }
            case TensorCore::Kind::fma_chain:
                for (std::size_t k = 0; k < a.size(); ++k) c = fma(a[k], b[k], c);
                return c;
        }
        return 0;
    }

    static Format output_format(TensorCore::Output output) {
        if (output == TensorCore::Output::fp64) return fp64;
        return output == TensorCore::Output::rne_fp16 ? fp16 : fp32;
    }

private:
    using W = FixedInt<128>;

    static Mode mode(TensorCore::Output output) {
        if (output == TensorCore::Output::rz_fp32) return {Direction::toward_zero, Beyond::infinity, 23};
        if (output == TensorCore::Output::rz_e8m13) return {Direction::toward_zero, Beyond::infinity, 13};
        return {Direction::nearest_even, Beyond::ieee, -1};
    }

    Value operand(const Format& stored, std::uint64_t code) const {
        if (core_.kind != TensorCore::Kind::fp8_on_fp16) return value_of(stored, code);
        return value_of(fp16, convert(stored, to_fp16_, code));
    }

    std::uint64_t chain(std::span<const Value> a, std::span<const Value> b, std::uint64_t c) const {
        const auto L = static_cast<std::size_t>(core_.L);
        std::size_t k = 0;
        do {
            const std::size_t n = a.size() - k < L ? a.size() - k : L;
            c = step(a.subspan(k, n), b.subspan(k, n), c);
            k += n;
        } while (k < a.size());
        return c;
    }

    /// A term of the sum: +-significand * 2^scale, with the exponent that takes part in e_max.
    struct Term {
        bool negative;
        std::uint64_t significand;
        int scale, exponent;
    };

    std::uint64_t step(std::span<const Value> a, std::span<const Value> b, std::uint64_t c) const {
        Term terms[65];
        std::size_t count = 0;
        bool nan = false, positive_infinity = false, negative_infinity = false;
        const Value start = value_of(d_, c);
        if (start.kind == Class::nan) nan = true;
        if (start.kind == Class::infinite) (start.negative ? negative_infinity : positive_infinity) = true;
        if (start.kind == Class::finite && start.significand != 0)
            terms[count++] = {start.negative, start.significand, start.scale, start.exponent};
        for (std::size_t k = 0; k < a.size(); ++k) {
            const Value &x = a[k], &y = b[k];
            const bool negative = x.negative ^ y.negative;
            const bool x_zero = x.kind == Class::finite && x.significand == 0;
            const bool y_zero = y.kind == Class::finite && y.significand == 0;
            if (x.kind == Class::nan || y.kind == Class::nan) {
                nan = true;
            } else if (x.kind == Class::infinite || y.kind == Class::infinite) {
                if (x_zero || y_zero) nan = true;
                if (!x_zero && !y_zero) (negative ? negative_infinity : positive_infinity) = true;
            } else if (!x_zero && !y_zero) {
                terms[count++] = {negative, x.significand * y.significand, x.scale + y.scale, x.exponent + y.exponent};
            }
        }
        if (nan || (positive_infinity && negative_infinity)) return round_.nan();
        if (positive_infinity || negative_infinity) return nearest_.infinite(negative_infinity);
        if (count == 0) return 0;
        int e_max = terms[0].exponent;
        for (std::size_t i = 1; i < count; ++i)
            if (terms[i].exponent > e_max) e_max = terms[i].exponent;
        // Everything in units of 2^(e_max - F); what lies below one unit is cut off the magnitude.
        W total = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const int up = terms[i].scale - (e_max - core_.F);
            W magnitude = terms[i].significand;
            if (up >= 0)
                magnitude <<= static_cast<unsigned>(up);
            else if (up > -100)
                magnitude >>= static_cast<unsigned>(-up);
            else
                magnitude = 0;  // the significands have fewer than 64 bits
            if (terms[i].negative)
                total -= magnitude;
            else
                total += magnitude;
        }
        const bool negative = total < 0;
        return round_(negative, negative ? W(-total) : total, e_max - core_.F);
    }

    /// One IEEE addition in the output format, round to nearest even.
    std::uint64_t sum(std::uint64_t x, std::uint64_t y) const {
        const Value p = value_of(d_, x), q = value_of(d_, y);
        if (p.kind == Class::nan || q.kind == Class::nan) return nearest_.nan();
        if (p.kind == Class::infinite && q.kind == Class::infinite && p.negative != q.negative) return nearest_.nan();
        if (p.kind == Class::infinite) return nearest_.infinite(p.negative);
        if (q.kind == Class::infinite) return nearest_.infinite(q.negative);
        using Wide = FixedInt<512>;
        const int scale = p.scale < q.scale ? p.scale : q.scale;  // within 280 bits of each other
        Wide u = Wide(p.significand) << static_cast<unsigned>(p.scale - scale);
        Wide v = Wide(q.significand) << static_cast<unsigned>(q.scale - scale);
        if (p.negative) u = -u;
        if (q.negative) v = -v;
        const Wide total = u + v;
        if (total == 0) return p.negative && q.negative ? x : 0;  // -0 only from two negative zeros
        const Rounder<Wide> round(d_, {});
        return round(total < 0, total < 0 ? Wide(-total) : total, scale);
    }

    /// IEEE fused multiply-add in fp64, round to nearest even.
    std::uint64_t fma(const Value& x, const Value& y, std::uint64_t c) const {
        const Value z = value_of(fp64, c);
        const bool x_zero = x.kind == Class::finite && x.significand == 0;
        const bool y_zero = y.kind == Class::finite && y.significand == 0;
        const bool negative = x.negative ^ y.negative;
        // What the unit does with NaN is not in IEEE 754: it passes one on, quieted, the second factor before the
        // addend before the first factor (testdata/h200/instructions, f64); an invalid operation gives the default NaN.
        constexpr std::uint64_t default_nan = 0xFFF8'0000'0000'0000;
        for (const Value* operand : {&y, &z, &x})
            if (operand->kind == Class::nan)
                return (operand->negative ? std::uint64_t{1} << 63 : 0) | (default_nan & ~(std::uint64_t{1} << 63)) |
                       operand->significand;
        if (x.kind == Class::infinite || y.kind == Class::infinite) {
            if (x_zero || y_zero) return default_nan;
            if (z.kind == Class::infinite && z.negative != negative) return default_nan;
            return wide_.infinite(negative);
        }
        if (z.kind == Class::infinite) return wide_.infinite(z.negative);
        FmaInt u = FmaInt(x.significand) * y.significand, v = z.significand;
        if (u == 0 && v == 0) return negative && z.negative ? std::uint64_t{1} << 63 : 0;
        if (u == 0) return c;
        // Far apart, the smaller one counts as one unit far below the larger: only "not zero" matters for the rounding.
        int scale = x.scale + y.scale;
        int z_scale = z.scale;
        if (v != 0) {
            constexpr int far = 400;
            if (scale > z_scale + far)
                z_scale = scale - far, v = 1;
            else if (z_scale > scale + far)
                scale = z_scale - far, u = 1;
            const int low = scale < z_scale ? scale : z_scale;
            u <<= static_cast<unsigned>(scale - low);
            v <<= static_cast<unsigned>(z_scale - low);
            scale = low;
        }
        if (negative) u = -u;
        if (z.negative) v = -v;
        const FmaInt total = u + v;
        if (total == 0) return 0;
        return wide_(total < 0, total < 0 ? FmaInt(-total) : total, scale);
    }

    using FmaInt = FixedInt<640>;  // 106-bit product, 400 bits apart, with room

    TensorCore core_;
    Format stored_a_, stored_b_, d_;
    Rounder<W> round_, nearest_, to_fp16_;
    Rounder<FmaInt> wide_;
};

}  // namespace bitreplay::oracle
