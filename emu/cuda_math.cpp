#include "emu/cuda_math.hpp"

#include <array>
#include <initializer_list>

#include "arch/fp32.hpp"

namespace bitreplay::cuda {
namespace {

using f32::add;
using f32::div;
using f32::fma;
using f32::mul;
using f32::sub;

constexpr Bits nan = 0x7FFFFFFF, infinity = 0x7F800000, sign_bit = 0x80000000;
constexpr Bits half = 0x3F000000, one = 0x3F800000, minus_one = 0xBF800000, min_normal = 0x00800000;
constexpr Bits log2_e = 0x3FB8AA3B, ln_2 = 0x3F317218, two_to_minus_23 = 0x34000000;
constexpr Bits exponent_mask = 0xFF800000;

constexpr Bits magnitude(Bits x) noexcept { return x & ~sign_bit; }
constexpr bool is_nan(Bits x) noexcept { return magnitude(x) > infinity; }
constexpr Bits negate(Bits x) noexcept { return x ^ sign_bit; }
constexpr Bits copysign(Bits value, Bits sign) noexcept { return magnitude(value) | (sign & sign_bit); }

/// ((c0·x + c1)·x + c2)… by fused multiply-adds.
Bits horner(Bits x, std::initializer_list<Bits> coefficients) noexcept {
    auto c = coefficients.begin();
    Bits p = *c++;
    for (; c != coefficients.end(); ++c) p = fma(p, x, *c);
    return p;
}

/// The exponent that log and its relatives take off: m = x·2^-e lies in [threshold, 2·threshold). `scaled` is float(e·2^23).
struct Split {
    Bits mantissa, scaled;
};
Split split(Bits x, Bits threshold) noexcept {
    const Bits e = (x - threshold) & exponent_mask;
    return {x - e, f32::from_int(static_cast<std::int32_t>(e))};
}

}  // namespace

ExpParts exp_parts(const Mufu& unit, Bits x) noexcept {
    // The exponent n is found from x·log2(e)/252 + 1/2 saturated to [0, 1] and one FMA rounded down, whose result's low
    // bits are floor(252·t) + 1; here floor(252·t) is taken directly.
    Bits t = fma(x, 0x3BBB989D, half);
    if (is_nan(t) || (t & sign_bit) != 0) t = 0;
    if (t > one) t = one;
    const std::uint64_t significand = (t & 0x7FFFFF) | min_normal;
    const int drop = 127 + 23 - static_cast<int>(t >> 23);
    const Bits k = drop < 32 ? static_cast<Bits>((significand * 252) >> drop) : 0;
    const Bits minus_n = f32::from_int(126 - static_cast<std::int32_t>(k));
    const Bits r = fma(x, 0x32A57060, fma(x, log2_e, minus_n));
    return {unit.ex2_ftz(r), (k + 1) << 23};
}

Bits expf(const Mufu& unit, Bits x) noexcept {
    const ExpParts parts = exp_parts(unit, x);
    return mul(parts.power, parts.scale);
}

Bits exp2f(const Mufu& unit, Bits x) noexcept { return unit.ex2(x); }

Bits expm1f(const Mufu& unit, Bits x) noexcept {
    const Bits n = magnitude(x) < 0x3ED1EB85 ? 0 : f32::round_to_integer(mul(x, log2_e));
    const Bits r = fma(negate(n), 0x35BFBE8E, fma(negate(n), 0x3F317200, x));
    const bool top = n == 0x43000000;  // 2^128 does not exist: halve, double at the end
    const Bits z = top ? add(n, minus_one) : n;
    Bits p = mul(r, horner(r, {0x3AB5EBE6, 0x3C095663, 0x3D2AABE3, 0x3E2AA9F6, 0x3EFFFFFE}));
    p = fma(p, r, r);
    const Bits power = unit.ex2(z);
    Bits y = fma(p, power, add(power, minus_one));
    if (top) y = add(y, y);
    if (f32::less(0x43000000, z)) y = infinity;
    if (f32::less(z, 0xC1C80000)) y = minus_one;
    return magnitude(x) == 0 ? x : y;
}

Bits logf(const Mufu&, Bits x) noexcept {
    const bool tiny = f32::less(x, min_normal);
    if (tiny) x = mul(x, 0x4B000000);
    const auto [mantissa, scaled] = split(x, 0x3F2AAAAB);
    const Bits m = add(mantissa, minus_one), exponent = fma(scaled, two_to_minus_23, tiny ? 0xC1B80000 : 0);
    Bits p = horner(m, {0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000});
    p = mul(m, p);
    p = fma(exponent, ln_2, fma(p, m, m));
    if (x >= infinity) p = fma(x, infinity, infinity);
    return magnitude(x) == 0 ? sign_bit | infinity : p;
}

Bits log2f(const Mufu&, Bits x) noexcept {
    const bool tiny = f32::less(x, min_normal);
    if (tiny) x = mul(x, 0x4B000000);
    const auto [mantissa, scaled] = split(x, 0x3F3504F3);
    const Bits m = add(mantissa, minus_one), exponent = fma(scaled, two_to_minus_23, tiny ? 0xC1B80000 : 0);
    Bits p = horner(m, {0x3DC6B27F, 0xBE2C7F30, 0x3E2FCF2A, 0xBE374E43, 0x3E520BF4, 0xBE763C8B, 0x3E93BF99, 0xBEB8AA49, 0x3EF6384A,
                        0xBF38AA3B});
    p = mul(m, mul(m, p));
    p = add(exponent, fma(m, log2_e, p));
    if (x >= infinity) p = fma(x, infinity, infinity);
    return magnitude(x) == 0 ? sign_bit | infinity : p;
}

Bits log1pf(const Mufu&, Bits x) noexcept {
    const Bits e = (add(x, one, Rounding::toward_zero) - 0x3F400000) & exponent_mask;
    const Bits scale = 0x40800000 - e;
    const Bits t = add(fma(0x3E800000, scale, minus_one), x - e);
    const Bits exponent = mul(f32::from_int(static_cast<std::int32_t>(e)), two_to_minus_23);
    Bits p = horner(t, {0xBD39BF78, 0x3DD80012, 0xBE0778E0, 0x3E146475, 0xBE2A68DD, 0x3E4CAF9E, 0xBE800042, 0x3EAAAAE6, 0xBF000000});
    p = mul(t, p);
    p = fma(exponent, ln_2, fma(p, t, t));
    if (x < infinity) return p;
    constexpr auto below_minus_one = static_cast<std::int32_t>(0xBF800001);
    if (static_cast<std::int32_t>(x) >= below_minus_one) p = fma(x, infinity, infinity);
    return magnitude(x) == 0 ? sign_bit : p;
}

namespace {

/// An argument reduced to [−π/4, π/4] and its quadrant.
struct Reduced {
    Bits r;
    std::uint32_t quadrant;
};

/// Payne and Hanek: the bits of 2/π that matter for this exponent, times the significand.
Reduced reduce_large(Bits x) noexcept {
    constexpr std::array<std::uint32_t, 6> two_over_pi{0x3C439041, 0xDB629599, 0xF534DDC0, 0xFC2757D1, 0x4E441529, 0xA2F9836E};
    std::array<std::uint32_t, 7> w{};
    const std::uint64_t significand = (x << 8) | 0x80000000;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < two_over_pi.size(); ++i) {
        carry += significand * two_over_pi[i];
        w[i] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
    }
    w[6] = static_cast<std::uint32_t>(carry);
    const std::uint32_t exponent = ((x >> 23) & 0xFF) - 128;
    const std::size_t s = exponent / 32;
    const std::uint32_t k = exponent % 32;
    std::uint32_t high = w[6 - s], low = w[5 - s];
    if (k != 0) {
        high = (high << k) | (low >> (32 - k));
        low = (low << k) | (w[4 - s] >> (32 - k));
    }
    std::uint64_t fraction = (std::uint64_t{(high << 2) | (low >> 30)} << 32) | (low << 2);
    const auto upper = static_cast<std::uint32_t>(fraction >> 63);
    std::uint32_t quadrant = upper + (high >> 30);
    Bits sign = x & sign_bit;
    if (sign != 0) quadrant = 0 - quadrant;
    if (upper != 0) {
        fraction = ~fraction;
        sign ^= sign_bit;
    }
    constexpr std::uint64_t half_pi_two_to_minus_64 = 0x3BF921FB54442D19;
    const Bits r = f64::to_f32(f64::mul(f64::from_int(static_cast<std::int64_t>(fraction)), half_pi_two_to_minus_64));
    return {r ^ sign, quadrant};
}

Reduced reduce(Bits x) noexcept {
    if (magnitude(x) >= 0x47CE4780) return reduce_large(x);
    const std::int32_t quadrant = f32::to_int(f32::round_to_integer(mul(x, 0x3F22F983)));
    const Bits q = f32::from_int(quadrant);  // never -0: sin(-0) is -0
    const Bits r = fma(q, 0xA7C234C5, fma(q, 0xB3A22168, fma(q, 0xBFC90FDA, x)));
    return {r, static_cast<std::uint32_t>(quadrant)};
}

Bits circular(Bits x, std::uint32_t first_quadrant) noexcept {
    if (magnitude(x) >= infinity) return nan;
    const auto [r, turned] = reduce(x);
    const std::uint32_t quadrant = turned + first_quadrant;
    const bool odd = (quadrant & 1) != 0;
    const Bits s = mul(r, r), base = odd ? one : r;
    const Bits p = odd ? horner(s, {0x37CBAC00, 0xBAB607ED, 0x3D2AAABB, 0xBEFFFFFF}) : horner(s, {0xB94D4153, 0x3C0885E4, 0xBE2AAAA8});
    const Bits v = fma(p, fma(s, base, 0), base);
    return (quadrant & 2) != 0 ? fma(v, minus_one, 0) : v;
}

}  // namespace

Bits sinf(const Mufu&, Bits x) noexcept { return circular(x, 0); }
Bits cosf(const Mufu&, Bits x) noexcept { return circular(x, 1); }

Bits tanhf(const Mufu& unit, Bits x) noexcept {
    if (is_nan(x)) return nan;
    const Bits a = magnitude(x);
    if (a >= 0x3F19999A) {
        const Bits power = unit.ex2_ftz(mul(a, 0x4038AA3B));
        const Bits r = fma(unit.rcp_ftz(add(power, one)), 0xC0000000, one);
        return copysign(a >= 0x41102CB4 ? one : r, x);
    }
    return fma(horner(mul(x, x), {0x3C80F082, 0xBD563CAE, 0x3E085941, 0xBEAAA9ED, 0}), x, x);
}

Bits erff(const Mufu& unit, Bits x) noexcept {
    if (is_nan(x)) return nan;
    const Bits a = magnitude(x);
    if (a < 0x3F8060FE) {
        const Bits p = horner(mul(x, x), {0x38B1E96A, 0xBA574D20, 0x3BAAD5EA, 0xBCDC1BE7, 0x3DE718AF, 0xBEC093AC, 0x3E0375D3});
        return fma(p, x, x);
    }
    const Bits p = horner(a, {0x38EB4C3A, 0xBAAE005B, 0x3C09919F, 0xBD24D99A, 0x3E235519, 0x3F69B4F9, 0x3F210A14});
    return copysign(sub(one, unit.ex2_ftz(fma(p, negate(a), negate(a)))), x);
}

Bits rsqrtf(const Mufu& unit, Bits x) noexcept { return unit.rsqrt(x); }
Bits sqrtf(const Mufu&, Bits x) noexcept { return f32::sqrt(x); }
Bits reciprocal(const Mufu&, Bits x) noexcept { return div(one, x); }

Bits sigmoid(const Mufu& unit, Bits x) noexcept {
    const ExpParts parts = exp_parts(unit, negate(x));
    return div(one, fma(parts.power, parts.scale, one));
}

Bits silu(const Mufu& unit, Bits x) noexcept {
    const ExpParts parts = exp_parts(unit, negate(x));
    return div(x, fma(parts.power, parts.scale, one));
}

Bits gelu(const Mufu& unit, Bits x) noexcept {
    return mul(mul(x, half), add(erff(unit, mul(x, 0x3F3504F3)), one));
}

Bits gelu_tanh(const Mufu& unit, Bits x) noexcept {
    const Bits u = mul(fma(mul(x, mul(x, x)), 0x3D372713, x), 0x3F4C422A);
    return mul(mul(x, half), add(tanhf(unit, u), one));
}

Bits softplus(const Mufu& unit, Bits x) noexcept {
    return f32::less(0x41A00000, x) ? x : log1pf(unit, expf(unit, x));
}

Bits relu_squared(const Mufu&, Bits x) noexcept {
    if ((x & sign_bit) != 0 && !is_nan(x)) return 0;
    return mul(x, x);
}

Bits fmaxf(Bits x, Bits y) noexcept { return f32::max(x, y); }
Bits fminf(Bits x, Bits y) noexcept { return f32::min(x, y); }

Bits fast_expf(const Mufu& unit, Bits x) noexcept { return unit.ex2(mul(x, log2_e)); }
Bits fast_expf_ftz(const Mufu& unit, Bits x) noexcept { return unit.ex2_ftz(mul(x, log2_e)); }
Bits fast_logf(const Mufu& unit, Bits x) noexcept { return mul(unit.lg2(x), ln_2); }
Bits fast_log2f(const Mufu& unit, Bits x) noexcept { return unit.lg2(x); }
Bits fast_sinf(const Mufu& unit, Bits x) noexcept { return unit.sin(x); }
Bits fast_cosf(const Mufu& unit, Bits x) noexcept { return unit.cos(x); }
Bits fast_exp10f(const Mufu& unit, Bits x) noexcept { return unit.ex2(mul(x, 0x40549A78)); }
Bits fast_log10f(const Mufu& unit, Bits x) noexcept { return mul(unit.lg2(x), 0x3E9A209B); }
Bits fast_divide(const Mufu& unit, Bits x, Bits y) noexcept {
    constexpr Bits two_to_24 = 0x4B800000;
    if (magnitude(y) < min_normal) {
        x = mul(x, two_to_24);
        y = mul(y, two_to_24);
    }
    return mul(x, unit.rcp_ftz(y));
}
Bits fast_tanf(const Mufu& unit, Bits x) noexcept { return fast_divide(unit, unit.sin(x), unit.cos(x)); }
Bits fast_powf(const Mufu& unit, Bits x, Bits y) noexcept { return unit.ex2(mul(unit.lg2(x), y)); }

std::span<const Unary> unary_functions() noexcept {
    static constexpr Unary functions[] = {
        {"exp", expf},         {"exp2", exp2f},     {"expm1", expm1f},           {"log", logf},
        {"log2", log2f},       {"log1p", log1pf},   {"sin", sinf},               {"cos", cosf},
        {"tanh", tanhf},       {"erf", erff},       {"rsqrt", rsqrtf},           {"sqrt", sqrtf},
        {"sigmoid", sigmoid},  {"silu", silu},      {"gelu", gelu},              {"gelu_tanh", gelu_tanh},
        {"softplus", softplus}, {"relu2", relu_squared}, {"reciprocal", reciprocal},
    };
    return functions;
}

const Unary* find_unary(std::string_view name) noexcept {
    for (const Unary& row : unary_functions())
        if (row.name == name) return &row;
    return nullptr;
}

}  // namespace bitreplay::cuda
