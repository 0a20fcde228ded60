#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"

namespace bitreplay::cuda {
namespace {

using f32::add;
using f32::fma;
using f32::mul;
using f32::sub;

constexpr Bits infinity = 0x7F800000, sign_bit = 0x80000000, one = 0x3F800000;

constexpr Bits magnitude(Bits x) noexcept { return x & ~sign_bit; }
constexpr Bits negate(Bits x) noexcept { return x ^ sign_bit; }

/// |x|^y for positive |x|: log2 in two floats, the product with y in two floats, 2^ by a polynomial.
Bits positive_power(const Mufu& unit, Bits a, Bits y) noexcept {
    const bool tiny = f32::less(a, 0x00800000);
    const Bits x = tiny ? mul(a, 0x4B800000) : a;
    const Bits e = (x - 0x3F3504F3) & 0xFF800000;
    const Bits m = x - e;
    const Bits exponent = fma(f32::from_int(static_cast<std::int32_t>(e)), 0x34000000, tiny ? 0xC1C00000 : 0);
    const Bits f = add(m, 0xBF800000);
    const Bits reciprocal = unit.rcp_ftz(add(m, one));
    const Bits u = mul(add(f, f), reciprocal), s = mul(u, u);  // log(m) = 2·artanh(f / (m + 1))
    const Bits difference = sub(f, u);
    const Bits u_low = mul(reciprocal, fma(negate(u), f, add(difference, difference)));
    Bits p = fma(fma(fma(0x3A2C32E4, s, 0x3B52E7DB), s, 0x3C93BB73), s, 0x3DF6384F);
    p = mul(p, s);
    constexpr Bits log2_e = 0x3FB8AA3B;
    const Bits high = fma(u, log2_e, exponent);
    Bits low = fma(u_low, log2_e, fma(u, log2_e, sub(exponent, high)));
    low = fma(u, 0x32A55E34, low);
    low = fma(mul(p, 0x40400000), u_low, low);
    low = fma(p, u, low);
    const Bits log_high = add(high, low);
    const Bits log_low = add(low, negate(add(log_high, negate(high))));

    const Bits product = mul(log_high, y);
    const Bits product_low = fma(log_low, y, fma(log_high, y, negate(product)));
    const Bits whole = f32::round_to_integer(product);
    const Bits r = add(product_low, sub(product, whole));
    Bits q = fma(fma(0x391FCB8E, r, 0x3AAF85ED), r, 0x3C1D9856);
    q = fma(fma(fma(q, r, 0x3D6357BB), r, 0x3E75FDEC), r, 0x3F317218);
    q = fma(q, r, one);
    if (f32::less(0x43180000, magnitude(product))) return f32::less(product, 0) ? 0 : infinity;
    // 2^whole in two factors: neither over- nor underflows.
    const Bits bias = f32::less(0, whole) ? 0 : 0x83000000;
    const Bits scale = (static_cast<Bits>(f32::to_int(whole)) << 23) - bias;
    return mul(mul(q, bias + 0x7F000000), scale);
}

}  // namespace

Bits powf(const Mufu& unit, Bits x, Bits y) noexcept {
    if (x == one || magnitude(y) == 0) return one;
    if (magnitude(x) > infinity || magnitude(y) > infinity) return add(x, y);
    const Bits halves = f32::truncate(mul(y, 0x3F000000));
    const bool odd = magnitude(sub(y, add(halves, halves))) == one;
    const bool negative_y = (y & sign_bit) != 0;
    if (magnitude(x) == 0 || magnitude(x) == infinity) {
        Bits r = add(x, x);
        if (negative_y) r ^= infinity;
        return odd ? r : magnitude(r);
    }
    if (x == (sign_bit | one) && magnitude(y) == infinity) return one;
    const Bits power = positive_power(unit, magnitude(x), y);
    if ((x & sign_bit) == 0) return power;
    if (f32::floor(y) != y) return 0x7FFFFFFF;
    return odd ? negate(power) : power;
}

}  // namespace bitreplay::cuda
