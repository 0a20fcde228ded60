#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/tensor.hpp"

namespace bitreplay {

/// A matrix product as the shapes of its inputs say: [M, K] · [K, N], or `batch` of them.
struct ProductShape {
    std::int64_t batch = 1, m = 0, n = 0;  ///< without a batch m is the product of x's leading dimensions
    bool batched = false;                  ///< w (or b) has leading dimensions of its own
    std::vector<std::int64_t> out;         ///< of the output, as torch gives it
};

/// The shape of the op ("linear", "matmul", "addmm", "scaled_linear", ...; nullopt for an op that is no matrix product)
/// from the outlines of its inputs by name; nullopt where one that is needed is not among them. Throws InputError for
/// shapes that contradict each other, its message without the op's name; NotModelled for batches that torch would
/// broadcast.
std::optional<ProductShape> product_shape(std::string_view op, const std::map<std::string, Outline>& in);

}  // namespace bitreplay
