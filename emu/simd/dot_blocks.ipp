// One block of an exact walk for one vector of columns, whatever its operands are. emu/simd/EXACT.md derives every
// bound used here; the scalar definition is arch/dot.cpp.
#include "emu/simd/dot.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::Result;
using simd::WalkShape;
using simd::WalkTask;
using F = Simd::F;
using I = Simd::I;
using Size = decltype(sizeof 0);
constexpr int most_vectors = Simd::columns / Simd::lanes;  // of columns that a tile works on
static_assert(most_vectors == 4);

#define BITREPLAY_INLINE __attribute__((always_inline))

template <int n>
struct Index {
    static constexpr auto value = static_cast<Size>(n);  // of an array
    static constexpr int number = n;
};
/// Calls body with Index<0>, Index<1>, … so that register arrays are indexed by constants.
template <int n, int i = 0, class Body>
BITREPLAY_INLINE inline void unrolled(const Body& body) {
    if constexpr (i < n) {
        body(Index<i>{});
        unrolled<n, i + 1>(body);
    }
}

BITREPLAY_INLINE inline I constant(std::int32_t x) { return Simd::broadcast(x); }
BITREPLAY_INLINE inline I exponent_field(I bits) {
    return Simd::band(Simd::template shift_right<23>(bits), constant(0xFF));
}
/// 2^e for -126 <= e <= 127.
BITREPLAY_INLINE inline F power(I e) { return Simd::real(Simd::template shift_left<23>(Simd::add(e, constant(127)))); }

/// An integer as fp32, truncated; for fp16 results the last bit is sticky, so that the rounding to come is right.
template <Result result>
BITREPLAY_INLINE inline F to_float(I sum) {
    const F out = Simd::to_float(sum);
    if constexpr (result != Result::fp16) return out;
    return Simd::select(
        Simd::equal(Simd::truncate(out), sum), out, Simd::real(Simd::bor(Simd::bits(out), constant(1))));
}

/// The sum of two integers of up to 32 bits in the same way.
template <Result result, bool wide>
BITREPLAY_INLINE inline F rounded_sum(I low, I high) {
    const I sum = Simd::add(low, high);
    F out = to_float<result>(sum);
    if constexpr (wide) {
        const unsigned wrapped = Simd::greater(constant(0), Simd::band(Simd::bxor(low, sum), Simd::bxor(high, sum)));
        if (wrapped != 0) {
            // floor(sum / 2) with the lost bit kept as sticky: far below the last kept bit of a 32-bit magnitude.
            const I odd = Simd::band(Simd::bxor(low, high), constant(1));
            const I both = Simd::band(Simd::band(low, high), constant(1));
            const I half = Simd::add(
                Simd::add(Simd::template shift_right_signed<1>(low), Simd::template shift_right_signed<1>(high)), both);
            out = Simd::select(wrapped, Simd::mul(to_float<result>(Simd::bor(half, odd)), Simd::broadcast(2.0F)), out);
        }
    }
    return out;
}

/// The last step of a block: from sum * 2^0 in fp32 and the unit 2^(top - F) to the new accumulator.
template <Result result>
BITREPLAY_INLINE inline F finished(F value) {
    if constexpr (result == Result::e8m13)
        return Simd::real(Simd::band(Simd::bits(value), constant(static_cast<std::int32_t>(0xFFFFFC00))));
    if constexpr (result == Result::fp16) return Simd::through_fp16(value);
    return value;
}

/// x * 2^-max(exponent, min_exponent): the significand as the unit sees it, in (-2, 2).
BITREPLAY_INLINE inline F significand(F x, I field, std::int32_t min_field) {
    const I normal =
        Simd::bor(Simd::band(Simd::bits(x), constant(static_cast<std::int32_t>(0x807FFFFF))), constant(0x3F800000));
    const F scaled = Simd::mul(x, Simd::real(constant((254 - min_field) << 23)));
    return Simd::select(Simd::greater(constant(min_field), field), scaled, Simd::real(normal));
}

BITREPLAY_INLINE inline I field_of(F x, std::int32_t min_field) {
    return Simd::max(exponent_field(Simd::bits(x)), constant(min_field));
}

/// The result of a block whose accumulator is raised by 2^lift: its true value has no bits below 2^-149.
BITREPLAY_INLINE inline F gradual(F value, int lift) {
    const I lost = Simd::max(Simd::sub(constant(lift + 1), exponent_field(Simd::bits(value))), constant(0));
    const I kept = Simd::select(Simd::greater(lost, constant(23)),
                                constant(static_cast<std::int32_t>(0x80000000)),
                                Simd::shift_left_by(constant(-1), lost));
    return Simd::real(Simd::band(Simd::bits(value), kept));
}

/// How far the operands and the accumulator of a row are raised.
struct Lift {
    std::int32_t a = 0, b = 0;
    std::int32_t both() const { return a + b; }
};

/// One block for one vector of columns, right for every finite input below the caller's range guard and for an infinite
/// fp16 accumulator. About three times the work of the fast path.
template <Result result, bool wide>
__attribute__((noinline)) F exact_block(
    const WalkShape& shape, int length, const Lift& lift, const float* a, const float* b, F acc) {
    const std::int32_t min_a = shape.min_exponent_a + 127 + lift.a, min_b = shape.min_exponent_b + 127 + lift.b;
    const std::int32_t min_acc = 1 + lift.both();
    constexpr std::int32_t none = -100000;
    // Exponents below are fields (biased); a product's is the sum of two, so it carries the bias twice.
    const I acc_raw = exponent_field(Simd::bits(acc));
    const I acc_field = Simd::max(acc_raw, constant(min_acc));
    I top = Simd::select(Simd::zero(acc), constant(none), Simd::add(acc_field, constant(127)));
    for (int k = 0; k < length; ++k) {
        if (a[k] == 0.0F) continue;
        const std::int32_t ea = static_cast<std::int32_t>((__builtin_bit_cast(std::uint32_t, a[k]) >> 23) & 0xFF);
        const F x = Simd::load(b + k * simd::panel_columns);
        const I e = Simd::add(field_of(x, min_b), constant(ea > min_a ? ea : min_a));
        top = Simd::max(top, Simd::select(Simd::zero(x), constant(none), e));
    }
    // Terms more than 30 below the window's last bit truncate to zero whatever they are.
    const auto aligned = [&](F value, I exponent) {
        const I e = Simd::add(Simd::sub(exponent, top), constant(shape.align_bits));
        return Simd::truncate(Simd::mul(value, power(Simd::max(e, constant(-30)))));
    };
    // A zero accumulator may have an exponent far above top, and its power of two would be infinite.
    I sum[2] = {aligned(significand(acc, acc_raw, min_acc), Simd::min(Simd::add(acc_field, constant(127)), top)),
                constant(0)};
    for (int k = 0; k < length; ++k) {
        if (a[k] == 0.0F) continue;
        const F x = Simd::load(b + k * simd::panel_columns);
        const F y = Simd::broadcast(a[k]);
        const I raw_y = exponent_field(Simd::bits(y));
        const F product = Simd::mul(significand(x, exponent_field(Simd::bits(x)), min_b), significand(y, raw_y, min_a));
        const I e = Simd::add(field_of(x, min_b), Simd::max(raw_y, constant(min_a)));
        I& part = sum[2 * k >= length];
        part = Simd::add(part, aligned(product, Simd::min(e, top)));
    }
    // 2^(top - F) in two factors: the first product is exact, the second truncates once, to a subnormal if need be.
    const I unit = Simd::sub(top, constant(254 + shape.align_bits));
    const I first = Simd::max(unit, constant(-126));
    const I second = Simd::max(Simd::sub(unit, first), constant(-126));
    F value = Simd::mul_toward_zero(Simd::mul(rounded_sum<result, wide>(sum[0], sum[1]), power(first)), power(second));
    if (lift.both() != 0) value = gradual(value, lift.both());
    const F out = finished<result>(Simd::select(Simd::equal(top, constant(none)), Simd::broadcast(0.0F), value));
    return Simd::select(Simd::equal(acc_raw, constant(255)), acc, out);
}

/// A block whose int32 sum may have wrapped: the two halves are summed apart (each fits; see WalkShape::wrap_limit).
template <Result result>
__attribute__((noinline)) F wide_block(int length, const float* a, const float* b, F acc, F scale, I sum) {
    I low = Simd::truncate(Simd::mul(acc, scale));
    for (int k = 0; k < length / 2; ++k)
        low = Simd::add(low,
                        Simd::truncate(Simd::mul(
                            Simd::mul(Simd::broadcast(a[k]), Simd::load(b + k * simd::panel_columns)), scale)));
    return rounded_sum<result, true>(low, Simd::sub(sum, low));
}

/// 2^(F - top) and 2^(top - F) for an exponent field in place.
BITREPLAY_INLINE inline F scale_of(I exponent, int align) {
    return Simd::real(Simd::sub(constant((align + 254) << 23), exponent));
}
BITREPLAY_INLINE inline F unit_of(I exponent, int align) {
    return Simd::real(Simd::sub(exponent, constant(align << 23)));
}
/// The inverse of a power of two.
BITREPLAY_INLINE inline F inverse_of(F scale) { return Simd::real(Simd::sub(constant(254 << 23), Simd::bits(scale))); }

/// Exponent fields at or below this are not for the fast path: an operand clamped to exponent_floor could be the
/// largest, or a product that underflows in fp32 could count.
BITREPLAY_INLINE inline std::int32_t lowest_safe_exponent(int top, int align) {
    const int clamped = top + simd::exponent_floor, small = align - 126;
    return ((clamped > small ? clamped : small) + 127) << 23;
}

constexpr unsigned all_lanes = (1U << Simd::lanes) - 1;
constexpr std::int32_t exponent_bits = 0x7F800000;

/// The largest power of two below WalkShape::wrap_limit and all bits above it; 0 where no sum can wrap.
BITREPLAY_INLINE inline std::int32_t wrap_bits(const WalkShape& shape) {
    return shape.wrap_limit == 0 ? 0 : -(1 << (31 - __builtin_clz(shape.wrap_limit)));
}

/// Lanes of a block in which a factor of every product is zero.
BITREPLAY_INLINE inline unsigned zero_products(int length, const float* a, const float* b) {
    I some = constant(0);
    for (int k = 0; k < length; ++k)
        if (a[k] != 0.0F) some = Simd::bor(some, Simd::bits(Simd::load(b + k * simd::panel_columns)));
    return Simd::equal(Simd::band(some, constant(0x7FFFFFFF)), constant(0));
}

/// Finishes a block of one row in which some lane is not for the fast path.
template <Result result, bool wide>
__attribute__((noinline)) void careful_block(const WalkShape& shape,
                                             int length,
                                             int columns,
                                             std::int32_t lowest_safe,
                                             const Lift& lift,
                                             const float* a,
                                             const float* b,
                                             const std::int32_t* exponents,
                                             const std::int32_t* sums,
                                             float* acc) {
    for (int i = 0; i < columns; i += Simd::lanes) {
        const I x = Simd::load(exponents + i), sum = Simd::load(sums + i);
        const F old = Simd::load(acc + i);
        F rounded = to_float<result>(sum);
        if constexpr (wide)
            if (Simd::equal(Simd::band(Simd::absolute(sum), constant(wrap_bits(shape))), constant(0)) != all_lanes)
                rounded = wide_block<result>(length, a, b + i, old, scale_of(x, shape.align_bits), sum);
        F value = Simd::mul(rounded, unit_of(x, shape.align_bits));
        if (lift.both() != 0) value = gradual(value, lift.both());
        value = finished<result>(value);
        const unsigned fast = Simd::greater(x, constant(lowest_safe)) & ~Simd::equal(x, constant(exponent_bits));
        if (const unsigned slow = ~fast & all_lanes; slow != 0) {
            // Sparse data has many blocks of zeros before the first product that is not zero: exactly +0.
            const unsigned nothing = slow & Simd::zero(old) & zero_products(length, a, b + i);
            value = Simd::select(nothing, Simd::broadcast(0.0F), value);
            if (nothing != slow)
                value =
                    Simd::select(fast | nothing, value, exact_block<result, wide>(shape, length, lift, a, b + i, old));
        }
        Simd::store(acc + i, value);
    }
}

}  // namespace
}  // namespace bitreplay::BITREPLAY_ISA
