#pragma once

#include <cstdint>

#include "arch/fp32.hpp"
#include "formats/convert.hpp"

namespace bitreplay::detail {

/// The arithmetic of an epilogue: codes of `format` in, one rounding (nearest even) per operation.
struct Fp32Math {
    static constexpr Format format = fp32;
    static std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept { return f32::mul(low(x), low(y)); }
    static std::uint64_t add(std::uint64_t x, std::uint64_t y) noexcept { return f32::add(low(x), low(y)); }
    static std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept {
        return f32::fma(low(x), low(y), low(z));
    }

private:
    static std::uint32_t low(std::uint64_t x) noexcept { return static_cast<std::uint32_t>(x); }
};

struct Fp64Math {
    static constexpr Format format = fp64;
    static std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept { return f64::mul(x, y); }
    static std::uint64_t add(std::uint64_t x, std::uint64_t y) noexcept { return f64::add(x, y); }
    static std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept { return f64::fma(x, y, z); }
};

/// By way of FP64. That rounds like one operation: a product of two fp16 has 22 bits, so that where x·y + z lies close to
/// the middle of two fp16, and only there a first rounding could matter, all of its bits span at most 11 + 1 + 22 < 53.
struct Fp16Math {
    static constexpr Format format = fp16;
    static std::uint64_t mul(std::uint64_t x, std::uint64_t y) noexcept { return narrow(f64::mul(wide(x), wide(y))); }
    static std::uint64_t add(std::uint64_t x, std::uint64_t y) noexcept { return narrow(f64::add(wide(x), wide(y))); }
    static std::uint64_t fma(std::uint64_t x, std::uint64_t y, std::uint64_t z) noexcept {
        return narrow(f64::fma(wide(x), wide(y), wide(z)));
    }

private:
    static std::uint64_t wide(std::uint64_t x) noexcept { return convert(fp16, fp64, x); }
    static std::uint64_t narrow(std::uint64_t x) noexcept { return convert(fp64, fp16, x); }
};

}  // namespace bitreplay::detail
