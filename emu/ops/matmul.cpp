#include "emu/ops/matmul.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "arch/fp32.hpp"
#include "emu/gemm.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

RecipeValues recorded_values(const OpRequest& request, const Recipe& recipe) {
    RecipeValues values;
    for (const RecipeParam& param : recipe.params) {
        if (!request.params.has(param.name)) continue;
        if (param.words.empty())
            values[param.name] = request.params.integer(param.name, 0, param.low, param.high);
        else
            values[param.name] = request.params.text(param.name, "");
    }
    // A kernel whose order depends on how the second operand lies in memory: the columns of a row-major b are strided.
    if (recipe.find_param("strided") != nullptr)
        values.emplace("strided", std::int64_t{request.in.contains("b") && request.input("b").cols() > 1});
    return values;
}

/// The deepest instruction of the recipe's families, or the one whose depth the recipe fixes.
std::pair<const DotRule*, int> find_instruction(const OpRequest& request, const GemmKernel& kernel, const DotTypes& types) {
    const auto fixed = kernel.values.find("instruction_k");
    for (const std::string& family : kernel.recipe->families) {
        if (family == "cuda_core")
            if (const DotRule* rule = cuda_core_rule(types.a, types.b)) return {rule, 1};
        const DotRule* best = nullptr;
        int depth = 0;
        for (const DotRule& rule : request.gpu.dot) {
            if (rule.family != family || !(rule.types == types)) continue;
            for (const Shape& shape : rule.shapes) {
                if (fixed != kernel.values.end() ? shape.k != std::get<std::int64_t>(fixed->second) : shape.k <= depth) continue;
                best = &rule;
                depth = shape.k;
            }
        }
        if (best != nullptr) return {best, depth};
    }
    request.not_modelled("gpu " + request.gpu.name + " has no " + std::string(named(types.a).name) + " x " + std::string(named(types.b).name) +
                         " instruction for kernel " + kernel.recipe->name);
}

std::vector<std::int64_t> all(std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), std::int64_t{0});
    return out;
}

void check_indices(const OpRequest& request, std::span<const std::int64_t> indices, std::int64_t count, const char* what) {
    for (const std::int64_t i : indices)
        if (i < 0 || i >= count) request.fail(std::string(what) + " " + std::to_string(i) + " is outside the output");
}

/// What happens to an accumulator before the final rounding, per output (indices into x rows and w rows).
struct Epilogue {
    std::function<std::uint32_t(std::uint32_t acc, std::size_t row, std::size_t col)> scale;  ///< empty: none
    std::vector<std::uint32_t> bias;                                                          ///< FP32, per column; empty: none
};

OpResult product(const OpRequest& request, const Tensor& x, const Tensor& w, const Format& out_format, const Epilogue& epilogue) {
    const std::int64_t k = x.cols();
    if (k == 0) request.fail("K is 0");
    const GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), k);
    const RecipeBias* bias = find_bias(*kernel.recipe, kernel.values);
    if (!epilogue.bias.empty() && bias == nullptr) request.not_modelled("kernel " + kernel.recipe->name + " with a bias");
    const bool twice = bias != nullptr && bias->add == RecipeBias::Add::rounded;
    request.params.finish();

    const std::vector<std::int64_t> rows = request.rows ? *request.rows : all(x.rows());
    const std::vector<std::int64_t> cols = request.cols ? *request.cols : all(w.rows());
    check_indices(request, rows, x.rows(), "row");
    check_indices(request, cols, w.rows(), "column");
    const GemmTask task{*kernel.rule, kernel.instruction_k, kernel.plan, x, w, out_format, rows, cols};
    const Format& wide = kernel.rule->types.d;

    OpResult result;
    result.selected = request.rows.has_value() || request.cols.has_value();
    // Without an epilogue the accumulator is only rounded: narrower fp16 accumulators pass through fp32 exactly.
    const bool plain = !epilogue.scale && epilogue.bias.empty();
    const Tensor acc = plain ? gemm_rounded(task, out_format) : gemm_accumulators(task);
    Tensor out = plain ? acc : Tensor(out_format, {std::ssize(rows), std::ssize(cols)});
    if (!plain) parallel_for(std::ssize(rows), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
            for (std::int64_t j = 0; j < std::ssize(cols); ++j) {
                const auto row = static_cast<std::size_t>(rows[static_cast<std::size_t>(i)]), col = static_cast<std::size_t>(cols[static_cast<std::size_t>(j)]);
                auto value = static_cast<std::uint32_t>(convert(wide, fp32, acc.get(i * std::ssize(cols) + j)));
                if (epilogue.scale) value = epilogue.scale(value, row, col);
                if (!epilogue.bias.empty()) {
                    if (twice) value = static_cast<std::uint32_t>(convert(out_format, fp32, convert(fp32, out_format, value)));
                    value = f32::add(value, epilogue.bias[col]);
                }
                out.set(i * std::ssize(cols) + j, convert(fp32, out_format, value));
            }
    });
    if (const std::int64_t dropped = k - covered(kernel.plan); dropped > 0)
        result.warnings.push_back("op " + request.id + ": kernel " + kernel.recipe->name + " leaves the last " + std::to_string(dropped) +
                                  " of " + std::to_string(k) + " products out (a fault of the recorded library, reproduced)");
    if (!result.selected && x.rank() != 2) {
        std::vector<std::int64_t> shape = x.shape();
        shape.back() = w.rows();
        out = out.reshape(std::move(shape));
    }
    result.out[""] = std::move(out);
    return result;
}

void check_matrix(const OpRequest& request, const Tensor& w, const char* name) {
    if (w.rank() != 2) request.fail(std::string("input ") + name + " must be a matrix, not " + describe(w));
}

/// A vector of n values widened to FP32.
std::vector<std::uint32_t> widened(const OpRequest& request, const Tensor& vector, std::int64_t n, const char* name) {
    if (vector.size() != n) request.fail(std::string("input ") + name + " must have " + std::to_string(n) + " elements, not " + describe(vector));
    std::vector<std::uint32_t> out(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(convert(vector.format(), fp32, vector.get(i)));
    return out;
}

Tensor transposed(const Tensor& b) {
    Tensor out(b.format(), {b.dim(1), b.dim(0)});
    parallel_for(b.dim(1), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t n = first; n < last; ++n)
            for (std::int64_t k = 0; k < b.dim(0); ++k) out.set(n * b.dim(0) + k, b.get(k * b.dim(1) + n));
    });
    return out;
}

}  // namespace

GemmKernel choose_gemm_kernel(const OpRequest& request, const Format& a, const Format& b, std::int64_t k) {
    GemmKernel kernel{};
    kernel.recipe = request.kernel.empty() ? match_recipe(request.kernel_names) : &find_recipe(request.kernel);
    if (kernel.recipe == nullptr) {
        if (request.kernel_names.empty()) request.not_modelled("no kernel was recorded");
        std::string names;
        for (const std::string& name : request.kernel_names) names += (names.empty() ? "" : " + ") + name.substr(0, 120);
        request.not_modelled("no recipe for the recorded kernel " + names);
    }
    if (kernel.recipe->families.empty()) request.not_modelled("kernel " + kernel.recipe->name + " is not a matrix product");
    const int element_bits = a.storage_bits();
    kernel.values = resolve(*kernel.recipe, recorded_values(request, *kernel.recipe), request.kernel_names, element_bits);
    std::tie(kernel.rule, kernel.instruction_k) = find_instruction(request, kernel, {.d = fp32, .a = a, .b = b, .c = fp32});
    kernel.plan = make_plan(*kernel.recipe, kernel.values, k);
    return kernel;
}

OpResult run_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 3> names{"x", "w", "bias?"};
    request.check_inputs(names);
    const Tensor &x = request.input("x"), &w = request.input("w");
    check_matrix(request, w, "w");
    if (x.rank() < 1 || x.cols() != w.cols()) request.fail("K differs: x is " + describe(x) + ", w is " + describe(w));
    const Format out_format = request.out_format.value_or(x.format());
    Epilogue epilogue;
    if (request.in.contains("bias")) epilogue.bias = widened(request, request.input("bias"), w.rows(), "bias");
    return product(request, x, w, out_format, epilogue);
}

OpResult run_matmul(const OpRequest& request) {
    constexpr std::array<std::string_view, 2> names{"a", "b"};
    request.check_inputs(names);
    const Tensor &a = request.input("a"), &b = request.input("b");
    check_matrix(request, b, "b");
    if (a.rank() < 1 || a.cols() != b.dim(0)) request.fail("K differs: a is " + describe(a) + ", b is " + describe(b));
    return product(request, a, transposed(b), request.out_format.value_or(a.format()), {});
}

OpResult run_scaled_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 5> names{"x", "w", "x_scale", "w_scale", "bias?"};
    request.check_inputs(names);
    const Tensor &x = request.input("x"), &w = request.input("w");
    check_matrix(request, w, "w");
    if (x.rank() < 1 || x.cols() != w.cols()) request.fail("K differs: x is " + describe(x) + ", w is " + describe(w));
    if (!request.out_format) request.fail("out_dtype is missing");
    const Tensor &x_scale = request.input("x_scale"), &w_scale = request.input("w_scale");
    const bool tensor_wise = x_scale.size() == 1 && w_scale.size() == 1;
    const std::vector<std::uint32_t> s_x = widened(request, x_scale, tensor_wise ? 1 : x.rows(), "x_scale");
    const std::vector<std::uint32_t> s_w = widened(request, w_scale, tensor_wise ? 1 : w.rows(), "w_scale");
    Epilogue epilogue;
    epilogue.scale = [&](std::uint32_t acc, std::size_t row, std::size_t col) {
        return tensor_wise ? f32::mul(acc, f32::mul(s_x[0], s_w[0])) : f32::mul(f32::mul(acc, s_w[col]), s_x[row]);
    };
    if (request.in.contains("bias")) epilogue.bias = widened(request, request.input("bias"), w.rows(), "bias");
    return product(request, x, w, *request.out_format, epilogue);
}

}  // namespace bitreplay
