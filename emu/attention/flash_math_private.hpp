#pragma once
// Private: the FP32 arithmetic of a flash-attention build.

#include <cstdint>

#include "arch/gpu.hpp"
#include "arch/mufu.hpp"

namespace bitreplay::detail {

/// FP32 operations as a build compiles them. Without fast-math: IEEE, subnormals kept. With it: inputs and results
/// flushed to zero, division and logarithm approximate, a·b + c contracted.
class FlashMath {
public:
    FlashMath(const Gpu& gpu, bool fast_math);

    std::uint32_t add(std::uint32_t x, std::uint32_t y) const noexcept;
    std::uint32_t sub(std::uint32_t x, std::uint32_t y) const noexcept;
    std::uint32_t mul(std::uint32_t x, std::uint32_t y) const noexcept;
    std::uint32_t fma(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept;
    /// x·y − z: two roundings, or one where contracted.
    std::uint32_t mul_sub(std::uint32_t x, std::uint32_t y, std::uint32_t z) const noexcept;
    std::uint32_t reciprocal(std::uint32_t x) const noexcept;  ///< 1/x
    std::uint32_t exp2(std::uint32_t x) const noexcept;        ///< exp2f
    std::uint32_t exp(std::uint32_t x) const noexcept;         ///< expf
    std::uint32_t log(std::uint32_t x) const noexcept;         ///< logf
    std::uint32_t fast_log(std::uint32_t x) const noexcept;    ///< __logf
    bool fast() const noexcept { return fast_; }
    const Mufu& unit() const noexcept { return mufu_; }

    /// The larger; a NaN loses against a number, +0 is larger than −0 (max.f32).
    static std::uint32_t max(std::uint32_t x, std::uint32_t y) noexcept;

private:
    std::uint32_t flush(std::uint32_t x) const noexcept;

    const Mufu& mufu_;
    bool fast_;
};

}  // namespace bitreplay::detail
