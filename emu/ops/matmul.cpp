#include <array>
#include <string_view>

#include "emu/ops/gemm_product.hpp"
#include "emu/ops/product_shape.hpp"
#include "emu/ops/torch_private.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

/// The shape of the whole product, whatever parts of x and w are there.
ProductShape whole_shape(const OpRequest& request) {
    std::map<std::string, Outline> in;
    for (const auto& [name, tensor] : request.in) in[name] = outline(tensor);
    if (request.x_part) in["x"].shape.front() = request.x_part->of;
    if (request.w_part) in["w"].shape.front() = request.w_part->of;
    return as_op(request, [&] { return product_shape(request.op, in).value(); });
}

/// A vector of values widened to FP32.
std::vector<std::uint32_t> widened(const Tensor& vector) {
    std::vector<std::uint32_t> out(static_cast<std::size_t>(vector.size()));
    for (std::int64_t i = 0; i < vector.size(); ++i)
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
bool read_epilogue(const OpRequest& request, const ProductShape& shape, GemmEpilogue& epilogue) {
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
        epilogue.addend = Addend(bias ? addend.reshape({shape.n}) : addend, shape.batch, shape.m, shape.n);
    }
    return own_bias;
}

}  // namespace

OpResult run_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 4> names{"x", "w", "bias?", "c?"};
    request.check_inputs(names);
    const ProductShape shape = whole_shape(request);
    const GemmOperands operands{request.input("x"), request.input("w"), shape.batch, shape.batched};
    GemmEpilogue epilogue;
    const bool bias = read_epilogue(request, shape, epilogue);
    return gemm_product(request, operands, request.out_format.value_or(operands.x.format()), std::move(epilogue), bias);
}

OpResult run_matmul(const OpRequest& request) {
    constexpr std::array<std::string_view, 3> names{"a", "b", "c?"};
    request.check_inputs(names);
    const bool adds = request.op == "addmm" || request.op == "baddbmm";
    if (adds && !request.in.contains("c")) request.fail("missing input \"c\"");
    Tensor a = request.input("a"), b = request.input("b");
    const ProductShape shape = whole_shape(request);
    const bool row = a.rank() == 1, column = b.rank() == 1;
    if (row) a = a.reshape({1, a.size()});
    if (column) b = b.reshape({b.size(), 1});
    const GemmOperands operands{a, transposed(b), shape.batch, shape.batched};
    GemmEpilogue epilogue;
    read_epilogue(request, shape, epilogue);
    OpResult result =
        gemm_product(request, operands, request.out_format.value_or(a.format()), std::move(epilogue), false);
    Tensor& out = result.out[""];
    if (!result.selected)
        out = out.reshape(shape.out);
    else if (row || column)
        out = out.reshape(row && column ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{out.size()});
    return result;
}

OpResult run_scaled_linear(const OpRequest& request) {
    constexpr std::array<std::string_view, 5> names{"x", "w", "x_scale", "w_scale", "bias?"};
    request.check_inputs(names);
    const ProductShape shape = whole_shape(request);
    if (!request.out_format) request.fail("out_dtype is missing");
    GemmEpilogue epilogue;
    const bool bias = read_epilogue(request, shape, epilogue);
    epilogue.row_scale = widened(request.input("x_scale"));
    epilogue.col_scale = widened(request.input("w_scale"));
    return gemm_product(request, {request.input("x"), request.input("w")}, *request.out_format, std::move(epilogue), bias);
}

}  // namespace bitreplay
