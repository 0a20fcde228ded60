#include "arch/fp32.hpp"

#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace bitreplay {
namespace {

float f(std::uint32_t bits) noexcept { return std::bit_cast<float>(bits); }
std::uint32_t u(float value) noexcept { return value != value ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(value); }

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
}  // namespace f32

namespace f64 {
namespace {
double f(std::uint64_t bits) noexcept { return std::bit_cast<double>(bits); }
std::uint64_t u(double value) noexcept { return value != value ? 0x7FFFFFFFFFFFFFFFU : std::bit_cast<std::uint64_t>(value); }
}  // namespace

std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept { return u(f(x) * f(y)); }
std::uint64_t div(std::uint64_t x, std::uint64_t y) noexcept { return u(f(x) / f(y)); }
std::uint64_t sqrt(std::uint64_t x) noexcept { return u(std::sqrt(f(x))); }
std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept { return u(std::fma(f(x), f(y), f(z))); }
}  // namespace f64

}  // namespace bitreplay
