#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arch/dot.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/cudnn_recipe.hpp"
#include "reduction_trees/flash_recipe.hpp"

namespace bitreplay {

/// One call of FlashAttention-2 forward: o = softmax(q·kᵀ·scale, masked)·v per head, and the logarithm of the sum.
struct FlashCall {
    const Gpu& gpu;
    const FlashBuild& build;
    Tensor q;     ///< [b, h, Sq, d] bf16 or fp16
    Tensor k, v;  ///< [b, hk, Sk, d] of the same format; hk divides h, query head i reads key head i·hk/h
    bool causal = false;                              ///< aligned to the bottom right corner
    std::int64_t window_left = -1, window_right = -1; ///< keys visible on either side of the diagonal; -1: all
    std::uint32_t scale = 0;                          ///< fp32 code, see default_attention_scale()
    std::int64_t multiprocessors = 0;                 ///< what the host code saw
    std::int64_t splits = 0;                          ///< parts of the keys; 0: as the host code decides
    /// Variable-length call: the bounds of the sequences along Sq and Sk (first 0, last Sq or Sk); then b must be 1.
    std::vector<std::int64_t> bounds_q = {}, bounds_k = {};
};

/// o in the format of q, of q's shape; lse fp32 [b, h, Sq].
struct AttentionResult {
    Tensor o, lse;
};

/// What the host code of the library decides before it launches kernels.
struct FlashPlan {
    std::int64_t head_dim;  ///< of the kernel
    bool causal;            ///< as the kernel sees it: one query row or a left window turn it off
    std::int64_t window_left, window_right;  ///< as the kernel sees them
    bool local;             ///< a window mask that is not causal
    bool groups_as_rows;    ///< one query with several heads per key head: the heads become the rows
    std::int64_t splits;    ///< more than 1: flash_fwd_splitkv_kernel and its combining kernel
    FlashTile tile;
};
FlashPlan plan_flash(const FlashCall& call);

/// The number of parts into which the host code splits the keys. blocks: thread blocks without a split;
/// slots: thread blocks the GPU is taken to run at once; key_tiles: key tiles of one block.
std::int64_t flash_splits(std::int64_t blocks, std::int64_t slots, std::int64_t key_tiles, std::int64_t max_splits);

/// (float)(1/sqrt((double)head_dim)).
std::uint32_t default_attention_scale(std::int64_t head_dim) noexcept;

/// One key tile of one query row, as the scalar definition computed it. FP32 codes.
struct FlashTileEvent {
    std::int64_t first_key, keys;          ///< keys beyond `keys` fill up the tile as -inf
    bool first;                            ///< nothing came before: no rescaling
    std::span<const std::uint32_t> scores; ///< q·k of every key of the tile, -inf where masked
    std::span<const std::uint32_t> weights;///< exp2 of the scaled scores less the maximum, unrounded
    std::uint32_t max, rescale;            ///< running maximum after the tile; what sums and output were multiplied by
    std::array<std::uint32_t, 4> sums;     ///< partial sums of the weights after the tile
    std::uint32_t before, after;           ///< the watched output element, rescaled, and after the tile's products
};

/// Watches the scalar definition compute one element of the output: steps of its products with the values (k counts keys),
/// then the tile they belong to. Everything else of the call is left out. Watching changes no bit.
class FlashObserver : public DotObserver {
public:
    FlashObserver(std::int64_t watched_row, std::int64_t watched_column) : row(watched_row), column(watched_column) {}
    virtual void tile(const FlashTileEvent& event) = 0;
    /// A part of the keys is done: the sum of the weights, 1/sum, the log-sum-exp and the element, normalised.
    virtual void part(std::uint32_t sum, std::uint32_t factor, std::uint32_t lse, std::uint32_t value) = 0;
    /// Part i of a split was added: its weight, its element, the sum after it.
    virtual void combined(std::uint32_t weight, std::uint32_t part, std::uint32_t sum) = 0;

    const std::int64_t row;     ///< of q seen as [b·h·Sq, d]
    const std::int64_t column;  ///< of the head dimension
};

/// How to compute; every choice gives the same bits.
struct FlashEngine {
    bool fast = true;          ///< instruction-set kernels where they apply; false: the scalar definition
    std::string_view isa = {}; ///< only the kernels of this instruction set (emu/simd/*.inc), "" for the best
    FlashObserver* observer = nullptr;  ///< computes only the row that it watches, by the scalar definition
};

/// Runs the call. Throws NotModelled for a GPU, head dimension or format that the recipe does not cover.
AttentionResult flash_attention(const FlashCall& call, const FlashEngine& engine = {});

/// One call of a cuDNN attention kernel, its scale (float)(1/sqrt(d)).
struct CudnnCall {
    const Gpu& gpu;
    const CudnnKernel& kernel;
    Tensor q;     ///< [b, h, Sq, d] bf16 or fp16
    Tensor k, v;  ///< [b, hk, Sk, d] of the same format; hk divides h
    bool causal = false;  ///< Sq must be Sk
};

/// Runs the call. Throws NotModelled for everything that no capture of the kernel covers: another GPU, head dimension or
/// number of queries or keys, NaN and infinity, intermediate values that the kernel might have flushed to zero.
/// Source: testdata/h200/attention.
AttentionResult cudnn_attention(const CudnnCall& call, const FlashEngine& engine = {});

}  // namespace bitreplay
