#include "emu/ops/gemm_product.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "arch/dot.hpp"
#include "arch/fp32.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/gemm.hpp"
#include "emu/indices.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "emu/ops/torch_private.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

void check_indices(const OpRequest& request,
                   std::span<const std::int64_t> indices,
                   std::int64_t count,
                   const char* what) {
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
    return {
        batch.format(), {rows, cols}, owner->bytes().subspan(static_cast<std::size_t>(entry) * bytes, bytes), owner};
}

/// alpha·x, rounded to FP32, or to FP64 where x is.
Tensor scaled(double factor, const Tensor& x) {
    if (x.format() == fp64) {
        Tensor out(fp64, x.shape());
        const auto alpha = std::bit_cast<std::uint64_t>(factor);
        parallel_for(x.rows(), 16, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t i = first * x.cols(); i < last * x.cols(); ++i) out.set(i, f64::mul(x.get(i), alpha));
        });
        return out;
    }
    const std::uint32_t alpha = fp32_from_real(factor);
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

    Tensor operator()(
        const Tensor& x, const Tensor& w, std::int64_t entry, const Needed& needed, std::int64_t& left_out) const {
        const std::int64_t m = request_.x_part ? request_.x_part->of : x.rows(),
                           n = request_.w_part ? request_.w_part->of : w.rows();
        const std::vector<OutputRegion> regions = output_regions(*kernel_.recipe, kernel_.values, m, n);
        const Tensor a = rounded_to(kernel_.rule->types.a, x), b = rounded_to(kernel_.rule->types.b, w);
        const auto plan = [&](const OutputRegion& where) { return plan_of(kernel_, where, x.cols()); };
        if (regions.size() == 1) return region(a, b, entry, needed, plan(regions.front()), left_out);
        Tensor out(result_, {std::ssize(needed.rows), std::ssize(needed.cols)});
        for (const OutputRegion& where : regions) {
            Needed inside;
            const std::vector<std::int64_t> rows =
                pick(needed.rows, needed.rows_of_output, where.rows, inside.rows, inside.rows_of_output);
            const std::vector<std::int64_t> cols =
                pick(needed.cols, needed.cols_of_output, where.cols, inside.cols, inside.cols_of_output);
            if (rows.empty() || cols.empty()) continue;
            const Tensor part = region(a, b, entry, inside, plan(where), left_out);
            std::int64_t at = 0;
            for (const std::int64_t i : rows)
                for (const std::int64_t j : cols) out.set(i * out.cols() + j, part.get(at++));
        }
        return out;
    }

private:
    /// Copies the positions and places that lie in `range`; returns where they stood.
    static std::vector<std::int64_t> pick(const std::vector<std::int64_t>& positions,
                                          const std::vector<std::int64_t>& of_output,
                                          const Range& range,
                                          std::vector<std::int64_t>& picked,
                                          std::vector<std::int64_t>& picked_of_output) {
        std::vector<std::int64_t> out;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            if (of_output[i] < range.begin || of_output[i] >= range.end) continue;
            picked.push_back(positions[i]);
            picked_of_output.push_back(of_output[i]);
            out.push_back(static_cast<std::int64_t>(i));
        }
        return out;
    }

    Tensor region(const Tensor& x,
                  const Tensor& w,
                  std::int64_t entry,
                  const Needed& needed,
                  const Plan& plan,
                  std::int64_t& left_out) const {
        left_out = std::max(left_out, x.cols() - covered(plan));
        GemmTask task{*kernel_.rule, kernel_.instruction_k, plan, x, w, result_, needed.rows, needed.cols};
        // Without an epilogue the accumulator is only rounded: narrower fp16 accumulators pass through fp32 exactly.
        if (epilogue_.empty()) return gemm_rounded(task, result_);
        const EpiloguePlace place{entry, needed.rows_of_output, needed.cols_of_output};
        std::vector<Tensor> parts;
        if (epilogue_.starts_from_c()) {
            GemmEpilogue rest = epilogue_;
            rest.addend = {};
            rest.orders.clear();
            parts.push_back(outer_product(task, place));
            return apply_epilogue(rest, parts, place, result_);
        }
        if (!epilogue_.needs_parts() || plan.kind == Plan::Kind::walk) {
            parts.push_back(gemm_accumulators(task));
            return apply_epilogue(epilogue_, parts, place, result_);
        }
        constexpr Merge serial{.order = Merge::Order::first_to_last,
                               .from_zero = false,
                               .parts = Merge::Precision::accumulator,
                               .sums = Merge::Precision::result};
        if (!(plan.merge == serial)) throw NotModelled("an addend in the first part of kernel " + kernel_.recipe->name);
        for (const Plan& part : plan.parts) {
            const GemmTask one{*kernel_.rule, kernel_.instruction_k, part, x, w, result_, needed.rows, needed.cols};
            parts.push_back(gemm_accumulators(one));
        }
        return apply_epilogue(epilogue_, parts, place, result_);
    }

    /// fma(x, w, beta·c) of one product per output.
    Tensor outer_product(const GemmTask& task, const EpiloguePlace& place) const {
        if (task.x.cols() != 1) throw NotModelled("a sum from beta·c of kernel " + kernel_.recipe->name);
        Tensor out(fp32, {std::ssize(task.rows), std::ssize(task.cols)});
        const auto factor = [](const Tensor& side, std::int64_t i) { return static_cast<std::uint32_t>(convert(side.format(), fp32, side.get(i))); };
        std::int64_t at = 0;
        for (std::size_t i = 0; i < task.rows.size(); ++i)
            for (std::size_t j = 0; j < task.cols.size(); ++j) {
                const auto c = static_cast<std::uint32_t>(epilogue_.addend.at(place.entry, place.rows[i], place.cols[j]));
                out.set(at++, f32::fma(factor(task.x, task.rows[i]), factor(task.w, task.cols[j]), f32::mul(fp32_from_real(epilogue_.beta), c)));
            }
        return out;
    }

    const OpRequest& request_;
    const GemmKernel& kernel_;
    const GemmEpilogue& epilogue_;
    const Format& result_;
};

bool fp64_on_cuda_cores(const GemmKernel& kernel) {
    return kernel.rule->family == "cuda_core" && kernel.rule->types.d == fp64;
}

/// No capture of FP64 on CUDA cores shows which NaN comes out, or when a zero is negative.
void refuse_unproved_codes(const OpRequest& request, const Tensor& out) {
    for (std::int64_t i = 0; i < out.size(); ++i) {
        const std::uint64_t code = out.get(i);
        if (is_nan(out.format(), code) || code == out.format().sign_mask())
            request.not_modelled("a NaN or -0 as the result of an FP64 product on CUDA cores");
    }
}

/// What to record so that more is known of the kernel; nothing if all of it was.
std::string what_to_record(const OpRequest& request) {
    if (request.kernel_names.empty()) return ": record its kernel names (\"kernel_names\")";
    if (!request.cublaslt) return ": record cuBLASLt's log line of it (\"cublaslt\", CUBLASLT_LOG_LEVEL=5)";
    return "";
}

/// Checks the addend against what the recipe says and fills in how it is added.
void choose_orders(const OpRequest& request, const GemmKernel& kernel, bool is_bias, GemmEpilogue& epilogue) {
    const Recipe& recipe = *kernel.recipe;
    epilogue.math = kernel.rule->types.d;
    const auto activates = [&](const std::string& name) { return any_glob_match(recipe.activation_kernels, name); };
    const std::vector<std::string>& names = request.kernel_names;
    if (epilogue.gelu == nullptr && !epilogue.relu && !request.cublaslt &&
        std::any_of(names.begin(), names.end(), activates))
        request.not_modelled("kernel " + recipe.name + ": its name tells of an activation, but not which" + what_to_record(request) +
                             ", or say it in params (\"epilogue\")");
    if (!epilogue.addend.empty() && !is_bias && epilogue.beta == 0)
        request.not_modelled("kernel " + recipe.name + " with beta = 0");
    RecipeValues values = kernel.values;
    if (epilogue.gelu != nullptr) {
        values["gelu"] = std::int64_t{1};
        epilogue.gelu_in_kernel = any_applies(recipe.gelu_in_kernel, values);
        if (!(epilogue.gelu_in_kernel || any_applies(recipe.gelu, values)) || !(epilogue.math == fp32))
            request.not_modelled("kernel " + recipe.name + " with GELU" + what_to_record(request));
    }
    if ((epilogue.gelu != nullptr || epilogue.relu) && (epilogue.addend.empty() || !is_bias))
        request.not_modelled("kernel " + recipe.name + " with GELU or RELU but no bias");
    if (epilogue.relu && fp64_on_cuda_cores(kernel)) request.not_modelled("kernel " + recipe.name + " with RELU");
    if (epilogue.addend.empty()) return;
    if (is_bias) {
        const RecipeBias* bias = find_bias(recipe, values);
        if (bias == nullptr) request.not_modelled("kernel " + recipe.name + " with a bias" + what_to_record(request));
        epilogue.bias = bias->add;
        return;
    }
    const RecipeAddend* addend = find_addend(recipe, values);
    if (addend == nullptr) request.not_modelled("kernel " + recipe.name + " with an addend c" + what_to_record(request));
    epilogue.orders = addend->orders;
    for (const RecipeAddend::Order order : addend->orders) {
        const bool alpha = order != RecipeAddend::Order::first_part || epilogue.alpha == 1;
        const bool beta = (order != RecipeAddend::Order::first_part && order != RecipeAddend::Order::rounded) ||
                          epilogue.beta == 1;
        if (!alpha || !beta) request.not_modelled("kernel " + recipe.name + " with these alpha and beta");
    }
}

/// Multiplies alpha into x; into w where that is the vector of a matrix-vector product, or c starts the sum.
void scale_operand(const OpRequest& request, const GemmEpilogue& epilogue, GemmKernel& kernel, Tensor& x, Tensor& w) {
    const std::int64_t m = request.x_part ? request.x_part->of : x.dim(x.rank() - 2),
                       n = request.w_part ? request.w_part->of : w.dim(w.rank() - 2);
    const bool vector = epilogue.orders.front() == RecipeAddend::Order::alpha_vector;
    if (vector && m == 1 && n == 1 && epilogue.alpha != 1)
        request.not_modelled("kernel " + kernel.recipe->name + " with an alpha and two vectors");
    Tensor& side = epilogue.starts_from_c() || (vector && n == 1) ? w : x;
    side = scaled(epilogue.alpha, side);
    kernel.rule = cuda_core_rule(x.format(), w.format());
}

}  // namespace

Tensor rounded_to(const Format& format, const Tensor& x) {
    if (x.format() == format) return x;
    Tensor out(format, x.shape());
    parallel_for(x.rows(), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first * x.cols(); i < last * x.cols(); ++i)
            out.set(i, convert(x.format(), format, x.get(i)));
    });
    return out;
}

OpResult gemm_product(const OpRequest& request,
                      const GemmOperands& operands,
                      const Format& out_format,
                      GemmEpilogue epilogue,
                      bool is_bias) {
    Tensor x = operands.x;
    Tensor w = operands.w;
    const std::int64_t k = x.cols();
    if (k == 0) request.fail("K is 0");
    GemmKernel kernel = choose_gemm_kernel(request, x.format(), w.format(), k);
    choose_orders(request, kernel, is_bias, epilogue);
    if (epilogue.scales_operand()) scale_operand(request, epilogue, kernel, x, w);
    request.params.finish();

    OpResult result;
    // Without a batch, the rows of an output [B, M, N] name its first dimension: then, as where a batch is named of
    // folded rows, everything is computed and the caller selects.
    const bool whole = (request.rows || request.cols || request.batch) && operands.batched != request.batch.has_value();
    result.selected = !whole && (request.rows || request.cols || request.batch);
    const std::int64_t m = operands.batched ? x.dim(x.rank() - 2) : x.rows(), n = w.dim(w.rank() - 2);
    const bool rows = request.rows && !whole, cols = request.cols && !whole;
    Needed needed{rows ? *request.rows : all_indices(m), cols ? *request.cols : all_indices(n), {}, {}};
    const std::vector<std::int64_t> entries = request.batch && !whole ? *request.batch : all_indices(operands.batch);
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
    if (fp64_on_cuda_cores(kernel)) refuse_unproved_codes(request, out);
    if (left_out > 0)
        result.warnings.push_back("op " + request.id + ": kernel " + kernel.recipe->name + " leaves the last " +
                                  std::to_string(left_out) + " of " + std::to_string(k) +
                                  " products out (a fault of the recorded library, reproduced)");
    if (!result.selected && !operands.batched && x.rank() != 2) {
        shape = x.shape();
        shape.back() = n;
        out = out.reshape(std::move(shape));
    }
    result.out[""] = std::move(out);
    return result;
}

}  // namespace bitreplay
