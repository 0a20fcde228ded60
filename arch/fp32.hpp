#pragma once

#include <cstdint>

// FP32 and FP64 operations of a CUDA core, on bit patterns: IEEE 754, round to nearest even, subnormals kept, NaN results
// canonical (0x7fffffff). The only place that uses host floating point; it needs the default MXCSR (mxcsr_is_default()).
// Source: CUDA C++ programming guide (IEEE compliance of add, mul, fma, div, sqrt).
namespace bitreplay {

/// True if this thread rounds to nearest, keeps subnormals and masks all exceptions: what every host operation relies on.
bool mxcsr_is_default() noexcept;

namespace f32 {
std::uint32_t add(std::uint32_t x, std::uint32_t y) noexcept;
std::uint32_t sub(std::uint32_t x, std::uint32_t y) noexcept;
std::uint32_t mul(std::uint32_t x, std::uint32_t y) noexcept;
std::uint32_t fma(std::uint32_t x, std::uint32_t y, std::uint32_t z) noexcept;
std::uint32_t div(std::uint32_t x, std::uint32_t y) noexcept;
std::uint32_t sqrt(std::uint32_t x) noexcept;
}  // namespace f32

namespace f64 {
std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept;
std::uint64_t div(std::uint64_t x, std::uint64_t y) noexcept;
std::uint64_t sqrt(std::uint64_t x) noexcept;
std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept;
}  // namespace f64

}  // namespace bitreplay
