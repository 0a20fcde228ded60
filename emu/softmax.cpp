#include "emu/softmax.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/lane_sum.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/error.hpp"
#include "reduction_trees/torch_softmax.hpp"

namespace bitreplay {
Tensor softmax(const SoftmaxTask& task) {
    const Tensor& x = task.x;
    if (x.rank() == 0) throw InputError("softmax needs at least one dimension");
    const auto captured = [](const Format& f) { return f == fp32 || f == bf16; };
    if (!captured(x.format()) || !captured(task.result))
        throw NotModelled("softmax of " + describe(x) + " as " + std::string(named(task.result).name));
    const std::int64_t rows = x.rows(), width = x.cols();
    Tensor out(task.result, x.shape());
    if (out.size() == 0) return out;

    const Mufu& unit = mufu(task.gpu);
    // Where the formats differ torch converts before or after an fp32 kernel (its one-kernel form takes fp16 only).
    const int element_bytes = x.format() == task.result ? x.element_bytes() : 4;
    const std::int64_t vector_width = 16 / element_bytes;
    const TorchSoftmax kernel = torch_softmax(width, element_bytes, true);
    std::map<std::int64_t, LaneOrder> orders;
    for (std::int64_t row = 0; row < std::min(rows, vector_width); ++row) {
        const std::int64_t shift = row * width % vector_width;
        if (!orders.contains(shift)) orders.emplace(shift, lane_order(kernel, shift));
    }
    parallel_for(rows, 1 + 4096 / width, [&](std::int64_t begin, std::int64_t end) {
        const Fp32Kernels& kernels = fp32_kernels();
        const auto n = static_cast<std::size_t>(width);
        LaneSum lanes;
        std::vector<std::uint32_t> values(n), power(n), scale(n);
        for (std::int64_t row = begin; row < end; ++row) {
            load_fp32(x, row * width, values);
            kernels.sub_scalar(values.data(), fp32_maximum(values), values.data(), n);
            for (std::size_t i = 0; i < n; ++i) {
                const cuda::ExpParts parts = cuda::exp_parts(unit, values[i]);
                power[i] = parts.power;
                scale[i] = parts.scale;
            }
            const std::uint32_t total = lanes.sum_of_products(orders.at(row * width % vector_width), power, scale);
            if (task.log) {
                kernels.sub_scalar(values.data(), cuda::logf(unit, total), values.data(), n);
            } else {
                kernels.mul(power.data(), scale.data(), values.data(), n);
                kernels.div_scalar(values.data(), total, values.data(), n);
            }
            store_fp32(out, row * width, values);
        }
    });
    return out;
}

}  // namespace bitreplay
