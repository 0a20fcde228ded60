#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "arch/gpu.hpp"
#include "arch/mufu.hpp"
#include "emu/lane_sum.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/torch_reduce.hpp"

namespace bitreplay {

/// Row sums by PyTorch's reduce_kernel: the launch for `rows` contiguous rows of `width` elements of `input` (fp32 or
/// bf16, one 16-byte load = 4 or 8 elements) whose first element lies `storage_offset` elements after a 16-byte
/// boundary.
class TorchRowSum {
public:
    /// Throws NotModelled for another input format.
    TorchRowSum(
        const Gpu& gpu, const Format& input, std::int64_t rows, std::int64_t width, std::int64_t storage_offset = 0);
    /// The sum of row `row`, whose FP32 values are given. `lanes` is this thread's scratch.
    std::uint32_t sum(LaneSum& lanes, std::int64_t row, std::span<const std::uint32_t> values) const;

private:
    std::int64_t vector_width_, width_, offset_;
    std::map<std::int64_t, LaneOrder> orders_;  ///< by shift
};

enum class ReduceFunction : std::uint8_t {
    sum,        ///< x.sum(-1)
    mean,       ///< x.mean(-1): the sum times float(rows)/float(rows*width)
    mean_sq,    ///< x.float().pow(2).mean(-1)
    max,        ///< x.amax(-1)
    logsumexp,  ///< x.logsumexp(-1)
};

struct ReduceTask {
    const Gpu& gpu;
    ReduceFunction function;
    const Tensor& x;  ///< fp32 or bf16, contiguous; the last dimension is reduced
    Format result;
    std::int64_t storage_offset = 0;  ///< elements from a 16-byte boundary to x
};

/// The rows of a sum, mean, mean_sq or logsumexp, one at a time: what reduce() does with each. Throws as reduce() does.
class RowReduction {
public:
    explicit RowReduction(const ReduceTask& task);
    /// The FP32 values that are added up for a row of x (x.cols() of them): its elements, squares or exponentials. The
    /// result is the maximum that was subtracted before (logsumexp; else 0).
    std::uint32_t values(std::int64_t row, std::span<std::uint32_t> out) const;
    std::uint32_t sum(LaneSum& lanes, std::int64_t row, std::span<const std::uint32_t> values) const { return order_.sum(lanes, row, values); }
    /// The FP32 result of a row's sum.
    std::uint32_t finish(std::uint32_t sum, std::uint32_t maximum) const;

private:
    const ReduceTask& task_;
    const Mufu* unit_;
    TorchRowSum order_;
    std::uint32_t factor_;
};

/// One value per row, shape of x without its last dimension. Kernels of torch 2.11. Throws NotModelled for formats
/// without captures, and for a maximum that depends on the order: NaNs with different bits, zeros of both signs.
Tensor reduce(const ReduceTask& task);

}  // namespace bitreplay
