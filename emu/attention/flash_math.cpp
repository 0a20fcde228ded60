#include "emu/attention/flash_math_private.hpp"

#include <array>

#include "arch/fp32.hpp"
#include "arch/mufu.hpp"
#include "formats/convert.hpp"

namespace bitreplay::detail {
namespace {

constexpr std::uint32_t one = 0x3F800000, half = 0x3F000000, ln2 = 0x3F317218, log2e = 0x3FB8AA3B;
constexpr std::uint32_t sign = 0x80000000, infinity = 0x7F800000;

bool nan(std::uint32_t x) noexcept { return (x & ~sign) > infinity; }

std::uint32_t from_integer(std::int64_t value) noexcept {
    return static_cast<std::uint32_t>(round_pack(fp32, {value < 0, static_cast<Uint128>(value < 0 ? -value : value), 0}));
}

}  // namespace

FlashMath::FlashMath(const Gpu& gpu, bool fast_math) : mufu_(mufu(gpu)), fast_(fast_math) {}

std::uint32_t FlashMath::flush(std::uint32_t x) const noexcept { return fast_ && (x & infinity) == 0 ? x & sign : x; }

std::uint32_t FlashMath::add(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::add(flush(x), flush(y))); }
std::uint32_t FlashMath::sub(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::sub(flush(x), flush(y))); }
std::uint32_t FlashMath::mul(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::mul(flush(x), flush(y))); }
std::uint32_t FlashMath::fma(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept {
    return flush(f32::fma(flush(x), flush(y), flush(z)));
}
std::uint32_t FlashMath::mul_sub(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept {
    return fast_ ? fma(x, y, z ^ sign) : f32::sub(f32::mul(x, y), z);
}
std::uint32_t FlashMath::reciprocal(std::uint32_t x) const noexcept { return fast_ ? mufu_.rcp_ftz(x) : f32::div(one, x); }
std::uint32_t FlashMath::exp2(std::uint32_t x) const noexcept { return fast_ ? mufu_.ex2_ftz(x) : mufu_.ex2(x); }
std::uint32_t FlashMath::fast_log(std::uint32_t x) const noexcept { return mul(fast_ ? mufu_.lg2_ftz(x) : mufu_.lg2(x), ln2); }

std::uint32_t FlashMath::exp(std::uint32_t x) const noexcept {
    if (fast_) return mufu_.ex2_ftz(mul(x, log2e));
    // CUDA's expf: 2^r scaled by 2^n, n from a saturated multiplication; see MODELS 5.
    std::uint32_t t = f32::fma(x, 0x3BBB989D, half);
    t = nan(t) || (t & sign) != 0 ? 0 : t > one ? one : t;
    const Number number = decode(fp32, t);
    const int drop = fp32.fraction_bits - number.exponent;
    const std::int64_t k = drop > 62 ? 0 : (static_cast<std::int64_t>(number.significand) * 252) >> drop;
    const std::uint32_t r = f32::fma(x, 0x32A57060, f32::fma(x, log2e, from_integer(126 - k)));
    return f32::mul(mufu_.ex2_ftz(r), static_cast<std::uint32_t>(k + 1) << 23);
}

std::uint32_t FlashMath::log(std::uint32_t x) const noexcept {
    if (fast_) return fast_log(x);
    const bool small = x < 0x00800000;
    if (small) x = f32::mul(x, 0x4B000000);
    const std::uint32_t e = (x - 0x3F2AAAAB) & 0xFF800000;
    const std::uint32_t m = f32::sub(x - e, one);
    const std::uint32_t i = f32::fma(from_integer(static_cast<std::int32_t>(e)), 0x34000000, small ? 0xC1B80000 : 0);
    constexpr std::array<std::uint32_t, 9> c{0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000};
    std::uint32_t p = c[0];
    for (std::size_t n = 1; n < c.size(); ++n) p = f32::fma(p, m, c[n]);
    p = f32::mul(m, p);
    p = f32::fma(i, ln2, f32::fma(p, m, m));
    if (x >= infinity) return f32::fma(x, infinity, infinity);
    return (x & ~sign) == 0 ? infinity | sign : p;
}

std::uint32_t FlashMath::max(std::uint32_t x, std::uint32_t y) noexcept {
    if (nan(x)) return nan(y) ? 0x7FFFFFFF : y;
    if (nan(y)) return x;
    // Codes in the order of the numbers, −0 just below +0.
    const auto rank = [](std::uint32_t v) { return (v & sign) != 0 ? ~v : v | sign; };
    return rank(x) >= rank(y) ? x : y;
}

}  // namespace bitreplay::detail
