#include "emu/ops/matmul.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "emu/fp32_rows.hpp"
#include "emu/gemm.hpp"
#include "emu/gemm_epilogue.hpp"
#include "emu/ops/torch_private.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

std::vector<std::int64_t> all(std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), std::int64_t{0});
    return out;
}

void check_indices(const OpRequest& request, std::span<const std::int64_t> indices, std::int64_t count, const char* what) {
    for (const std::int64_t i : indices)
        if (i < 0 || i >= count) request.fail(std::string(what) + " " + std::to_string(i) + " is outside the output");
}

/// One entry of a batch: a matrix that shares the batch's memory.
Tensor entry_of(const Tensor& batch, std::int64_t entry) {
    if (batch.rank() == 2) return batch;
    const std::size_t rank = batch.rank();
    const std::int64_t rows = batch.dim(rank - 2), cols = batch.dim(rank - 1);
    const auto bytes = static_cast<std::size_t>(rows * cols * batch.element_bytes());
    const auto owner = std::make_shared<const Tensor>(batch);
    return {batch.format(), {rows, cols}, owner->bytes().subspan(static_cast<std::size_t>(entry) * bytes, bytes), owner};
}

/// The matrix with every element rounded to the nearest code of `format`.
Tensor rounded_to(const Format& format, const Tensor& x) {
    if (x.format() == format) return x;
    Tensor out(format, x.shape());
    parallel_for(x.rows(), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first * x.cols(); i < last * x.cols(); ++i) out.set(i, convert(x.format(), format, x.get(i)));
    });
    return out;
}

/// alpha·x, rounded to FP32.
Tensor scaled(std::uint32_t alpha, const Tensor& x) {
    Tensor out(fp32, x.shape());
    parallel_for(x.rows(), 16, [&](std::int64_t first, std::int64_t last) {
        std::vector<std::uint32_t> row(static_cast<std::size_t>(x.cols()));
        for (std::int64_t i = first; i < last; ++i) {
            load_fp32(x, i * x.cols(), row);
            fp32_kernels().mul_scalar(row.data(), alpha, row.data(), row.size());
            store_fp32(out, i * x.cols(), row);
        }
    });
    return out;
}

/// The operands of a product as the op was given them: x [.., M, K] and w [N, K], or [B, M, K] and [B, N, K].
struct Operands {
    Tensor x, w;
    std::int64_t batch = 1;
    bool batched = false;  ///< the output is [B, M, N]
};

/// The parts of an output that are needed, as positions in x and w and as places in the whole output.
struct Needed {
    std::vector<std::int64_t> rows, cols, rows_of_output, cols_of_output;
};

std::vector<std::int64_t> places(const std::vector<std::int64_t>& positions, const std::optional<InputPart>& part) {
    if (!part) return positions;
    std::vector<std::int64_t> out;
    for (const std::int64_t i : positions) out.push_back(part->index[static_cast<std::size_t>(i)]);
    return out;
}

/// Computes the needed outputs of one entry of a batch.
class EntryProduct {
public:
    EntryProduct(const OpRequest& request, const GemmKernel& kernel, const GemmEpilogue& epilogue, const Format& result)
        : request_(request), kernel_(kernel), epilogue_(epilogue), result_(result) {}

    Tensor operator()(const Tensor& x, const Tensor& w, std::int64_t entry, const Needed& needed, std::int64_t& left_out) const {
        const std::int64_t m = request_.x_part ? request_.x_part->of : x.rows(), n = request_.w_part ? request_.w_part->of : w.rows();
        const std::vector<OutputRegion> regions = output_regions(*kernel_.recipe, kernel_.values, m, n);
        const Tensor a = rounded_to(kernel_.rule->types.a, x), b = rounded_to(kernel_.rule->types.b, w);
        if (regions.size() == 1) return region(a, b, entry, needed, regions.front(), left_out);
        Tensor out(result_, {std::ssize(needed.rows), std::ssize(needed.cols)});
        for (const OutputRegion& where : regions) {
            Needed inside;
            const std::vector<std::int64_t> rows = pick(needed.rows, needed.rows_of_output, where.rows, inside.rows, inside.rows_of_output);
            const std::vector<std::int64_t> cols = pick(needed.cols, needed.cols_of_output, where.cols, inside.cols, inside.cols_of_output);
            if (rows.empty() || cols.empty()) continue;
            const Tensor part = region(a, b, entry, inside, where, left_out);
            std::int64_t at = 0;
            for (const std::int64_t i : rows)
                for (const std::int64_t j : cols) out.set(i * out.cols() + j, part.get(at++));
        }
        return out;
    }

private:
    /// Copies the positions and places that lie in `range`; returns where they stood.
    static std::vector<std::int64_t> pick(const std::vector<std::int64_t>& positions, const std::vector<std::int64_t>& of_output, const Range& range,
                                          std::vector<std::int64_t>& picked, std::vector<std::int64_t>& picked_of_output) {
        std::vector<std::int64_t> out;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            if (of_output[i] < range.begin || of_output[i] >= range.end) continue;
            picked.push_back(positions[i]);
            picked_of_output.push_back(of_output[i]);
            out.push_back(static_cast<std::int64_t>(i));
        }
        return out;
    }

    Tensor region(const Tensor& x, const Tensor& w, std::int64_t entry, const Needed& needed, const OutputRegion& where, std::int64_t& left_out) const {
        const Plan plan = make_plan(*kernel_.recipe, where.values, x.cols());
        left_out = std::max(left_out, x.cols() - covered(plan));
        GemmTask task{*kernel_.rule, kernel_.instruction_k, plan, x, w, result_, needed.rows, needed.cols};
        // Without an epilogue the accumulator is only rounded: narrower fp16 accumulators pass through fp32 exactly.
        if (epilogue_.empty()) return gemm_rounded(task, result_);
        const EpiloguePlace place{entry, needed.rows_of_output, needed.cols_of_output};
        std::vector<Tensor> parts;
        if (!epilogue_.needs_parts() || plan.kind == Plan::Kind::walk) {
            parts.push_back(gemm_accumulators(task));
            return apply_epilogue(epilogue_, parts, place, result_);
        }
        constexpr Merge serial{.order = Merge::Order::first_to_last, .from_zero = false, .parts = Merge::Precision::accumulator, .sums = Merge::Precision::result};
        if (!(plan.merge == serial)) throw NotModelled("an addend in the first part of kernel " + kernel_.recipe->name);
        for (const Plan& part : plan.parts) {
            const GemmTask one{*kernel_.rule, kernel_.instruction_k, part, x, w, result_, needed.rows, needed.cols};
            parts.push_back(gemm_accumulators(one));
        }
        return apply_epilogue(epilogue_, parts, place, result_);
    }

    const OpRequest& request_;
    const GemmKernel& kernel_;
    const GemmEpilogue& epilogue_;
    const Format& result_;
};

bool is_one(std::uint32_t x) noexcept { return x == 0x3F800000; }

/// Checks the addend against what the recipe says and fills in how it is added.
void choose_orders(const OpRequest& request, const GemmKernel& kernel, bool is_bias, GemmEpilogue& epilogue) {
    const Recipe& recipe = *kernel.recipe;
    if (epilogue.gelu != nullptr && !has_gelu(recipe, kernel.values)) request.not_modelled("kernel " + recipe.name + " with GELU");
    if (epilogue.addend.empty()) return;
    if (kernel.rule->types.d == fp64) request.not_modelled("kernel " + recipe.name + " with an addend in FP64");
    if (is_bias) {
        const RecipeBias* bias = find_bias(recipe, kernel.values);
        if (bias == nullptr) request.not_modelled("kernel " + recipe.name + " with a bias");
        epilogue.bias = bias->add;
        return;
    }
    const RecipeAddend* addend = find_addend(recipe, kernel.values);
    if (addend == nullptr) request.not_modelled("kernel " + recipe.name + " with an addend c");
    epilogue.orders = addend->orders;
    for (const RecipeAddend::Order order : addend->orders) {
        const bool alpha = order != RecipeAddend::Order::first_part || is_one(epilogue.alpha);
        const bool beta = (order != RecipeAddend::Order::first_part && order != RecipeAddend::Order::rounded) || is_one(epilogue.beta);
        if (!alpha || !beta) request.not_modelled("kernel " + recipe.name + " with these alpha and beta");
    }
}

OpResult product(const OpRequest& request, const Operands& operands, const Format& out_format, GemmEpilogue epilogue, bool is_bias) {
    Tensor x = operands.x;
    const Tensor& w = operands.w;
    const std::int64_t k = x.cols();
    if (k == 0) request.fail("K is 0");
    GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), k);
    choose_orders(request, kernel, is_bias, epilogue);
    if (epilogue.scales_x()) {
        x = scaled(epilogue.alpha, x);
        kernel.rule = cuda_core_rule(fp32, w.format());
    }
    request.params.finish();

    OpResult result;
    // Without a batch, the rows of an output [B, M, N] name its first dimension: then, as where a batch is named of folded
    // rows, everything is computed and the caller selects.
    const bool whole = (request.rows || request.cols || request.batch) && operands.batched != request.batch.has_value();
    result.selected = !whole && (request.rows || request.cols || request.batch);
    const std::int64_t m = operands.batched ? x.dim(x.rank() - 2) : x.rows(), n = w.dim(w.rank() - 2);
    const bool rows = request.rows && !whole, cols = request.cols && !whole;
    Needed needed{rows ? *request.rows : all(m), cols ? *request.cols : all(n), {}, {}};
    const std::vector<std::int64_t> entries = request.batch && !whole ? *request.batch : all(operands.batch);
    check_indices(request, needed.rows, m, "row");
    check_indices(request, needed.cols, n, "column");
    check_indices(request, entries, operands.batch, "batch entry");
    needed.rows_of_output = places(needed.rows, request.x_part);
    needed.cols_of_output = places(needed.cols, request.w_part);

    const EntryProduct compute(request, kernel, epilogue, out_format);
    std::int64_t left_out = 0;
    std::vector<std::int64_t> shape{std::ssize(needed.rows), std::ssize(needed.cols)};
    Tensor out;
    as_op(request, [&] {
        if (!operands.batched) {
            out = compute(x.reshape({m, k}), w, 0, needed, left_out);
            return;
        }
        shape.insert(shape.begin(), std::ssize(entries));
        out = Tensor(out_format, shape);
        std::size_t at = 0;
        for (const std::int64_t entry : entries) {
            const Tensor one = compute(entry_of(x, entry), entry_of(w, entry), entry, needed, left_out);
            std::memcpy(out.mutable_bytes().data() + at, one.bytes().data(), one.bytes().size());
            at += one.bytes().size();
        }
    });
    if (left_out > 0)
        result.warnings.push_back("op " + request.id + ": kernel " + kernel.recipe->name + " leaves the last " + std::to_string(left_out) +
                                  " of " + std::to_string(k) + " products out (a fault of the recorded library, reproduced)");
    if (!result.selected && !operands.batched && x.rank() != 2) {
        shape = x.shape();
        shape.back() = n;
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
    if (vector.size() != n)
        request.fail(std::string("input ") + name + " must have " + std::to_string(n) + " elements, not " + describe(vector));
    std::vector<std::uint32_t> out(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(convert(vector.format(), fp32, vector.get(i)));
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

std::uint32_t real_parameter(const OpRequest& request, const std::string& name) {
    if (request.params.has(name) && !request.in.contains("c")) request.fail(name + " needs an input c");
    return fp32_from_real(request.params.real(name, 1.0));
}

/// Reads c, alpha and beta, and which epilogue ran. Returns whether the addend is a bias, added by the kernel's own bias
/// epilogue; a bias that cuBLASLt's log does not name was a c: torch expands it and passes beta = 1.
bool read_epilogue(const OpRequest& request, std::int64_t batch, std::int64_t m, std::int64_t n, GemmEpilogue& epilogue) {
    epilogue.alpha = real_parameter(request, "alpha");
    epilogue.beta = real_parameter(request, "beta");
    const bool bias = request.in.contains("bias"), c = request.in.contains("c");
    if (bias && c) request.not_modelled("a bias and a c");
    const std::string wanted = request.params.text("epilogue", "");
    if (!wanted.empty() && wanted != "none" && wanted != "gelu") request.params.fail("epilogue", "must be none or gelu");
    bool gelu = wanted == "gelu", own_bias = bias;
    if (request.cublaslt) {
        const LogEpilogue logged = log_epilogue(*request.cublaslt);
        if (logged.bias && !bias) request.fail("the cuBLASLt log has a bias, the op has none");
        if (!wanted.empty() && logged.gelu != gelu) request.fail("params: epilogue contradicts the cuBLASLt log");
        gelu = logged.gelu;
        own_bias = logged.bias;
    }
    if (gelu) {
        if (!request.gpu.mufu) request.not_modelled("the special functions of gpu " + request.gpu.name);
        epilogue.gelu = &mufu(request.gpu);
    }
    if (bias || c) {
        const Tensor& addend = request.input(bias ? "bias" : "c");
        if (bias && addend.size() != n) request.fail("input bias must have " + std::to_string(n) + " elements, not " + describe(addend));
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
    Operands operands{request.input("x"), request.input("w")};
    const Tensor &x = operands.x, &w = operands.w;
    operands.batched = w.rank() == 3;
    if (!operands.batched) check_matrix(request, w, "w");
    if (operands.batched && (x.rank() != 3 || x.dim(0) != w.dim(0))) request.fail("batches differ: x is " + describe(x) + ", w is " + describe(w));
    if (x.rank() < 1 || x.cols() != w.cols()) request.fail("K differs: x is " + describe(x) + ", w is " + describe(w));
    if (operands.batched) operands.batch = w.dim(0);
    const std::int64_t m = operands.batched ? x.dim(1) : extent(request.x_part, x.rows()), n = operands.batched ? w.dim(1) : extent(request.w_part, w.rows());
    GemmEpilogue epilogue;
    const bool bias = read_epilogue(request, operands.batch, m, n, epilogue);
    return product(request, operands, request.out_format.value_or(x.format()), std::move(epilogue), bias);
}

OpResult run_matmul(const OpRequest& request) {
    constexpr std::array<std::string_view, 3> names{"a", "b", "c?"};
    request.check_inputs(names);
    const bool adds = request.op == "addmm" || request.op == "baddbmm";
    if (adds && !request.in.contains("c")) request.fail("missing input \"c\"");
    Tensor a = request.input("a"), b = request.input("b");
    const auto is_batch = [](const Tensor& t) { return t.rank() > 2; };
    if ((request.op == "bmm" || request.op == "baddbmm") && (a.rank() != 3 || b.rank() != 3)) request.fail("a and b must have three dimensions");
    const bool row = a.rank() == 1, column = b.rank() == 1;
    if (a.rank() == 0 || b.rank() == 0) request.fail("a is " + describe(a) + ", b is " + describe(b));
    if (row) a = a.reshape({1, a.size()});
    if (column) b = b.reshape({b.size(), 1});
    if (a.cols() != b.dim(b.rank() - 2)) request.fail("K differs: a is " + describe(a) + ", b is " + describe(b));
    Operands operands{a, transposed(b)};
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
    OpResult result = product(request, operands, request.out_format.value_or(a.format()), std::move(epilogue), false);
    Tensor& out = result.out[""];
    if (row || column) out = out.reshape(row && column ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{out.size()});
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
    return product(request, {x, w}, *request.out_format, std::move(epilogue), bias);
}

}  // namespace bitreplay
