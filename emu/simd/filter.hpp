#pragma once

#include <cstdint>

#include "emu/simd/dot.hpp"

// Interface of the filter: a fast approximation of a walk over bf16 operands with a proved bound on its distance from
// the exact one. emu/FILTER.md derives the bound; names there and here agree.
namespace bitreplay::simd {

inline constexpr int segment_products = 512;  ///< the bound's maxima and counts are per segment of this many products
inline constexpr int strip_columns = 16;      ///< columns of a panel whose pairs lie together: one vector of words
inline constexpr int depth_levels = 32;       ///< entries of a table of trailing-bit depths
inline constexpr int filter_exponent =
    50;  ///< operands with a larger exponent, and subnormal ones, are not for the filter

/// What the bound needs to know about one side. Vectors are rows of A or columns of B.
struct FilterSide {
    const std::uint32_t* pairs;  ///< two bf16 codes a word, of several vectors beside each other
    const float* norm;           ///< upper bound of sqrt(sum of roundings(k) * value^2), per segment
    const std::int32_t* top;     ///< largest exponent of the segment
    /// Entry i, 0 <= i < depth_levels: number of operands (the largest of a panel's columns) whose lowest bit lies more
    /// than i - 1 below top.
    const std::uint16_t* deeper;
    const std::int32_t* middle;  ///< an entry from which on few are left, per segment: where to look first
};

inline constexpr int strip_rows = 16;  ///< rows of A whose pairs lie together, likewise

/// Approximations of `rows` x panel_columns walks, each over `blocks` blocks from zero.
struct FilterTask {
    int block, align_bits;
    std::int64_t rows, blocks, segments;
    /// pairs [strips][a_units][strip_rows]; norm, top, middle [rows][a_segments]; deeper [rows][a_segments]
    FilterSide a;
    std::int64_t a_units, a_segments;
    std::int64_t b_strip;  ///< words between the strips of the panel
    /// pairs [strips][units][strip_columns]; norm [segments][panel_columns]; the rest of the whole panel
    FilterSide b;
    float* value;  ///< [rows][panel_columns]
    float* error;  ///< |exact - value| <= error; infinity where the bound's conditions fail
};

/// Exact walks of one row by up to lane_count separate columns: what the bound leaves undecided.
inline constexpr int lane_count = 32;
struct LanesTask {
    int block, align_bits;
    std::int64_t blocks;
    const std::uint32_t* a;              ///< the row's pairs of codes, strip_rows words apart
    const std::uint32_t* b[lane_count];  ///< pairs of codes; read up to a whole number of 16 words
    alignas(64) float acc[lane_count];   ///< in and out
    std::uint32_t unsafe;                ///< out: lanes that this kernel cannot do (a bit each)
};

/// The same for separate (row, column) pairs, 16 of two strips of rows and two of columns together.
struct PairVector {
    alignas(64) std::int32_t row[16];  ///< in the two strips
    std::int32_t column[16];
    std::int64_t a, b;  ///< places of the first strips in PairsTask::a, b
};
struct PairsTask {
    int block, align_bits;
    std::int64_t blocks;
    std::int64_t count;  ///< of vectors: block by block all of them go together
    const PairVector* vectors;
    const std::uint32_t *a, *b;  ///< strips, a_strip and b_strip words apart: pairs of codes [units][16]
    std::int64_t a_strip, b_strip;
    std::int64_t first;     ///< block of the operands to begin with
    float* acc;             ///< [count][16], in and out
    std::uint16_t* unsafe;  ///< [count] in and out: bits are set for pairs that this kernel cannot do
};
inline constexpr std::uint32_t field_mask = 0x7F807F80U;  ///< exponent fields of a pair of bf16 codes

/// What a segment of one vector contributes to FilterSide.
struct FilterSegment {
    std::uint16_t deeper[depth_levels];  ///< FilterSide::deeper relative to top_field
    int count;                           ///< operands that are not zero
    int top_field;                       ///< largest exponent field, at least 1
    float norm;
    bool unfit;  ///< holds a NaN, an infinity, a subnormal or a large number; the tables are then not meant for use

    /// `deeper` relative to the exponent field `top`, at least top_field.
    void relative_to(int top, std::uint16_t (&out)[depth_levels]) const noexcept;
};
/// FilterSide::middle of a table.
int middle_of(const std::uint16_t (&deeper)[depth_levels]) noexcept;
/// Interleaved chains of pair sums, each from zero, whose sums are added in a tree to the sum of a block.
constexpr int filter_chains(int block) noexcept { return block < 16 ? block / 4 : 4; }
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
    void (*walk_pairs)(const PairsTask&) noexcept;
    /// Sixteen vectors of pairs (2-byte aligned) side by side: to[unit][16].
    void (*interleave)(const std::uint32_t* const* vectors, std::int64_t units, std::uint32_t* to) noexcept;
    /// At most segment_products bf16 codes, from the start of a block.
    void (*describe)(const std::uint16_t* codes, std::int64_t size, int block, FilterSegment& out) noexcept;
};
/// Kernels for this CPU, or nullptr.
const FilterKernels* filter_kernels() noexcept;

}  // namespace bitreplay::simd
