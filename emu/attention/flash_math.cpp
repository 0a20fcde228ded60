#include "emu/attention/flash_math_private.hpp"

#include "arch/fp32.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "/tmp/mufu_tmp.hpp"

namespace bitreplay::detail {
namespace {
std::uint64_t square(std::uint64_t x) {
    std::uint64_t s = 0;
    for (int j = 0; j < 17; ++j) {
        if (!((x >> j) & 1)) continue;
        if (2 * j >= 19) s += std::uint64_t{1} << (2 * j);
        for (int i = 0; i < j; ++i)
            if (((x >> i) & 1) && i + j + 1 >= 19) s += std::uint64_t{1} << (i + j + 1);
    }
    return s >> 19;
}
std::uint32_t ex2(std::uint32_t x) {
    const bool neg = x >> 31;
    const std::uint32_t mag = x & 0x7FFFFFFF;
    if (mag > 0x7F800000) return 0x7FFFFFFF;
    if (mag == 0x7F800000) return neg ? 0 : 0x7F800000;
    if (mag < 0x00800000) return 0x3F800000;
    const int e = static_cast<int>(mag >> 23) - 127;
    const std::int64_t sig = (mag & 0x7FFFFF) | 0x800000;
    if (e > 30) return neg ? 0 : 0x7F800000;
    std::int64_t X = e >= 0 ? sig << e : e < -24 ? 0 : sig >> -e;
    if (neg) X = (X & 0x7FFFFF) == 0 ? -X : ~X;
    const std::int64_t I = X >> 23;
    const std::int64_t F = X & 0x7FFFFF;
    if (I < -126) return 0;
    if (I >= 128) return 0x7F800000;
    const std::int64_t i = F >> 17, xl = F & 0x1FFFF;
    const std::int64_t V = (ex2_c0[i] << 13) + ex2_c1[i] * xl + ex2_c2[i] * static_cast<std::int64_t>(square(static_cast<std::uint64_t>(xl))) + 6114;
    return static_cast<std::uint32_t>(round_pack(fp32, {false, static_cast<Uint128>(V), static_cast<int>(I) - 38}, {Rounding::toward_zero}));
}
std::uint32_t lg2(std::uint32_t x) {  // positive normal
    if (x == 0x3F800000) return 0;
    if (x == 0x7F800000) return x;
    const std::int64_t E = static_cast<int>(x >> 23) - 127, F = x & 0x7FFFFF;
    const std::int64_t i = F >> 17, xl = F & 0x1FFFF;
    std::int64_t V = (lg2_c0[i] << 12) + lg2_c1[i] * xl + (lg2_c2[i] * static_cast<std::int64_t>(square(static_cast<std::uint64_t>(xl))) << 1) + 837;
    V = (V + (E << 38)) >> 2;
    const bool neg = V < 0;
    if (neg) V = ~V;
    return static_cast<std::uint32_t>(round_pack(fp32, {neg, static_cast<Uint128>(V), -36}, {Rounding::toward_zero}));
}
}  // namespace

FlashMath::FlashMath(const Gpu& gpu, bool fast_math) : gpu_(gpu), fast_(fast_math) {}
std::uint32_t FlashMath::flush(std::uint32_t x) const noexcept { return fast_ && (x & 0x7F800000) == 0 ? x & 0x80000000 : x; }
std::uint32_t FlashMath::add(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::add(flush(x), flush(y))); }
std::uint32_t FlashMath::sub(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::sub(flush(x), flush(y))); }
std::uint32_t FlashMath::mul(std::uint32_t x, std::uint32_t y) const noexcept { return flush(f32::mul(flush(x), flush(y))); }
std::uint32_t FlashMath::fma(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept { return flush(f32::fma(flush(x), flush(y), flush(z))); }
std::uint32_t FlashMath::mul_sub(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept {
    return fast_ ? fma(x, y, z ^ 0x80000000) : sub(mul(x, y), z);
}
std::uint32_t FlashMath::reciprocal(std::uint32_t x) const noexcept { return f32::div(0x3F800000, x); }
std::uint32_t FlashMath::exp2(std::uint32_t x) const noexcept {
    const bool low = (x >> 31) != 0 && (x & 0x7FFFFFFF) > 0x42FC0000 && (x & 0x7FFFFFFF) <= 0x7F800000;
    if (!low) return ex2(x);
    const std::uint32_t r = ex2(f32::mul(x, 0x3F000000));
    return f32::mul(r, r);
}
struct ExpParts { std::uint32_t e, s; };
static ExpParts parts(std::uint32_t x) {
    std::uint32_t t = f32::fma(x, 0x3BBB989D, 0x3F000000);
    if ((t & 0x7FFFFFFF) > 0x7F800000 || (t >> 31)) t = 0;
    else if (t > 0x3F800000) t = 0x3F800000;
    // k = floor(252 t)
    const Number n = decode(fp32, t);
    const std::int64_t k = n.kind == Kind::zero ? 0 : (static_cast<std::int64_t>(n.significand) * 252) >> (23 - n.exponent > 62 ? 62 : 23 - n.exponent);
    const auto as = [](std::int64_t v) { return static_cast<std::uint32_t>(round_pack(fp32, {v < 0, static_cast<Uint128>(v < 0 ? -v : v), 0})); };
    const std::uint32_t r = f32::fma(x, 0x32A57060, f32::fma(x, 0x3FB8AA3B, as(-(k - 126))));
    return {ex2(r), static_cast<std::uint32_t>(k + 1) << 23};
}
std::uint32_t FlashMath::exp(std::uint32_t x) const noexcept {
    const auto [e, s] = parts(x);
    return f32::mul(e, s);
}
std::uint32_t FlashMath::log(std::uint32_t x) const noexcept {
    std::uint32_t adj = 0;
    if (x < 0x00800000) { x = f32::mul(x, 0x4B000000); adj = 0xC1B80000; }
    const std::uint32_t e = (x - 0x3F2AAAAB) & 0xFF800000;
    const std::uint32_t m = f32::sub(x - e, 0x3F800000);
    const auto ie = static_cast<std::int32_t>(e);
    const std::uint32_t fi = static_cast<std::uint32_t>(round_pack(fp32, {ie < 0, static_cast<Uint128>(ie < 0 ? -std::int64_t{ie} : ie), 0}));
    const std::uint32_t i = f32::fma(fi, 0x34000000, adj);
    const std::uint32_t c[] = {0xBE055027,0x3E1039F6,0xBDF8CDCC,0x3E0F2955,0xBE2AD8B9,0x3E4CED0B,0xBE7FFF22,0x3EAAAA78,0xBF000000};
    std::uint32_t p = c[0];
    for (int n = 1; n < 9; ++n) p = f32::fma(p, m, c[n]);
    p = f32::mul(m, p);
    p = f32::fma(p, m, m);
    return f32::fma(i, 0x3F317218, p);
}
std::uint32_t FlashMath::fast_log(std::uint32_t x) const noexcept { return f32::mul(lg2(x), 0x3F317218); }
std::uint32_t FlashMath::max(std::uint32_t x, std::uint32_t y) noexcept {
    const auto nan = [](std::uint32_t v) { return (v & 0x7FFFFFFF) > 0x7F800000; };
    if (nan(x)) return nan(y) ? 0x7FFFFFFF : y;
    if (nan(y)) return x;
    // Codes as signed magnitudes in one order: -0 just below +0.
    const auto rank = [](std::uint32_t v) { return (v >> 31) != 0 ? ~v : v | 0x80000000; };
    return rank(x) >= rank(y) ? x : y;
}
}  // namespace bitreplay::detail
