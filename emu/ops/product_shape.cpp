#include "emu/ops/product_shape.hpp"

#include "formats/error.hpp"

namespace bitreplay {
namespace {

using Outlines = std::map<std::string, Outline>;
using Extents = std::vector<std::int64_t>;

void check_matrix(const char* name, const Outline& what) {
    if (what.shape.size() != 2)
        throw InputError(std::string("input ") + name + " must be a matrix, not " + describe(what));
}

void check_elements(const Outlines& in, const char* name, std::int64_t count) {
    const auto found = in.find(name);
    if (found == in.end() || element_count(found->second.shape) == count) return;
    throw InputError(std::string("input ") + name + " must have " + std::to_string(count) + " elements, not " +
                     describe(found->second));
}

/// A c is broadcast to [batch, M, N].
void check_addend(const Outlines& in, const ProductShape& product) {
    const auto c = in.find("c");
    if (c == in.end()) return;
    const Extents whole{product.n, product.m, product.batch}, &shape = c->second.shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const std::int64_t extent = shape[shape.size() - 1 - i];
        if (extent != 1 && (i >= whole.size() || extent != whole[i]))
            throw InputError("input c: " + describe(c->second) + " does not broadcast to " +
                             describe({product.batch, product.m, product.n}));
    }
}

/// x [..., K] · w [N, K]ᵀ; a w [B, N, K] needs an x [B, M, K].
ProductShape linear_shape(const Outline& x, const Outline& w) {
    ProductShape out{.batched = w.shape.size() == 3, .out = x.shape};
    if (!out.batched) check_matrix("w", w);
    if (out.batched && (x.shape.size() != 3 || x.shape[0] != w.shape[0]))
        throw InputError("batches differ: x is " + describe(x) + ", w is " + describe(w));
    if (x.shape.empty() || x.shape.back() != w.shape.back())
        throw InputError("K differs: x is " + describe(x) + ", w is " + describe(w));
    if (out.batched) out.batch = w.shape[0];
    out.m = out.batched ? x.shape[1] : element_count({x.shape.begin(), x.shape.end() - 1});
    out.n = w.shape[w.shape.size() - 2];
    out.out.back() = out.n;
    return out;
}

/// a [..., M, K] · b [..., K, N]; a vector on either side is a row or a column that the output lacks.
ProductShape matmul_shape(const Outline& a, const Outline& b) {
    if (a.shape.empty() || b.shape.empty()) throw InputError("a is " + describe(a) + ", b is " + describe(b));
    const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
    Extents left = a.shape, right = b.shape;
    if (row) left.insert(left.begin(), 1);
    if (column) right.push_back(1);
    if (left.back() != right[right.size() - 2])
        throw InputError("K differs: a is " + describe(a) + ", b is " + describe(b));
    ProductShape out;
    out.batched = right.size() > 2;
    const Extents lead(left.begin(), left.end() - 2);
    if (out.batched && lead != Extents(right.begin(), right.end() - 2))
        throw NotModelled("a product of " + describe(a) + " and " + describe(b));
    if (out.batched) out.batch = element_count(lead);
    out.m = out.batched ? left[left.size() - 2] : element_count({left.begin(), left.end() - 1});
    out.n = right.back();
    if (row || column) {
        out.out = row && column ? Extents{} : Extents{row ? out.n : out.m};
        return out;
    }
    out.out = left;
    out.out.back() = out.n;
    return out;
}

}  // namespace

std::optional<ProductShape> product_shape(std::string_view op, const Outlines& in) {
    const bool linear = op == "linear" || op == "scaled_linear", adds = op == "addmm" || op == "baddbmm",
               batched = op == "bmm" || op == "baddbmm";
    if (!linear && !adds && !batched && op != "matmul" && op != "mm" && op != "mv") return std::nullopt;
    const auto left = in.find(linear ? "x" : "a"), right = in.find(linear ? "w" : "b");
    if (left == in.end() || right == in.end()) return std::nullopt;
    const Outline &a = left->second, &b = right->second;
    if (batched && (a.shape.size() != 3 || b.shape.size() != 3)) throw InputError("a and b must have three dimensions");
    if (op == "scaled_linear") check_matrix("w", b);
    const ProductShape out = linear ? linear_shape(a, b) : matmul_shape(a, b);
    check_elements(in, "bias", out.n);
    check_addend(in, out);
    const auto is_one = [&](const char* name) {
        const auto found = in.find(name);
        return found == in.end() || element_count(found->second.shape) == 1;
    };
    if (!is_one("x_scale") || !is_one("w_scale")) {  // one scale per row and column, not one per tensor
        check_elements(in, "x_scale", out.m);
        check_elements(in, "w_scale", out.n);
    }
    return out;
}

}  // namespace bitreplay
