#pragma once
// Private: what the host loop hands to the scalar definition and to the fast path.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "emu/attention.hpp"
#include "emu/attention/flash_math_private.hpp"
#include "emu/simd/dot.hpp"
#include "emu/simd/flash_rows.hpp"

namespace bitreplay::detail {

/// One thread block of a forward kernel: some query rows of one head against a range of key tiles.
struct FlashBlock {
    std::int64_t q_row;     ///< first query row of the block, as a row of the tensor [b·h·Sq, d]
    std::int64_t rows;      ///< query rows, at most tile.query
    std::int64_t position;  ///< of the first row within its sequence
    std::int64_t kv_row;    ///< first key of the sequence, as a row of the tensors [b·hk·Sk, d]
    std::int64_t queries, keys;          ///< of the sequence
    std::int64_t first_tile, last_tile;  ///< tiles [first, last) of tile.key keys, walked from the last to the first
    std::int64_t checked_tiles;          ///< of them, from the last: those in which a maximum of -inf counts as 0 (Check_inf)
};

struct FlashProblem {
    const FlashCall& call;
    const FlashPlan& plan;
    const DotRule& rule;
    int instruction_k;
    FlashMath math;
    std::uint32_t scale, scale_log2;
    FlashObserver* observer;  ///< or nullptr
    bool partial;  ///< the rows are parts of a split: an empty sum has log-sum-exp -inf, else +inf
};

/// Keys [first, second) of the sequence that the row at this position may see.
std::pair<std::int64_t, std::int64_t> visible_keys(const FlashPlan& plan, const FlashBlock& block, std::int64_t position);

/// The definition. Writes fp32 codes: o [block.rows][d] normalised, lse [block.rows].
void flash_block_scalar(const FlashProblem& problem,
                        const FlashBlock& block,
                        std::span<std::uint32_t> o,
                        std::span<std::uint32_t> lse);

/// The keys and values of one head and sequence in the form that the fast path reads.
class FlashPack {
public:
    struct Packed;
    /// nullptr where the fast path does not apply: NaN or infinite operands, a range in which an intermediate could
    /// overflow, fast-math, no kernel (kernels is nullptr, or no walk of that name).
    static std::unique_ptr<const FlashPack> make(const FlashProblem& problem,
                                                 std::int64_t kv_row,
                                                 std::int64_t keys,
                                                 const simd::FlashRowKernels* kernels,
                                                 std::string_view walk_name = {});
    ~FlashPack();

    simd::WalkShape shape;
    simd::WalkKernel walk = nullptr;
    const simd::FlashRowKernels* kernels = nullptr;
    std::int64_t kv_row = 0;
    std::unique_ptr<const Packed> packed;

private:
    FlashPack() = default;
};

/// The same as flash_block_scalar, bit for bit; false if the block's queries do not allow it (o and lse are then undefined).
bool flash_block_fast(const FlashProblem& problem,
                      const FlashBlock& block,
                      const FlashPack& pack,
                      std::span<std::uint32_t> o,
                      std::span<std::uint32_t> lse);

/// Combines the parts of a split, for one row: o[i] and lse[i] are part i; out receives the sum, the result is its lse.
std::uint32_t flash_combine_row(const FlashProblem& problem,
                                std::span<const std::uint32_t> lse,
                                std::span<const std::uint32_t> o,
                                std::span<std::uint32_t> out);

}  // namespace bitreplay::detail
