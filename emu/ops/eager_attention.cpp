#include <algorithm>
#include <array>

#include "emu/attention.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/ops/attention.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "emu/softmax.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

constexpr std::uint32_t masked = 0xFF7F0000;  // the lowest bf16 number, as Hugging Face fills its causal mask

/// Rows [first, first + count) of a [.., cols] tensor, as a matrix that shares its memory.
Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
    const auto row = static_cast<std::size_t>(tensor.cols() * tensor.element_bytes());
    const auto owner = std::make_shared<const Tensor>(tensor);
    return {tensor.format(), {count, tensor.cols()},
            owner->bytes().subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row), owner};
}

bool is_product(const std::string& name) { return match_recipe({name}) != nullptr; }

/// The recorded names of the products: each with what follows it until the next kernel that is not its companion.
std::vector<std::vector<std::string>> product_names(const std::vector<std::string>& names) {
    std::vector<std::vector<std::string>> out;
    bool open = false;
    for (const std::string& name : names) {
        if (is_product(name)) {
            out.push_back({name});
            open = true;
        } else if (open && match_recipe({out.back().front(), name}) != nullptr) {
            out.back().push_back(name);
        } else {
            open = false;
        }
    }
    return out;
}

class Eager {
public:
    explicit Eager(const OpRequest& request)
        : request_(request), q_(request.input("q")), k_(request.input("k")), v_(request.input("v")) {
        if (q_.rank() != 4 || k_.rank() != 4 || k_.shape() != v_.shape() || k_.dim(0) != q_.dim(0) || k_.dim(3) != q_.dim(3) ||
            k_.dim(1) == 0 || q_.dim(1) % k_.dim(1) != 0 || q_.size() == 0 || k_.size() == 0)
            request.fail("q is " + describe(q_) + ", k is " + describe(k_) + ", v is " + describe(v_));
        if (!(q_.format() == bf16)) request.not_modelled("eager attention of " + describe(q_));
        if (!(k_.format() == bf16) || !(v_.format() == bf16)) request.fail("q, k and v must have one format");
        heads_ = q_.dim(1);
        queries_ = q_.dim(2);
        keys_ = k_.dim(2);
        scale_ = attention_scale(request);
        causal_ = request.params.boolean("causal", false);
        scores_ = request.params.object("scores");
        context_ = request.params.object("context");
        request.params.finish();
        if (request.in.contains("mask") && (causal_ || request.input("mask").size() != queries_ * keys_))
            request.fail("a mask has one value per query and key, and excludes causal");
    }

    Tensor run() {
        Tensor out(bf16, q_.shape());
        // Four heads at a time: their first row is on a 16-byte boundary of the whole tensor, which the softmax kernel sees.
        const std::int64_t all = q_.dim(0) * heads_;
        for (std::int64_t first = 0; first < all; first += 4) {
            const std::int64_t count = std::min<std::int64_t>(4, all - first);
            Tensor logits(fp32, {count * queries_, keys_});
            for (std::int64_t h = 0; h < count; ++h) {
                const Tensor raw = product("linear", "scores", scores_, {{"x", query(first + h)}, {"w", rows_of(k_, key_row(first + h), keys_)}},
                                           keys_, q_.cols());
                scale_and_mask(raw, h * queries_, logits);
            }
            const Tensor p = softmax({request_.gpu, logits, bf16});
            for (std::int64_t h = 0; h < count; ++h) {
                const Tensor o = product("matmul", "context", context_,
                                         {{"a", rows_of(p, h * queries_, queries_)}, {"b", rows_of(v_, key_row(first + h), keys_)}},
                                         q_.cols(), keys_);
                const std::size_t at = static_cast<std::size_t>((first + h) * queries_ * q_.cols() * out.element_bytes());
                std::copy(o.bytes().begin(), o.bytes().end(), out.mutable_bytes().begin() + static_cast<std::ptrdiff_t>(at));
            }
        }
        return out;
    }

private:
    Tensor query(std::int64_t head) const { return rows_of(q_, head * queries_, queries_); }
    std::int64_t key_row(std::int64_t head) const {
        const std::int64_t group = heads_ / k_.dim(1);
        return (head / heads_ * k_.dim(1) + head % heads_ / group) * keys_;
    }

    /// n columns, sums over k.
    Tensor product(const std::string& op, const std::string& name, const Params& spec, std::map<std::string, Tensor> in, std::int64_t n,
                   std::int64_t k) {
        OpRequest inner{.id = request_.id + "." + name, .op = op, .gpu = request_.gpu, .kernel = {}, .kernel_names = {}, .params = {},
                        .in = std::move(in), .out_format = bf16, .recorded = {}, .rows = {}, .cols = {}};
        inner.take_kernel(spec);
        if (inner.kernel.empty() && inner.kernel_names.empty()) {
            const auto recorded = product_names(request_.kernel_names);
            if (recorded.size() == 2) inner.kernel_names = recorded[name == "scores" ? 0 : 1];
        }
        if (inner.kernel.empty() && inner.kernel_names.empty()) {
            if (n % 8 != 0 || k % 8 != 0) inner.not_modelled("no kernel was recorded, and its dimensions are not multiples of 8");
            inner.kernel = "cublas.nvjet";
        }
        const OpResult result = find_op(op)(inner);
        return result.out.at(result.main);
    }

    /// logits = bf16(bf16(raw · scale) + mask), as FP32.
    void scale_and_mask(const Tensor& raw, std::int64_t first, Tensor& logits) const {
        const bool mask = causal_ || request_.in.contains("mask");
        const Fp32Kernels& kernels = fp32_kernels();
        parallel_for(queries_, 16, [&](std::int64_t begin, std::int64_t end) {
            const auto n = static_cast<std::size_t>(keys_);
            std::vector<std::uint32_t> row(n), add(n);
            for (std::int64_t i = begin; i < end; ++i) {
                load_fp32(raw, i * keys_, row);
                kernels.mul_scalar(row.data(), scale_, row.data(), n);
                round_through(bf16, row);
                if (mask) {
                    if (causal_)  // aligned to the bottom right corner
                        for (std::int64_t j = 0; j < keys_; ++j) add[static_cast<std::size_t>(j)] = j <= i + keys_ - queries_ ? 0 : masked;
                    else
                        load_fp32(request_.input("mask"), i * keys_, add);
                    kernels.add(row.data(), add.data(), row.data(), n);
                    round_through(bf16, row);
                }
                store_fp32(logits, (first + i) * keys_, row);
            }
        });
    }

    const OpRequest& request_;
    Tensor q_, k_, v_;
    std::int64_t heads_ = 0, queries_ = 0, keys_ = 0;
    std::uint32_t scale_ = 0;
    bool causal_ = false;
    Params scores_, context_;
};

}  // namespace

bool is_eager_attention(const std::vector<std::string>& kernel_names) {
    const auto known = [&](const std::string& name) {
        constexpr std::array<std::string_view, 4> others{"*elementwise_kernel*", "*softmax_warp_forward*", "*cunn_SoftMaxForward*",
                                                         "*splitKreduce_kernel*"};
        return is_product(name) || std::any_of(others.begin(), others.end(), [&](std::string_view glob) { return glob_match(glob, name); });
    };
    const auto softmax_name = [](const std::string& name) {
        return glob_match("*softmax_warp_forward*", name) || glob_match("*cunn_SoftMaxForward*", name);
    };
    return std::all_of(kernel_names.begin(), kernel_names.end(), known) &&
           std::count_if(kernel_names.begin(), kernel_names.end(), softmax_name) == 1 && product_names(kernel_names).size() == 2;
}

OpResult run_eager_attention(const OpRequest& request) {
    OpResult out;
    out.main = "o";
    out.out["o"] = Eager(request).run();
    return out;
}

}  // namespace bitreplay
