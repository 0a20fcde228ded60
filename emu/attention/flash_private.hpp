#pragma once
// Private: what the host loop hands to the scalar definition and to the fast path.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/dot.hpp"
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
    std::int64_t first_tile, last_tile;  ///< tiles [first, last) of tile.key keys, walked from the last to the first (cuDNN: ascending)
    std::int64_t checked_tiles;          ///< of them, from the last: those in which a maximum of -inf counts as 0 (Check_inf)
};

struct FlashProblem {
    const Tensor &q, &k, &v;
    const FlashPlan& plan;
    const DotRule& rule;
    int instruction_k;
    FlashMath math;
    std::uint32_t scale;       ///< FlashAttention-2: of the log-sum-exp. cuDNN: of the scores, before scale_log2 (1: none)
    std::uint32_t scale_log2;  ///< from scores to exponents of two
    bool partial;  ///< the rows are parts of a split: an empty sum has log-sum-exp -inf, else +inf
    bool cudnn = false;  ///< the order of cuDNN's kernels: see cudnn_block_scalar
    FlashObserver* observer = nullptr;
};

/// Keys [first, second) of the sequence that the row at this position may see.
std::pair<std::int64_t, std::int64_t> visible_keys(const FlashPlan& plan, const FlashBlock& block, std::int64_t position);

/// The definition. Writes fp32 codes: o [block.rows][d] normalised, lse [block.rows].
void flash_block_scalar(const FlashProblem& problem,
                        const FlashBlock& block,
                        std::span<std::uint32_t> o,
                        std::span<std::uint32_t> lse);

/// The definition of cuDNN's kernels: key tiles from the first to the last, the maximum taken of scaled scores, row sums of
/// a tile from 0 and then added to the running ones by one fma, approximate reciprocal. Writes o and lse as above.
/// NotModelled where the captures do not tell what happens: exponents below -126, results that are subnormal or not finite.
void cudnn_block_scalar(const FlashProblem& problem,
                        const FlashBlock& block,
                        std::span<std::uint32_t> o,
                        std::span<std::uint32_t> lse);

/// The end of a row of cuDNN's kernels: the sum of its four lanes, and the log-sum-exp of that with the largest score
/// (times problem.scale, if that is a factor of its own).
std::uint32_t cudnn_total(const FlashMath& math, std::uint32_t s0, std::uint32_t s1, std::uint32_t s2, std::uint32_t s3) noexcept;
std::uint32_t cudnn_lse(const FlashProblem& problem, std::uint32_t max, std::uint32_t total) noexcept;

/// Smaller than the smallest normal FP32 number, and not zero.
constexpr bool is_subnormal_bits(std::uint32_t x) noexcept { return (x & 0x7F800000) == 0 && (x & 0x007FFFFF) != 0; }

/// Rows of a [.., d] tensor, decoded; element [row][i] or, transposed, [i][row].
void decode_rows(const Tensor& tensor, std::int64_t first, std::int64_t count, bool transposed, std::vector<Operand>& out);
/// Which of the four lanes that share a row of the tensor core's result holds a column of the score tile.
constexpr std::size_t lane_of(std::size_t column) noexcept { return column % 8 / 2; }

/// Throws InputError for shapes and formats that are no attention.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v);

/// Calls result(block, part, o, lse) for every block of every part, from any thread; lists[part] are the blocks of that
/// part, those of one key head and sequence after each other.
using FlashResult = std::function<void(const FlashBlock& block, std::size_t part, std::span<const std::uint32_t> o, std::span<const std::uint32_t> lse)>;
void run_flash_blocks(const FlashProblem& problem, const FlashEngine& engine, const std::vector<std::vector<FlashBlock>>& lists, const FlashResult& result);

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
