#pragma once

#include <cstdint>
#include <span>

#include "emu/simd/fp32_kernels.hpp"
#include "formats/format.hpp"
#include "reduction_trees/plan.hpp"

namespace bitreplay {

/// Sums rounded to a kernel's result format and widened again, in place.
void round_sums(const Fp32Kernels& kernels, const Format& result, std::span<std::uint32_t> sums);

/// One output of a product of multiply-add chains: the plan's sum of x[k]·w[k], FP32 values, as an FP32 code. The vector
/// lanes are lanes of the plan, so nothing is transposed and no column is a filler; result: what the plan rounds to.
std::uint32_t fma_single(
    const Fp32Kernels& kernels, const Plan& plan, const Format& result, const std::uint32_t* x, const std::uint32_t* w);

/// Whether single outputs cost no more than panels of `outputs` of them, of which `rows` share a column's packing.
bool prefers_single(const Plan& plan, std::int64_t rows, std::int64_t outputs) noexcept;

}  // namespace bitreplay
