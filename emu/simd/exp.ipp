// ex2 and expf once, on a vector wrapper `Vector` (exp_<isa>.cpp). The scalar definitions are arch/mufu.cpp and
// emu/cuda_math.cpp.
#include "emu/simd/exp.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::Ex2Table;
using F = Vector::F;
using I = Vector::I;
using Size = decltype(sizeof 0);

#define BITREPLAY_INLINE __attribute__((always_inline)) inline

BITREPLAY_INLINE I constant(int x) { return Vector::broadcast(x); }
BITREPLAY_INLINE F real(std::uint32_t bits) { return Vector::real(constant(static_cast<int>(bits))); }

/// The 15-bit truncated square of 17-bit numbers: mufu_square of arch/mufu.hpp.
BITREPLAY_INLINE I square(I x) {
    const I low = Vector::band(x, constant(0x1FF)), high = Vector::shift_right<9>(x);
    I sum = Vector::shift_right<1>(Vector::multiply_16(high, high));
    sum = Vector::add_if_bit<1>(high, sum, Vector::shift_right<8>(low));
    sum = Vector::add_if_bit<2>(high, sum, Vector::shift_right<7>(low));
    sum = Vector::add_if_bit<3>(high, sum, Vector::shift_right<6>(low));
    sum = Vector::add_if_bit<4>(high, sum, Vector::shift_right<5>(low));
    sum = Vector::add_if_bit<5>(high, sum, Vector::shift_right<4>(low));
    sum = Vector::add_if_bit<6>(high, sum, Vector::shift_right<3>(low));
    return Vector::add_if_bit<7>(high, sum, Vector::shift_right<2>(low));
}

BITREPLAY_INLINE F ex2_ftz(const Vector::Table& table, F x) {
    // |x| · 2^23 is exact, and fits where the result is neither 0 nor infinity.
    const I fraction_mask = constant(0x7FFFFF);
    const I fixed = Vector::truncate(Vector::mul(Vector::absolute(x), real(0x4B000000)));
    const I sign = Vector::shift_right_signed<31>(Vector::bits(x));
    // A negative argument: its complement, plus one if it is an integer.
    const I whole_number = Vector::equal(Vector::band(fixed, fraction_mask), constant(0));
    const I argument = Vector::sub(Vector::bxor(fixed, sign), Vector::band(whole_number, sign));
    const I fraction = Vector::band(argument, fraction_mask);
    const I row = Vector::shift_right<17>(fraction), low = Vector::band(fraction, constant(0x1FFFF));

    const I slopes = Vector::slopes(table, row);
    const I linear = Vector::band(slopes, constant(0xFFFF)), quadratic = Vector::shift_right<16>(slopes);
    // The 39-bit sum in three steps, each floored: units of 2^-38, 2^-30, 2^-25, and 2^-23 at the end.
    I sum = Vector::add(Vector::multiply(linear, Vector::band(low, constant(0xFF))), Vector::multiply(quadratic, square(low)));
    sum = Vector::shift_right<8>(Vector::add(sum, table.offset));
    sum = Vector::add(Vector::multiply(linear, Vector::shift_right<8>(low)), sum);
    const I significand = Vector::shift_right<2>(Vector::add(Vector::constants(table, row), Vector::shift_right<5>(sum)));

    const I exponent = Vector::add(Vector::shift_right_signed<23>(argument), constant(126));
    const F value = Vector::real(Vector::add(Vector::shift_left<23>(exponent), significand));
    return Vector::specials(x, value);
}

/// Without flush: x < −126 goes through the square of ex2(x / 2).
BITREPLAY_INLINE F ex2(const Vector::Table& table, F x) {
    const auto small = Vector::less(x, real(0xC2FC0000));
    const F y = ex2_ftz(table, Vector::select(small, Vector::mul(x, real(0x3F000000)), x));
    return Vector::select(small, Vector::mul(y, y), y);
}

struct Parts {
    F power, scale;
};
BITREPLAY_INLINE Parts exp_parts(const Vector::Table& table, F x) {
    const F t = Vector::saturate(Vector::fma(x, real(0x3BBB989D), real(0x3F000000)));
    // k = floor(252·t) of the exact product: its rounding error tells whether it was rounded up to an integer.
    const F factor = real(0x437C0000);
    const F product = Vector::mul(t, factor);
    const F error = Vector::fma(t, factor, Vector::negate(product));
    F k = Vector::floor(product);
    const auto above = Vector::both(Vector::same(k, product), Vector::less(error, real(0)));
    k = Vector::select(above, Vector::sub(k, real(0x3F800000)), k);
    const F minus_n = Vector::sub(real(0x42FC0000), k);
    const F r = Vector::fma(x, real(0x32A57060), Vector::fma(x, real(0x3FB8AA3B), minus_n));
    return {ex2_ftz(table, r), Vector::real(Vector::shift_left<23>(Vector::add(Vector::truncate(k), constant(1))))};
}

BITREPLAY_INLINE F expf(const Vector::Table& table, F x) {
    const Parts parts = exp_parts(table, x);
    return Vector::mul(parts.power, parts.scale);
}

/// Whole vectors in place, the rest through a buffer.
template <class Step>
BITREPLAY_INLINE void for_each_vector(const std::uint32_t* in, Size n, const Step& step) {
    Size i = 0;
    for (; i + Vector::lanes <= n; i += Vector::lanes) step(in + i, i, Vector::lanes);
    if (i == n) return;
    std::uint32_t rest[Vector::lanes] = {};
    for (Size j = 0; i + j < n; ++j) rest[j] = in[i + j];
    step(rest, i, n - i);
}

BITREPLAY_INLINE void put(std::uint32_t* out, F value, Size count) {
    if (count == Vector::lanes) return Vector::store(out, value);
    std::uint32_t buffer[Vector::lanes];
    Vector::store(buffer, value);
    for (Size j = 0; j < count; ++j) out[j] = buffer[j];
}

#define BITREPLAY_MAP(name)                                                                                          \
    void name##_array(const Ex2Table& stored, const std::uint32_t* in, std::uint32_t* out, Size n) noexcept {        \
        const Vector::Table table(stored);                                                                          \
        for_each_vector(in, n, [&](const std::uint32_t* from, Size at, Size count) __attribute__((always_inline)) { \
            put(out + at, name(table, Vector::load(from)), count);                                                  \
        });                                                                                                         \
    }
BITREPLAY_MAP(ex2_ftz)
BITREPLAY_MAP(ex2)
BITREPLAY_MAP(expf)
#undef BITREPLAY_MAP

void exp_parts_array(const Ex2Table& stored, const std::uint32_t* in, std::uint32_t* power, std::uint32_t* scale, Size n) noexcept {
    const Vector::Table table(stored);
    for_each_vector(in, n, [&](const std::uint32_t* from, Size at, Size count) __attribute__((always_inline)) {
        const Parts parts = exp_parts(table, Vector::load(from));
        put(power + at, parts.power, count);
        put(scale + at, parts.scale, count);
    });
}

}  // namespace

simd::ExpKernels exp_kernels() noexcept { return {ex2_ftz_array, ex2_array, expf_array, exp_parts_array}; }

}  // namespace bitreplay::BITREPLAY_ISA
