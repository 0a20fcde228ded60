#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arch/mufu.hpp"
#include "emu/simd/exp.hpp"

namespace bitreplay {

/// ex2 and expf of many numbers with the fastest kernel of this CPU; the results are those of Mufu::ex2_ftz, Mufu::ex2,
/// cuda::expf and cuda::exp_parts, bit for bit. Make one per special-function unit and keep it; any number of threads may
/// use it, each under the default MXCSR. `unit` must outlive it. The spans of a call have one length; in place is allowed.
class VectorExp {
public:
    /// `kernel`: "" for the best, "scalar", or a name of kernels(); InputError if this CPU does not have it.
    explicit VectorExp(const Mufu& unit, std::string_view kernel = "");

    void ex2_ftz(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept;
    void ex2(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept;
    void expf(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept;
    /// exp(in[i]) = power[i] · scale[i].
    void exp_parts(std::span<const std::uint32_t> in, std::span<std::uint32_t> power, std::span<std::uint32_t> scale) const noexcept;

    std::string_view kernel() const noexcept { return name_; }
    /// What this CPU supports, best first; "scalar" is last.
    static std::vector<std::string_view> kernels();

private:
    const Mufu* unit_;
    std::string_view name_ = "scalar";
    simd::Ex2Table table_{};
    simd::ExpKernels kernels_{};  // null for scalar
};

}  // namespace bitreplay
