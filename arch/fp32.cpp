#include "arch/fp32.hpp"

#include <bit>
#include <climits>
#include <cmath>

#include "formats/decode.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace bitreplay {
namespace {

float f(std::uint32_t bits) noexcept { return std::bit_cast<float>(bits); }
std::uint32_t u(float value) noexcept { return value != value ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(value); }
bool is_nan(std::uint32_t x) noexcept { return (x & 0x7FFFFFFFU) > 0x7F800000U; }
/// Integers in the order of the numbers, −0 below +0.
std::int32_t order(std::uint32_t x) noexcept { return static_cast<std::int32_t>((x & 0x80000000U) != 0 ? ~x ^ 0x80000000U : x); }

}  // namespace

bool mxcsr_is_default() noexcept {
#if defined(__x86_64__)
    return (_mm_getcsr() & ~0x3FU) == 0x1F80U;  // the low six bits are sticky exception flags
#else
    return true;
#endif
}

namespace f32 {
std::uint32_t add(std::uint32_t x, std::uint32_t y) noexcept { return u(f(x) + f(y)); }
std::uint32_t sub(std::uint32_t x, std::uint32_t y) noexcept { return u(f(x) - f(y)); }
std::uint32_t mul(std::uint32_t x, std::uint32_t y) noexcept { return u(f(x) * f(y)); }
std::uint32_t fma(std::uint32_t x, std::uint32_t y, std::uint32_t z) noexcept { return u(std::fma(f(x), f(y), f(z))); }
std::uint32_t div(std::uint32_t x, std::uint32_t y) noexcept { return u(f(x) / f(y)); }
std::uint32_t sqrt(std::uint32_t x) noexcept { return u(std::sqrt(f(x))); }

std::uint32_t fma(std::uint32_t x, std::uint32_t y, std::uint32_t z, Rounding rounding) noexcept {
    const Number a = decode(fp32, x), b = decode(fp32, y), c = decode(fp32, z);
    if (a.kind == Kind::nan || b.kind == Kind::nan || c.kind == Kind::nan || a.kind == Kind::infinity || b.kind == Kind::infinity ||
        c.kind == Kind::infinity)
        return fma(x, y, z);  // exact, whatever the rounding
    const bool negative = a.negative != b.negative;
    Exact product{negative, a.significand * b.significand, a.exponent + b.exponent - 46}, addend{c.negative, c.significand, c.exponent - 23};
    if (product.magnitude == 0 && addend.magnitude == 0)
        return negative == c.negative ? z : rounding == Rounding::down ? 0x80000000U : 0U;
    if (product.magnitude == 0) return z;
    if (addend.magnitude == 0) return static_cast<std::uint32_t>(round_pack(fp32, product, {rounding}));

    // Bring both to the smaller exponent; a term more than `room` below the other one only matters as "not zero".
    constexpr int room = 75;
    Exact& high = product.exponent > addend.exponent ? product : addend;
    Exact& low = product.exponent > addend.exponent ? addend : product;
    const int gap = high.exponent - low.exponent;
    if (gap > room) low = {low.negative, 1, high.exponent - room};
    high.magnitude <<= gap > room ? room : gap;
    high.exponent = low.exponent;
    Exact sum = high;
    if (high.negative == low.negative) {
        sum.magnitude += low.magnitude;
    } else if (high.magnitude >= low.magnitude) {
        sum.magnitude -= low.magnitude;
    } else {
        sum = {low.negative, low.magnitude - high.magnitude, low.exponent};
    }
    if (sum.magnitude == 0) return rounding == Rounding::down ? 0x80000000U : 0U;
    return static_cast<std::uint32_t>(round_pack(fp32, sum, {rounding}));
}
std::uint32_t add(std::uint32_t x, std::uint32_t y, Rounding rounding) noexcept { return fma(x, 0x3F800000U, y, rounding); }

std::uint32_t max(std::uint32_t x, std::uint32_t y) noexcept {
    if (is_nan(x)) return is_nan(y) ? 0x7FFFFFFFU : y;
    if (is_nan(y)) return x;
    return order(x) < order(y) ? y : x;
}
std::uint32_t min(std::uint32_t x, std::uint32_t y) noexcept {
    if (is_nan(x)) return is_nan(y) ? 0x7FFFFFFFU : y;
    if (is_nan(y)) return x;
    return order(y) < order(x) ? y : x;
}
bool less(std::uint32_t x, std::uint32_t y) noexcept { return f(x) < f(y); }
bool equal(std::uint32_t x, std::uint32_t y) noexcept { return f(x) == f(y); }
std::uint32_t from_int(std::int32_t x) noexcept { return u(static_cast<float>(x)); }
std::int32_t to_int(std::uint32_t x) noexcept {
    if (is_nan(x)) return 0;
    if (f(x) >= 0x1p31F) return INT32_MAX;
    return f(x) < -0x1p31F ? INT32_MIN : static_cast<std::int32_t>(f(x));
}
std::uint32_t round_to_integer(std::uint32_t x) noexcept { return u(std::nearbyint(f(x))); }
std::uint32_t truncate(std::uint32_t x) noexcept { return u(std::trunc(f(x))); }
std::uint32_t floor(std::uint32_t x) noexcept { return u(std::floor(f(x))); }
}  // namespace f32

namespace f64 {
std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept {
    const double value = std::fma(std::bit_cast<double>(x), std::bit_cast<double>(y), std::bit_cast<double>(z));
    return value != value ? 0xFFF8000000000000U : std::bit_cast<std::uint64_t>(value);
}
std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept {
    const double value = std::bit_cast<double>(x) * std::bit_cast<double>(y);
    return value != value ? 0xFFF8000000000000U : std::bit_cast<std::uint64_t>(value);
}
std::uint64_t add(std::uint64_t x, std::uint64_t y) noexcept {
    const double value = std::bit_cast<double>(x) + std::bit_cast<double>(y);
    return value != value ? 0xFFF8000000000000U : std::bit_cast<std::uint64_t>(value);
}
std::uint64_t div(std::uint64_t x, std::uint64_t y) noexcept {
    const double value = std::bit_cast<double>(x) / std::bit_cast<double>(y);
    return value != value ? 0x7FFFFFFFFFFFFFFFU : std::bit_cast<std::uint64_t>(value);
}
std::uint64_t sqrt(std::uint64_t x) noexcept {
    const double value = std::sqrt(std::bit_cast<double>(x));
    return value != value ? 0x7FFFFFFFFFFFFFFFU : std::bit_cast<std::uint64_t>(value);
}
std::uint64_t from_int(std::int64_t x) noexcept { return std::bit_cast<std::uint64_t>(static_cast<double>(x)); }
std::uint32_t to_f32(std::uint64_t x) noexcept { return u(static_cast<float>(std::bit_cast<double>(x))); }
}  // namespace f64

}  // namespace bitreplay
