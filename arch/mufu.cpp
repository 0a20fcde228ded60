#include "arch/mufu.hpp"

#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

constexpr std::uint32_t nan = 0x7FFFFFFF, infinity = 0x7F800000, one = 0x3F800000;
constexpr std::uint32_t sign_bit = 0x80000000, fraction_mask = 0x7FFFFF, min_normal = 0x00800000;

/// Number of bits up to and including the leading one of a value that is not zero.
constexpr int width(std::uint64_t x) noexcept { return 64 - __builtin_clzll(x); }

constexpr std::uint32_t magnitude(std::uint32_t x) noexcept { return x & ~sign_bit; }
constexpr bool is_nan(std::uint32_t x) noexcept { return magnitude(x) > infinity; }
/// Unbiased exponent of a normal number.
constexpr int exponent_of(std::uint32_t x) noexcept { return static_cast<int>(magnitude(x) >> 23) - 127; }

/// ±value · 2^(exponent − fraction), truncated to 24 significant bits; below the normal numbers ±0.
constexpr std::uint32_t pack(std::uint32_t sign, std::uint64_t value, int exponent) noexcept {
    if (value == 0) return sign;
    const int top = width(value) - 1;
    const int field = top + exponent + 127;
    if (field < 1) return sign;
    const auto significand = static_cast<std::uint32_t>(top >= 23 ? value >> (top - 23) : value << (23 - top));
    return sign | ((static_cast<std::uint32_t>(field) << 23) + (significand & fraction_mask));
}

/// The sum of a curve for a 23-bit fraction whose high bits select the row.
inline std::uint64_t interpolate(const Mufu::Curve& curve, std::size_t row, std::uint32_t low) noexcept {
    const Mufu::Row& c = curve.rows[row];
    return static_cast<std::uint64_t>(c.constant + c.linear * static_cast<std::int64_t>(low) +
                                      c.square * mufu_square(low, curve.low_bits));
}
inline std::uint64_t interpolate(const Mufu::Curve& curve, std::uint32_t fraction) noexcept {
    return interpolate(curve, fraction >> curve.low_bits, fraction & ((1U << curve.low_bits) - 1));
}

/// A subnormal number (not zero) times 2^24, exactly.
constexpr std::uint32_t scale_subnormal(std::uint32_t x) noexcept { return pack(x & sign_bit, magnitude(x), 24 - 149); }

constexpr bool is_subnormal(std::uint32_t x) noexcept { return magnitude(x) < min_normal && magnitude(x) != 0; }

}  // namespace

std::uint32_t Mufu::rcp_ftz(std::uint32_t x) const noexcept {
    const std::uint32_t sign = x & sign_bit;
    if (is_nan(x)) return nan;
    if (magnitude(x) == infinity) return sign;
    if (magnitude(x) < min_normal) return sign | infinity;
    return pack(sign, interpolate(rcp_, x & fraction_mask), -rcp_.sum_fraction - exponent_of(x));
}

std::uint32_t Mufu::rcp(std::uint32_t x) const noexcept {
    if (is_subnormal(x)) {
        const std::uint32_t y = rcp_ftz(scale_subnormal(x)) + (24U << 23);
        return (y & sign_bit) != (x & sign_bit) || magnitude(y) > infinity ? (x & sign_bit) | infinity : y;
    }
    constexpr std::uint32_t two_to_126 = 0x7E800000;
    if (magnitude(x) <= two_to_126 || magnitude(x) >= infinity) return rcp_ftz(x);
    const Number y = decode(fp32, rcp_ftz(x - (2U << 23)));
    return static_cast<std::uint32_t>(round_pack(fp32, {y.negative, y.significand, y.exponent - 23 - 2}));
}

std::uint32_t Mufu::rsqrt_ftz(std::uint32_t x) const noexcept {
    if (is_nan(x)) return nan;
    if (magnitude(x) < min_normal) return (x & sign_bit) | infinity;
    if ((x & sign_bit) != 0) return nan;
    if (x == infinity) return 0;
    const int exponent = exponent_of(x);
    const std::uint32_t fraction = x & fraction_mask;
    const bool odd = (exponent & 1) != 0;
    if (!odd && fraction == 0) return static_cast<std::uint32_t>(127 - exponent / 2) << 23;
    const Curve& curve = odd ? rsq_odd_ : rsq_even_;
    return pack(0, interpolate(curve, fraction), -curve.sum_fraction - (exponent >> 1));
}

std::uint32_t Mufu::rsqrt(std::uint32_t x) const noexcept {
    if (!is_subnormal(x)) return rsqrt_ftz(x);
    return (x & sign_bit) != 0 ? nan : rsqrt_ftz(scale_subnormal(x)) + (12U << 23);
}

std::uint32_t Mufu::sqrt_ftz(std::uint32_t x) const noexcept {
    if (is_nan(x)) return nan;
    if (magnitude(x) < min_normal) return x & sign_bit;
    if ((x & sign_bit) != 0) return nan;
    if (x == infinity) return infinity;
    const int exponent = exponent_of(x);
    const Curve& curve = (exponent & 1) != 0 ? sqrt_odd_ : sqrt_even_;
    return pack(0, interpolate(curve, x & fraction_mask), -curve.sum_fraction + (exponent >> 1));
}

std::uint32_t Mufu::sqrt(std::uint32_t x) const noexcept {
    if (!is_subnormal(x)) return sqrt_ftz(x);
    return (x & sign_bit) != 0 ? nan : sqrt_ftz(scale_subnormal(x)) - (12U << 23);
}

std::uint32_t Mufu::ex2_ftz(std::uint32_t x) const noexcept {
    if (is_nan(x)) return nan;
    const bool negative = (x & sign_bit) != 0;
    const int exponent = exponent_of(x);
    if (exponent >= 8) return negative ? 0 : infinity;
    const std::uint32_t significand = (x & fraction_mask) | min_normal;
    // |x| in units of 2^-23, truncated. A negative argument is negated exactly only if it is an integer; otherwise the
    // unit inverts the bits, which is one unit off.
    const std::uint32_t fixed = exponent >= 0    ? significand << exponent
                                : exponent < -23 ? 0
                                                 : significand >> -exponent;
    auto argument = static_cast<std::int32_t>(fixed);
    if (negative) argument = (fixed & fraction_mask) == 0 ? -argument : ~argument;
    const int whole = argument >> 23;
    if (whole < -126) return 0;
    if (whole >= 128) return infinity;
    return pack(0, interpolate(ex2_, static_cast<std::uint32_t>(argument) & fraction_mask), whole - ex2_.sum_fraction);
}

std::uint32_t Mufu::ex2(std::uint32_t x) const noexcept {
    constexpr std::uint32_t minus_126 = 0xC2FC0000, minus_infinity = sign_bit | infinity;
    if (x <= minus_126 || x >= minus_infinity) return ex2_ftz(x);
    const Number y = decode(fp32, ex2_ftz(x - (1U << 23)));
    return static_cast<std::uint32_t>(round_pack(fp32, {false, y.significand * y.significand, 2 * (y.exponent - 23)}));
}

std::uint32_t Mufu::lg2_ftz(std::uint32_t x) const noexcept {
    if (is_nan(x)) return nan;
    if (magnitude(x) < min_normal) return sign_bit | infinity;
    if ((x & sign_bit) != 0) return nan;
    if (x == infinity) return infinity;
    if (x == one) return 0;
    const auto fraction_part = static_cast<std::int64_t>(interpolate(lg2_, x & fraction_mask));
    const std::int64_t value = (fraction_part + exponent_of(x) * (std::int64_t{1} << lg2_.sum_fraction)) >> 2;
    const bool negative = value < 0;
    return pack(negative ? sign_bit : 0, static_cast<std::uint64_t>(negative ? ~value : value), 2 - lg2_.sum_fraction);
}

std::uint32_t Mufu::lg2(std::uint32_t x) const noexcept {
    if (!is_subnormal(x)) return lg2_ftz(x);
    if ((x & sign_bit) != 0) return nan;
    // One FADD of −24 follows; both terms are negative and the logarithm's exponent is 6.
    const Number y = decode(fp32, lg2_ftz(scale_subnormal(x)));
    const Uint128 sum = y.significand + (std::uint64_t{24} << (23 - y.exponent));
    return static_cast<std::uint32_t>(round_pack(fp32, {true, sum, y.exponent - 23}));
}

std::uint32_t Mufu::circular(std::uint32_t x, bool cosine) const noexcept {
    if (magnitude(x) >= infinity) return nan;
    // x / 2π, rounded towards zero to 24 bits, subnormals flushed; then in units of a quarter turn · 2^-23, whole turns dropped.
    std::uint32_t turns = 0;
    if (magnitude(x) >= min_normal) {
        constexpr std::uint64_t inverse_two_pi = 0xA2F983;  // 3E22F983 = 0xA2F983 · 2^-26
        const std::uint64_t product = ((x & fraction_mask) | min_normal) * inverse_two_pi;
        const int drop = width(product) - 24;
        const std::uint64_t significand = product >> drop;
        const int shift = drop + exponent_of(x) - 23 - 26 + 25;
        if (shift >= 0)
            turns = shift >= 25 ? 0 : static_cast<std::uint32_t>(significand << shift);
        else
            turns = shift <= -24 ? 0 : static_cast<std::uint32_t>(significand >> -shift);
    }
    turns &= 0x1FFFFFF;
    const std::uint32_t quadrant = turns >> 23;
    std::uint32_t fraction = turns & fraction_mask;
    if (((quadrant & 1) != 0) != cosine) fraction ^= fraction_mask;
    const bool negative = cosine ? quadrant == 1 || quadrant == 2 : ((x & sign_bit) != 0) != (quadrant >= 2);
    return pack(negative ? sign_bit : 0, interpolate(sin_, fraction), -sin_.sum_fraction);
}

std::uint32_t Mufu::sin(std::uint32_t x) const noexcept { return circular(x, false); }
std::uint32_t Mufu::cos(std::uint32_t x) const noexcept { return circular(x, true); }

std::uint32_t Mufu::tanh(std::uint32_t x) const noexcept {
    if (is_nan(x)) return nan;
    const int exponent = exponent_of(x);
    if (exponent < tanh_min_exponent) return x;
    const std::uint32_t sign = x & sign_bit;
    if (exponent > tanh_max_exponent) return sign | one;
    const Binade& binade = tanh_binades_[static_cast<std::size_t>(exponent - tanh_min_exponent)];
    const std::uint32_t fraction = x & fraction_mask;
    const int below = 23 - binade.row_bits;  // bits below the row number; the unit drops those under low_bits
    const std::uint32_t low = (fraction & ((1U << below) - 1)) >> (below - tanh_.low_bits);
    return pack(sign, interpolate(tanh_, binade.first_row + (fraction >> below), low), -tanh_.sum_fraction);
}

namespace {

std::uint32_t widen(const Format& format, std::uint32_t x) noexcept { return static_cast<std::uint32_t>(convert(format, fp32, x)); }

/// A NaN goes to 0x7fff; values beyond fp16 become infinity.
std::uint32_t truncate(const Format& format, std::uint32_t x) noexcept {
    return static_cast<std::uint32_t>(convert(fp32, format, x, {Rounding::toward_zero, Overflow::infinity}));
}

}  // namespace

std::uint32_t Mufu::ex2_f16(std::uint32_t x) const noexcept { return truncate(fp16, ex2_ftz(widen(fp16, x))); }
std::uint32_t Mufu::ex2_bf16(std::uint32_t x) const noexcept { return truncate(bf16, ex2_ftz(widen(bf16, x))); }
std::uint32_t Mufu::tanh_f16(std::uint32_t x) const noexcept { return truncate(fp16, tanh(widen(fp16, x))); }
std::uint32_t Mufu::tanh_bf16(std::uint32_t x) const noexcept { return truncate(bf16, tanh(widen(bf16, x))); }

std::span<const MufuForm> mufu_forms() noexcept {
    static constexpr MufuForm forms[] = {
        {"rcp.approx.ftz.f32", fp32, &Mufu::rcp_ftz},     {"rcp.approx.f32", fp32, &Mufu::rcp},
        {"rsqrt.approx.ftz.f32", fp32, &Mufu::rsqrt_ftz}, {"rsqrt.approx.f32", fp32, &Mufu::rsqrt},
        {"sqrt.approx.ftz.f32", fp32, &Mufu::sqrt_ftz},   {"sqrt.approx.f32", fp32, &Mufu::sqrt},
        {"ex2.approx.ftz.f32", fp32, &Mufu::ex2_ftz},     {"ex2.approx.f32", fp32, &Mufu::ex2},
        {"lg2.approx.ftz.f32", fp32, &Mufu::lg2_ftz},     {"lg2.approx.f32", fp32, &Mufu::lg2},
        {"sin.approx.ftz.f32", fp32, &Mufu::sin},         {"sin.approx.f32", fp32, &Mufu::sin},
        {"cos.approx.ftz.f32", fp32, &Mufu::cos},         {"cos.approx.f32", fp32, &Mufu::cos},
        {"tanh.approx.f32", fp32, &Mufu::tanh},           {"ex2.approx.f16", fp16, &Mufu::ex2_f16},
        {"ex2.approx.f16x2", fp16, &Mufu::ex2_f16},       {"ex2.approx.ftz.bf16", bf16, &Mufu::ex2_bf16},
        {"ex2.approx.ftz.bf16x2", bf16, &Mufu::ex2_bf16}, {"tanh.approx.f16", fp16, &Mufu::tanh_f16},
        {"tanh.approx.f16x2", fp16, &Mufu::tanh_f16},     {"tanh.approx.bf16", bf16, &Mufu::tanh_bf16},
        {"tanh.approx.bf16x2", bf16, &Mufu::tanh_bf16},
    };
    return forms;
}

const MufuForm& find_mufu_form(std::string_view ptx) {
    for (const MufuForm& form : mufu_forms())
        if (form.ptx == ptx) return form;
    std::string known;
    for (const MufuForm& form : mufu_forms()) known += " " + std::string(form.ptx);
    throw NotModelled("special-function instruction \"" + std::string(ptx.substr(0, 60)) + "\" is not modelled; known:" + known);
}

}  // namespace bitreplay
