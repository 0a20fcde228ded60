#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "arch/mufu.hpp"

// CUDA's single-precision functions as CUDA 13.0 compiles them for PyTorch: FP32 bit patterns in and out, subnormals kept,
// every NaN result 0x7fffffff. `unit` is the GPU's special-function unit; functions that do not use it take it all the same,
// so that the list below has one type. +, −, ·, fma, / and sqrt are IEEE: arch/fp32.hpp.
// Source: the PTX that nvcc 13.0 emits for each function, equal on all 2^32 inputs to the H200 where the list says so.
namespace bitreplay::cuda {

using Bits = std::uint32_t;

/// exp(x) = power · scale, the last multiplication of expf. nvcc contracts c + exp(x) to fma(power, scale, c).
struct ExpParts {
    Bits power;  ///< 2^r of the special-function unit
    Bits scale;  ///< an integer power of two
};
ExpParts exp_parts(const Mufu& unit, Bits x) noexcept;

Bits expf(const Mufu& unit, Bits x) noexcept;
Bits exp2f(const Mufu& unit, Bits x) noexcept;
Bits expm1f(const Mufu& unit, Bits x) noexcept;
Bits logf(const Mufu& unit, Bits x) noexcept;
Bits log2f(const Mufu& unit, Bits x) noexcept;
Bits log1pf(const Mufu& unit, Bits x) noexcept;
Bits sinf(const Mufu& unit, Bits x) noexcept;
Bits cosf(const Mufu& unit, Bits x) noexcept;
Bits tanhf(const Mufu& unit, Bits x) noexcept;
Bits erff(const Mufu& unit, Bits x) noexcept;
Bits rsqrtf(const Mufu& unit, Bits x) noexcept;
Bits sqrtf(const Mufu& unit, Bits x) noexcept;
Bits reciprocal(const Mufu& unit, Bits x) noexcept;  ///< 1 / x, an IEEE division

// PyTorch's elementwise functions of them.
Bits sigmoid(const Mufu& unit, Bits x) noexcept;
Bits silu(const Mufu& unit, Bits x) noexcept;
Bits gelu(const Mufu& unit, Bits x) noexcept;
Bits gelu_tanh(const Mufu& unit, Bits x) noexcept;
Bits softplus(const Mufu& unit, Bits x) noexcept;      ///< beta 1, threshold 20
Bits relu_squared(const Mufu& unit, Bits x) noexcept;  ///< "relu2": the square of max(x, 0), NaN kept

Bits powf(const Mufu& unit, Bits x, Bits y) noexcept;
Bits fmaxf(Bits x, Bits y) noexcept;
Bits fminf(Bits x, Bits y) noexcept;

// Fast-math intrinsics __expf, __logf …, in a build that keeps subnormals; `_ftz` as under -use_fast_math.
Bits fast_expf(const Mufu& unit, Bits x) noexcept;
Bits fast_expf_ftz(const Mufu& unit, Bits x) noexcept;
Bits fast_logf(const Mufu& unit, Bits x) noexcept;
Bits fast_log2f(const Mufu& unit, Bits x) noexcept;
Bits fast_sinf(const Mufu& unit, Bits x) noexcept;
Bits fast_cosf(const Mufu& unit, Bits x) noexcept;
Bits fast_tanf(const Mufu& unit, Bits x) noexcept;
Bits fast_exp10f(const Mufu& unit, Bits x) noexcept;
Bits fast_log10f(const Mufu& unit, Bits x) noexcept;
Bits fast_divide(const Mufu& unit, Bits x, Bits y) noexcept;  ///< __fdividef, div.approx.f32
Bits fast_powf(const Mufu& unit, Bits x, Bits y) noexcept;

/// A function of one argument by the name manifests and PyTorch give it.
struct Unary {
    std::string_view name;  ///< "silu"
    Bits (*function)(const Mufu& unit, Bits x) noexcept;
};
std::span<const Unary> unary_functions() noexcept;
/// nullptr for a name that is not in the list.
const Unary* find_unary(std::string_view name) noexcept;

}  // namespace bitreplay::cuda
