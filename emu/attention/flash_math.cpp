#include "emu/attention/flash_math_private.hpp"

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"

namespace bitreplay::detail {
namespace {

constexpr std::uint32_t one = 0x3F800000, ln2 = 0x3F317218, log2e = 0x3FB8AA3B;
constexpr std::uint32_t sign = 0x80000000, infinity = 0x7F800000;

bool nan(std::uint32_t x) noexcept { return (x & ~sign) > infinity; }

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
    return cuda::expf(mufu_, x);
}

std::uint32_t FlashMath::log(std::uint32_t x) const noexcept { return fast_ ? fast_log(x) : cuda::logf(mufu_, x); }

std::uint32_t FlashMath::max(std::uint32_t x, std::uint32_t y) noexcept {
    if (nan(x)) return nan(y) ? 0x7FFFFFFF : y;
    if (nan(y)) return x;
    // Codes in the order of the numbers, −0 just below +0.
    const auto rank = [](std::uint32_t v) { return (v & sign) != 0 ? ~v : v | sign; };
    return rank(x) >= rank(y) ? x : y;
}

}  // namespace bitreplay::detail
