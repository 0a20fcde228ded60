#pragma once

#include <cstdint>

#include "emu/simd/dot.hpp"

// Interface of the filter: a fast approximation of a walk over bf16 operands with a proved bound on its distance from
// the exact one. emu/FILTER.md derives the bound; names there and here agree.
namespace bitreplay::simd {

inline constexpr int segment_products = 512;  ///< the bound's maxima and counts are per segment of this many products
inline constexpr int depth_levels = 32;       ///< entries of a table of trailing-bit depths
inline constexpr int filter_exponent =
    50;  ///< operands with a larger exponent, and subnormal ones, are not for the filter

/// What the bound needs to know about one side. Vectors are rows of A or columns of B.
struct FilterSide {
    const std::uint32_t* pairs;   ///< two bf16 codes a word
    const float* norm;            ///< upper bound of sqrt(sum of roundings(k) * value^2), per segment
    const std::int32_t* top;      ///< largest exponent of the segment
    /// Number of products whose lowest bit lies more than j below top: of a row [depth_levels], by j; of a panel
    /// [2 * depth_levels], by depth_levels - 1 - j, then 0xFFFF.
    const std::uint16_t* deeper;
};

/// Approximations of `rows` x panel_columns walks, each over `blocks` blocks from zero.
struct FilterTask {
    int block, align_bits;
    std::int64_t rows, blocks, segments;
    FilterSide a;  ///< pairs [rows][a_stride]; norm, top [rows][a_segments]; deeper [rows][a_segments]
    std::int64_t a_stride, a_segments;
    std::int64_t b_half;  ///< words between the two halves of the panel
    FilterSide
        b;  ///< pairs [2][units][panel_columns / 2]; norm [segments][panel_columns]; top, deeper of the whole panel
    float* value;  ///< [rows][panel_columns]
    float* error;  ///< |exact - value| <= error; infinity where the bound's conditions fail
};

/// Exact walks of one row by up to lane_count separate columns: what the bound leaves undecided.
inline constexpr int lane_count = 32;
struct LanesTask {
    int block, align_bits;
    std::int64_t blocks;
    const float* a;                      ///< [blocks * block]
    const std::uint32_t* a_fields;       ///< the row's pairs of codes, all but the exponent fields masked out
    const std::uint32_t* b[lane_count];  ///< pairs of codes; read up to a whole number of 16 words
    alignas(64) float acc[lane_count];   ///< in and out
    std::uint32_t unsafe;                ///< out: lanes that this kernel cannot do (a bit each)
};
inline constexpr std::uint32_t field_mask = 0x7F807F80U;  ///< exponent fields of a pair of bf16 codes

/// What a segment of one vector contributes to FilterSide.
struct FilterSegment {
    std::uint16_t
        lowest_bits[272];  ///< number of products' operands by the place of their lowest set bit, plus 8, biased
    int count = 0;         ///< operands that are not zero
    int top_field = 1;     ///< largest exponent field
    float norm = 0;
    bool unfit = false;  ///< holds a NaN, an infinity, a subnormal or a large number

    FilterSegment(const std::uint16_t* bf16_codes, std::int64_t size, int block) noexcept;
    /// FilterSide::deeper relative to the exponent field `top` (at least top_field).
    void deeper(int top, std::uint16_t (&out)[depth_levels]) const noexcept;
};
/// Roundings that product `position` of a block passes on the way to the block's sum: its weight in FilterSide::norm.
int filter_roundings(int block, int position) noexcept;

struct FilterKernels {
    void (*approximate)(const FilterTask&) noexcept;
    /// value <- value + more, one fp32 addition of the emulated accumulators; error likewise.
    void (*merge)(std::int64_t count, float* value, float* error, const float* more, const float* more_error) noexcept;
    /// Rounds the panel_columns values to bf16 or fp16 codes; a bit for each column where the error leaves two
    /// possibilities.
    std::uint64_t (*decide)(const float* value, const float* error, bool to_fp16, std::uint16_t* codes) noexcept;
    void (*walk_lanes)(LanesTask&) noexcept;
};
/// Kernels for this CPU, or nullptr.
const FilterKernels* filter_kernels() noexcept;

}  // namespace bitreplay::simd
