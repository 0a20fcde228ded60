#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// Interface between the GEMM engine and its instruction-set kernels: plain data, no inline code (each kernel file is
// compiled with its own flags).
namespace bitreplay::simd {

/// Columns of a packed panel: the output columns that a kernel works on together.
inline constexpr int panel_columns = 64;
/// Columns that a kernel uses of a panel with `count` of them: 16, 32 or all 64.
constexpr int columns_read(int count) noexcept { return count <= 16 ? 16 : count <= 32 ? 32 : panel_columns; }

/// What a block of products becomes.
enum class Result : std::uint8_t {
    fp32,   ///< truncated to 24 significant bits
    e8m13,  ///< truncated to 14 significant bits, stored as fp32
    fp16,   ///< rounded to nearest even, held as fp32
};

/// The arithmetic of one walk: blocks of `block` products, summed with the accumulator at `align_bits` fraction bits
/// below the largest exponent. With `halves`, block is one instruction of two steps (first half from zero, second from
/// its result) followed by one nearest-even addition of the accumulator; its operands are packed in that order.
struct WalkShape {
    int block = 0;
    int align_bits = 0;
    Result result = Result::fp32;
    bool halves = false;
    int min_exponent_a = 0, min_exponent_b = 0;  ///< of the formats in which the unit multiplies
    std::uint32_t wrap_limit = 0;  ///< an int32 sum of at least this magnitude may have wrapped; 0: none can
    bool operator==(const WalkShape&) const = default;
};

/// `rows` x `columns` accumulators, each a walk over `blocks` blocks that starts at the accumulator's value.
struct WalkTask {
    const WalkShape* shape;
    const float* a;                ///< [rows][a_stride], block after block, short blocks filled up with zeros
    const std::uint32_t* a_scale;  ///< same shape: exponent - a_top[row] as int8 (see exponent_code), four times over
    const std::int32_t* a_top;     ///< [rows] largest exponent of the row
    std::int64_t a_stride;
    const float* b;              ///< [blocks * block][panel_columns]
    const std::int8_t* b_scale;  ///< same shape: exponent - b_top as int8
    std::int32_t b_top;          ///< largest exponent of the panel
    std::int64_t rows, blocks;
    int columns;  ///< of the panel; columns_read() of them are used, and as many accumulators may be written
    float* acc;   ///< [rows][acc_stride], acc_stride at least panel_columns
    std::int64_t acc_stride;
    /// Exponents by which the values of a row ([rows], nullptr: all 0) and of the panel were raised, tops included. The
    /// accumulators of a row are raised by both; their quantum stays 2^-149 of the true scale.
    const std::int32_t* a_lift = nullptr;
    std::int32_t b_lift = 0;
};

/// Exponents relative to the largest: [-63, 0] exact; zero and everything smaller is exponent_floor. A sum of two fits
/// int8.
inline constexpr int exponent_floor = -64;
/// Largest a_top + b_top + 2 + bits of the number of products, and largest exponent of an initial accumulator, for
/// which no intermediate value can leave the fp32 range.
inline constexpr int safe_exponent = 124;

/// Vectors whose largest exponent is below `lifted_below` are packed larger by a power of two, at most 2^operand_lift:
/// their products would be too small for the fast path. Rows whose accumulators start from zero may be raised by
/// 2^row_lift: enough where both sides are subnormal.
inline constexpr int operand_lift = 64, row_lift = 120, lifted_below = -60;

using WalkKernel = void (*)(const WalkTask&) noexcept;

/// One row of dot_kernels.inc.
struct KernelRow {
    std::string_view name;
    bool (*supported)() noexcept;
    WalkKernel (*walk)(const WalkShape&) noexcept;  ///< nullptr for shapes without a kernel
};

/// All rows, best first; rows that this CPU lacks are included (check supported()).
std::span<const KernelRow> kernel_rows() noexcept;
/// The first supported row with a kernel for the shape, or nullptr. `only`: restrict to the row of that name.
WalkKernel find_walk(const WalkShape& shape, std::string_view only = {}) noexcept;

}  // namespace bitreplay::simd
