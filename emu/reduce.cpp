#include "emu/reduce.hpp"

#include <algorithm>
#include <string>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t load_bytes = 16;  // one vector load of reduce_kernel

/// The maximum's code. PyTorch keeps a NaN as it is and on a tie either operand, so equal values with different bits
/// would make the order count; no capture shows it.
std::uint64_t row_maximum(const Tensor& x, std::int64_t row) {
    const Format& format = x.format();
    bool any_nan = false, plus_zero = false, minus_zero = false;
    std::uint64_t nan = 0, best = 0;
    std::int64_t best_rank = INT64_MIN;
    for (std::int64_t i = row * x.cols(); i < (row + 1) * x.cols(); ++i) {
        const std::uint64_t code = x.get(i);
        const std::uint64_t magnitude = code & ~format.sign_mask();
        if (magnitude > format.infinity()) {
            if (any_nan && code != nan) throw NotModelled("maximum of a row with several NaN encodings");
            any_nan = true;
            nan = code;
        } else if (magnitude == 0) {
            (code == 0 ? plus_zero : minus_zero) = true;
        }
        const auto rank = static_cast<std::int64_t>(magnitude) * ((code & format.sign_mask()) != 0 ? -1 : 1);
        if (rank > best_rank) {
            best_rank = rank;
            best = code;
        }
    }
    if (any_nan) return nan;
    if (best_rank == 0 && plus_zero && minus_zero) throw NotModelled("maximum of a row that is zero of both signs");
    return best;
}

/// The maximum that logsumexp subtracts: NaN wins, and an infinity counts as 0.
std::uint32_t largest(std::span<const std::uint32_t> values) {
    const std::uint32_t best = fp32_maximum(values);
    const bool any_nan =
        std::any_of(values.begin(), values.end(), [](auto bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; });
    if (any_nan) return 0x7FFFFFFF;
    return (best & 0x7FFFFFFF) == 0x7F800000 ? 0 : best;
}

}  // namespace

TorchRowSum::TorchRowSum(
    const Gpu& gpu, const Format& input, std::int64_t rows, std::int64_t width, std::int64_t storage_offset)
    : vector_width_(load_bytes / storage_bytes(input)), width_(width), offset_(storage_offset) {
    if (input != fp32 && input != bf16)
        throw NotModelled("reduce_kernel on " + std::string(named(input).name) + ": no captures");
    if (rows < 1 || width < 1) throw NotModelled("reduction of an empty tensor");
    const TorchReduce launch = torch_reduce(
        {rows, width, static_cast<int>(vector_width_), gpu.multiprocessors, gpu.threads_per_multiprocessor});
    for (std::int64_t row = 0; row < std::min(rows, vector_width_); ++row) {
        const std::int64_t shift = (offset_ + row * width_) % vector_width_;
        if (!orders_.contains(shift)) orders_.emplace(shift, lane_order(launch, shift));
    }
}

std::uint32_t TorchRowSum::sum(LaneSum& lanes, std::int64_t row, std::span<const std::uint32_t> values) const {
    return lanes.sum(orders_.at((offset_ + row * width_) % vector_width_), values);
}

RowReduction::RowReduction(const ReduceTask& task)
    : task_(task),
      unit_(task.function == ReduceFunction::logsumexp ? &mufu(task.gpu) : nullptr),
      // x.float() and pow(2), exp(x - max): fresh, aligned fp32 tensors.
      order_(task.gpu,
             task.function == ReduceFunction::mean_sq ? fp32 : task.x.format(),
             task.x.rows(),
             task.x.cols(),
             task.function == ReduceFunction::mean_sq || task.function == ReduceFunction::logsumexp ? 0 : task.storage_offset),
      factor_(f32::div(fp32_from_integer(task.x.rows()), fp32_from_integer(task.x.rows() * task.x.cols()))) {
    if (unit_ != nullptr && (task.x.format() != fp32 || task.result != fp32))
        throw NotModelled("logsumexp of " + describe(task.x) + " as " + std::string(named(task.result).name));
}

std::uint32_t RowReduction::values(std::int64_t row, std::span<std::uint32_t> out) const {
    const Fp32Kernels& kernels = fp32_kernels();
    load_fp32(task_.x, row * task_.x.cols(), out);
    if (task_.function == ReduceFunction::mean_sq) kernels.mul(out.data(), out.data(), out.data(), out.size());
    if (unit_ == nullptr) return 0;
    const std::uint32_t maximum = largest(out);
    kernels.sub_scalar(out.data(), maximum, out.data(), out.size());
    for (std::uint32_t& value : out) value = cuda::expf(*unit_, value);
    return maximum;
}

std::uint32_t RowReduction::finish(std::uint32_t sum, std::uint32_t maximum) const {
    if (unit_ != nullptr) return f32::add(cuda::logf(*unit_, sum), maximum);
    const bool mean = task_.function == ReduceFunction::mean_sq || task_.function == ReduceFunction::mean;
    return mean ? f32::mul(sum, factor_) : sum;
}

Tensor reduce(const ReduceTask& task) {
    const Tensor& x = task.x;
    if (x.rank() == 0) throw InputError("reduce needs at least one dimension");
    const std::int64_t rows = x.rows(), width = x.cols();
    std::vector<std::int64_t> shape(x.shape().begin(), x.shape().end() - 1);
    Tensor out(task.result, shape);
    if (!is_fp32_loadable(task.result)) throw NotModelled("reduce to " + std::string(named(task.result).name));

    if (task.function == ReduceFunction::max) {
        if (x.format() != task.result || (x.format() != fp32 && x.format() != bf16))
            throw NotModelled("maximum of " + describe(x) + " as " + std::string(named(task.result).name));
        if (width < 1) throw InputError("maximum of an empty row");
        parallel_for(rows, 1 + 65536 / width, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) out.set(row, row_maximum(x, row));
        });
        return out;
    }

    const RowReduction reduction(task);
    parallel_for(rows, 1 + 65536 / width, [&](std::int64_t begin, std::int64_t end) {
        LaneSum lanes;
        std::vector<std::uint32_t> values(static_cast<std::size_t>(width));
        for (std::int64_t row = begin; row < end; ++row) {
            const std::uint32_t maximum = reduction.values(row, values);
            const std::uint32_t result = reduction.finish(reduction.sum(lanes, row, values), maximum);
            store_fp32(out, row, {&result, 1});
        }
    });
    return out;
}

}  // namespace bitreplay
