#pragma once

#include <cstdint>
#include <span>

#include "emu/tensor.hpp"

namespace bitreplay {

/// Whether a tensor of this format can be read and written here: fp32, bf16 and fp16.
bool is_fp32_loadable(const Format& format) noexcept;

/// Elements first, first + 1, ... of x as FP32 (exact; fp16 NaN becomes canonical).
void load_fp32(const Tensor& x, std::int64_t first, std::span<std::uint32_t> out) noexcept;
/// Rounds to the nearest even code of out's format and stores; NaN becomes canonical in 16-bit formats.
void store_fp32(Tensor& out, std::int64_t first, std::span<const std::uint32_t> values) noexcept;
/// Rounds FP32 values to `format` and widens them again, in place: what a tensor of that format stores.
void round_through(const Format& format, std::span<std::uint32_t> values) noexcept;

/// The largest value, NaN ignored (all NaN: NaN); of zeros +0.
std::uint32_t fp32_maximum(std::span<const std::uint32_t> values) noexcept;

/// The FP32 value nearest to an integer.
std::uint32_t fp32_from_integer(std::int64_t value) noexcept;
/// The FP32 value nearest to a double ("(float)x").
std::uint32_t fp32_from_real(double value) noexcept;

}  // namespace bitreplay
