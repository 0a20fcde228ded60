#pragma once

#include <cstdint>

#include "formats/round.hpp"

// FP32 and FP64 operations of a CUDA core, on bit patterns: IEEE 754, round to nearest even, subnormals kept, FP32 NaN
// results canonical (0x7fffffff). The only place that uses host floating point; it needs the default MXCSR (mxcsr_is_default()).
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

/// One rounding in any direction (add.rz, fma.rm, …), by integer arithmetic.
std::uint32_t add(std::uint32_t x, std::uint32_t y, Rounding rounding) noexcept;
std::uint32_t fma(std::uint32_t x, std::uint32_t y, std::uint32_t z, Rounding rounding) noexcept;

/// max.f32, min.f32: a NaN operand is ignored, two give NaN; −0 < +0.
std::uint32_t max(std::uint32_t x, std::uint32_t y) noexcept;
std::uint32_t min(std::uint32_t x, std::uint32_t y) noexcept;

/// Ordered comparisons: false if an operand is NaN; −0 equals +0.
bool less(std::uint32_t x, std::uint32_t y) noexcept;
bool equal(std::uint32_t x, std::uint32_t y) noexcept;

/// cvt.rn.f32.s32
std::uint32_t from_int(std::int32_t x) noexcept;
/// cvt.rzi.s32.f32: saturates; NaN gives 0.
std::int32_t to_int(std::uint32_t x) noexcept;
/// To an integral value: cvt.rni, cvt.rzi and cvt.rmi.f32.f32. Signs of zeros stay.
std::uint32_t round_to_integer(std::uint32_t x) noexcept;
std::uint32_t truncate(std::uint32_t x) noexcept;
std::uint32_t floor(std::uint32_t x) noexcept;
}  // namespace f32

namespace f64 {
/// NaN results are 0xfff8000000000000, whatever the operands (a tensor core passes NaN operands on: see dot.cpp).
std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept;
std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept;
std::uint64_t add(std::uint64_t x, std::uint64_t y) noexcept;
std::uint64_t div(std::uint64_t x, std::uint64_t y) noexcept;
std::uint64_t sqrt(std::uint64_t x) noexcept;
std::uint64_t from_int(std::int64_t x) noexcept;  ///< cvt.rn.f64.s64
std::uint32_t to_f32(std::uint64_t x) noexcept;   ///< cvt.rn.f32.f64
}  // namespace f64

}  // namespace bitreplay
