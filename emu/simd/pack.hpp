#pragma once

#include <cstdint>

// Interface of the kernels that bring bf16 operands into the form of WalkTask.
namespace bitreplay::simd {

struct PackKernels {
    /// The largest magnitude (code without its sign) of bf16 codes.
    std::uint16_t (*largest)(const std::uint16_t* codes, std::int64_t count) noexcept;
    /// A row of finite bf16 codes as WalkTask::a and a_scale hold it; top: its largest exponent.
    void (*row)(
        const std::uint16_t* codes, std::int64_t depth, std::int32_t top, float* values, std::uint32_t* scale) noexcept;
    /// Sixteen columns of finite bf16 codes (`depth` each, 2-byte aligned) as WalkTask::b and b_scale hold them: values
    /// and scale are those of the first column, rows panel_columns apart; top: the panel's largest exponent.
    void (*columns)(const std::uint16_t* const* codes,
                    std::int64_t depth,
                    std::int32_t top,
                    float* values,
                    std::int8_t* scale) noexcept;
};
/// Kernels for this CPU, or nullptr.
const PackKernels* pack_kernels() noexcept;

}  // namespace bitreplay::simd
