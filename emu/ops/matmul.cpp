#include <array>
#include <string_view>

#include "emu/ops/gemm_product.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

void check_matrix(const OpRequest& request, const Tensor& w, const char* name) {
    if (w.rank() != 2) request.fail(std::string("input ") + name + " must be a matrix, not " + describe(w));
}

/// A vector of n values widened to FP32.
std::vector<std::uint32_t> widened(const OpRequest& request, const Tensor& vector, std::int64_t n, const char* name) {
    if (vector.size() != n)
        request.fail(std::string("input ") + name + " must have " + std::to_string(n) + " elements, not " +
                     describe(vector));
    std::vector<std::uint32_t> out(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
        out[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(convert(vector.format(), fp32, vector.get(i)));
    return out;
}

/// The last two dimensions exchanged.
Tensor transposed(const Tensor& b) {
    std::vector<std::int64_t> shape = b.shape();
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    const std::int64_t n = shape[shape.size() - 2], k = shape[shape.size() - 1];
    Tensor out(b.format(), std::move(shape));
    parallel_for(k == 0 ? 0 : b.size() / k, 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row)
            for (std::int64_t i = 0; i < k; ++i) out.set(row * k + i, b.get((row / n * k + i) * n + row % n));
    });
    return out;
}

double real_parameter(const OpRequest& request, const std::string& name) {
    if (request.params.has(name) && !request.in.contains("c")) request.fail(name + " needs an input c");
    return request.params.real(name, 1.0);
}

/// Reads c, alpha and beta, and which epilogue ran. Returns whether the addend is a bias, added by the kernel's own
/// bias epilogue; a bias that cuBLASLt's log does not name was a c: torch expands it and passes beta = 1.
bool read_epilogue(
    const OpRequest& request, std::int64_t batch, std::int64_t m, std::int64_t n, GemmEpilogue& epilogue) {
    epilogue.alpha = real_parameter(request, "alpha");
    epilogue.beta = real_parameter(request, "beta");
    const bool bias = request.in.contains("bias"), c = request.in.contains("c");
    if (bias && c) request.not_modelled("a bias and a c");
    const std::string wanted = request.params.text("epilogue", "");
    if (!wanted.empty() && wanted != "none" && wanted != "gelu" && wanted != "relu")
        request.params.fail("epilogue", "must be none, gelu or relu");
    bool gelu = wanted == "gelu", own_bias = bias;
    epilogue.relu = wanted == "relu";
    if (request.cublaslt) {
        const LogEpilogue logged = log_epilogue(*request.cublaslt);
        if (logged.bias && !bias) request.fail("the cuBLASLt log has a bias, the op has none");
        if (!wanted.empty() && (logged.gelu != gelu || logged.relu != epilogue.relu))
            request.fail("params: epilogue contradicts the cuBLASLt log");
        gelu = logged.gelu;
        epilogue.relu = logged.relu;
        own_bias = logged.bias;
    }
    if (gelu) {
        if (!request.gpu.mufu) request.not_modelled("the special functions of gpu " + request.gpu.name);
        epilogue.gelu = &mufu(request.gpu);
    }
    if (bias || c) {
        const Tensor& addend = request.input(bias ? "bias" : "c");
        if (bias && addend.size() != n)
            request.fail("input bias must have " + std::to_string(n) + " elements, not " + describe(addend));
        try {
            epilogue.addend = Addend(bias ? addend.reshape({n}) : addend, batch, m, n);
        } catch (const InputError& error) {
            request.fail(std::string("input c: ") + error.what());
        }
    }
    return own_bias;
}

std::int64_t extent(const std::optional<InputPart>& part, std::int64_t count) { return part ? part->of : count; }

}  // namespace

OpResult run_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 4> names{"x", "w", "bias?", "c?"};
    request.check_inputs(names);
    GemmOperands operands{request.input("x"), request.input("w")};
    const Tensor &x = operands.x, &w = operands.w;
    operands.batched = w.rank() == 3;
    if (!operands.batched) check_matrix(request, w, "w");
    if (operands.batched && (x.rank() != 3 || x.dim(0) != w.dim(0)))
        request.fail("batches differ: x is " + describe(x) + ", w is " + describe(w));
    if (x.rank() < 1 || x.cols() != w.cols()) request.fail("K differs: x is " + describe(x) + ", w is " + describe(w));
    if (operands.batched) operands.batch = w.dim(0);
    const std::int64_t m = operands.batched ? x.dim(1) : extent(request.x_part, x.rows()),
                       n = operands.batched ? w.dim(1) : extent(request.w_part, w.rows());
    GemmEpilogue epilogue;
    const bool bias = read_epilogue(request, operands.batch, m, n, epilogue);
    return gemm_product(request, operands, request.out_format.value_or(x.format()), std::move(epilogue), bias);
}

OpResult run_matmul(const OpRequest& request) {
    constexpr std::array<std::string_view, 3> names{"a", "b", "c?"};
    request.check_inputs(names);
    const bool adds = request.op == "addmm" || request.op == "baddbmm";
    if (adds && !request.in.contains("c")) request.fail("missing input \"c\"");
    Tensor a = request.input("a"), b = request.input("b");
    const auto is_batch = [](const Tensor& t) { return t.rank() > 2; };
    if ((request.op == "bmm" || request.op == "baddbmm") && (a.rank() != 3 || b.rank() != 3))
        request.fail("a and b must have three dimensions");
    const bool row = a.rank() == 1, column = b.rank() == 1;
    if (a.rank() == 0 || b.rank() == 0) request.fail("a is " + describe(a) + ", b is " + describe(b));
    if (row) a = a.reshape({1, a.size()});
    if (column) b = b.reshape({b.size(), 1});
    if (a.cols() != b.dim(b.rank() - 2)) request.fail("K differs: a is " + describe(a) + ", b is " + describe(b));
    GemmOperands operands{a, transposed(b)};
    operands.batched = is_batch(b);
    if (operands.batched) {
        std::vector<std::int64_t> lead = b.shape();
        lead.resize(lead.size() - 2);
        std::vector<std::int64_t> lead_a = a.shape();
        lead_a.resize(lead_a.size() - 2);
        if (lead_a != lead) request.not_modelled("a product of " + describe(a) + " and " + describe(b));
        for (const std::int64_t extent_of_lead : lead) operands.batch *= extent_of_lead;
    }
    const std::int64_t m = operands.batched ? a.dim(a.rank() - 2) : a.rows(), n = b.cols();
    GemmEpilogue epilogue;
    read_epilogue(request, operands.batch, m, n, epilogue);
    OpResult result =
        gemm_product(request, operands, request.out_format.value_or(a.format()), std::move(epilogue), false);
    Tensor& out = result.out[""];
    if (row || column)
        out = out.reshape(row && column ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{out.size()});
    if (operands.batched && b.rank() > 3 && !result.selected) {
        std::vector<std::int64_t> shape = b.shape();
        shape[shape.size() - 2] = m;
        out = out.reshape(std::move(shape));
    }
    return result;
}

OpResult run_scaled_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 5> names{"x", "w", "x_scale", "w_scale", "bias?"};
    request.check_inputs(names);
    const Tensor &x = request.input("x"), &w = request.input("w");
    check_matrix(request, w, "w");
    if (x.rank() < 1 || x.cols() != w.cols()) request.fail("K differs: x is " + describe(x) + ", w is " + describe(w));
    if (!request.out_format) request.fail("out_dtype is missing");
    const std::int64_t m = extent(request.x_part, x.rows()), n = extent(request.w_part, w.rows());
    GemmEpilogue epilogue;
    const bool bias = read_epilogue(request, 1, m, n, epilogue);
    const Tensor &x_scale = request.input("x_scale"), &w_scale = request.input("w_scale");
    const bool tensor_wise = x_scale.size() == 1 && w_scale.size() == 1;
    epilogue.row_scale = widened(request, x_scale, tensor_wise ? 1 : m, "x_scale");
    epilogue.col_scale = widened(request, w_scale, tensor_wise ? 1 : n, "w_scale");
    return gemm_product(request, {x, w}, *request.out_format, std::move(epilogue), bias);
}

}  // namespace bitreplay
