#include "emu/norm.hpp"

#include <string>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/norm_states_private.hpp"
#include "emu/parallel.hpp"
#include "emu/reduce.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/error.hpp"
#include "reduction_trees/torch_norm.hpp"

namespace bitreplay {
namespace {

constexpr std::uint32_t one = 0x3F800000;
constexpr std::int64_t vector_width = 4;
constexpr std::int64_t exact_counts = std::int64_t{1} << 24;  // FP32 holds every element count up to here

void check(const char* what, const Tensor& x, const Tensor* parameter, const char* name) {
    if (parameter == nullptr) return;
    if (parameter->rank() != 1 || parameter->dim(0) != x.cols())
        throw InputError(std::string(what) + ": " + name + " " + describe(*parameter) + " does not match x " +
                         describe(x));
    if (parameter->format() != fp32 && parameter->format() != bf16)
        throw NotModelled(std::string(what) + ": " + name + " " + describe(*parameter));
}

void check_formats(const char* what, const Tensor& x, const Format& result) {
    if (x.rank() == 0 || x.size() == 0) throw InputError(std::string(what) + ": x " + describe(x) + " has no rows");
    const auto captured = [](const Format& f) { return f == fp32 || f == bf16; };
    if (!captured(x.format()) || !captured(result))
        throw NotModelled(std::string(what) + " of " + describe(x) + " to " + std::string(named(result).name) +
                          ": only fp32 and bf16");
}

/// A parameter as FP32, or `missing` in every element.
std::vector<std::uint32_t> widened(const Tensor* parameter, std::int64_t width, std::uint32_t missing) {
    std::vector<std::uint32_t> out(static_cast<std::size_t>(width), missing);
    if (parameter != nullptr) load_fp32(*parameter, 0, out);
    return out;
}

std::vector<std::int64_t> without_last(const Tensor& x) { return {x.shape().begin(), x.shape().end() - 1}; }

std::int64_t grain(std::int64_t width) { return 1 + 32768 / width; }

}  // namespace

Tensor rms_norm_hf(const RmsNormTask& task) {
    const Tensor& x = task.x;
    check_formats("rms_norm", x, task.result);
    check("rms_norm", x, &task.weight, "w");
    const std::int64_t rows = x.rows(), width = x.cols();
    const TorchRowSum order(task.gpu, fp32, rows, width);
    const Mufu& unit = mufu(task.gpu);
    const std::uint32_t factor = f32::div(fp32_from_integer(rows), fp32_from_integer(rows * width));
    const std::uint32_t eps = fp32_from_real(task.eps);
    const std::vector<std::uint32_t> weight = widened(&task.weight, width, one);
    Tensor out(task.result, x.shape());
    parallel_for(rows, grain(width), [&](std::int64_t begin, std::int64_t end) {
        const Fp32Kernels& kernels = fp32_kernels();
        const auto n = static_cast<std::size_t>(width);
        LaneSum lanes;
        std::vector<std::uint32_t> h(n), square(n);
        for (std::int64_t row = begin; row < end; ++row) {
            load_fp32(x, row * width, h);
            kernels.mul(h.data(), h.data(), square.data(), n);
            const std::uint32_t mean = f32::mul(order.sum(lanes, row, square), factor);
            const std::uint32_t r = cuda::rsqrtf(unit, f32::add(mean, eps));
            kernels.mul_scalar(h.data(), r, h.data(), n);
            round_through(x.format(), h);
            kernels.mul(weight.data(), h.data(), h.data(), n);
            store_fp32(out, row * width, h);
        }
    });
    return out;
}

LayerNormResult layer_norm(const LayerNormTask& task) {
    const Tensor& x = task.x;
    const char* const what = task.rms ? "rms_norm" : "layer_norm";
    check_formats(what, x, task.result);
    check(what, x, task.weight, "w");
    check(what, x, task.bias, "bias");
    if (task.rms && task.bias != nullptr) throw InputError("rms_norm has no bias");
    if (task.weight == nullptr && task.bias != nullptr) throw NotModelled("layer_norm with bias and without weight");
    for (const Tensor* parameter : {task.weight, task.bias})
        if (parameter != nullptr && parameter->format() != x.format())
            throw NotModelled(std::string(what) + " of " + describe(x) + " with " + describe(*parameter));
    if (task.result != x.format()) throw NotModelled(std::string(what) + " to another format than x's");
    const std::int64_t rows = x.rows(), width = x.cols();
    if (width > exact_counts) throw NotModelled(std::string(what) + " of more than 2^24 elements per row");

    const Mufu& unit = mufu(task.gpu);
    const bool vectorised = width % vector_width == 0;
    const LaneOrder order = torch_norm_order(width, vectorised);
    const std::vector<std::uint32_t> gamma = widened(task.weight, width, one), beta = widened(task.bias, width, 0);
    const std::uint32_t eps = fp32_from_real(task.eps), n32 = fp32_from_integer(width);
    LayerNormResult out{Tensor(task.result, x.shape()), Tensor(fp32, without_last(x)), Tensor(fp32, without_last(x))};
    parallel_for(rows, grain(width), [&](std::int64_t begin, std::int64_t end) {
        const Fp32Kernels& kernels = fp32_kernels();
        const auto n = static_cast<std::size_t>(width);
        NormStates states;
        LaneSum sums;
        std::vector<std::uint32_t> values(n);
        for (std::int64_t row = begin; row < end; ++row) {
            load_fp32(x, row * width, values);
            NormStates::State state;
            if (task.rms && vectorised)
                state.squares = sums.sum_of_products(order, values, values);
            else
                state = states.run(vectorised ? NormStates::Kind::online : NormStates::Kind::rowwise, order, values);
            std::uint32_t variance = f32::div(state.squares, n32);
            if (task.rms && !vectorised) variance = f32::fma(state.mean, state.mean, variance);
            const std::uint32_t rstd = cuda::rsqrtf(unit, f32::add(variance, eps));
            const std::uint32_t mean = task.rms ? 0 : state.mean;

            if (!task.rms) kernels.sub_scalar(values.data(), mean, values.data(), n);
            kernels.mul_scalar(values.data(), rstd, values.data(), n);
            if (!vectorised && !task.rms)
                // One expression x*gamma + beta whatever is missing: gamma 1, beta +0.
                kernels.fma(values.data(), gamma.data(), beta.data(), values.data(), n);
            else if (task.bias != nullptr)
                kernels.fma(gamma.data(), values.data(), beta.data(), values.data(), n);
            else if (task.weight != nullptr)
                kernels.mul(gamma.data(), values.data(), values.data(), n);
            store_fp32(out.y, row * width, values);
            store_fp32(out.mean, row, {&mean, 1});
            store_fp32(out.rstd, row, {&rstd, 1});
        }
    });
    return out;
}

}  // namespace bitreplay
