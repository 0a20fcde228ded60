// What a manifest recorded: which ops, and which part of an output.

#include "emu/indices.hpp"
#include "emu/replay.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

/// whole[batch][:, rows][:, :, cols].
Tensor sampled_of_batch(const Tensor& whole,
                        const std::vector<std::int64_t>& batch,
                        const std::optional<std::vector<std::int64_t>>& kept_rows,
                        const std::optional<std::vector<std::int64_t>>& kept_cols) {
    if (whole.rank() != 3) throw InputError("batch needs three dimensions, not " + describe(whole));
    const std::vector<std::int64_t> rows = kept_rows ? *kept_rows : all_indices(whole.dim(1)),
                                    cols = kept_cols ? *kept_cols : all_indices(whole.dim(2));
    Tensor out(whole.format(), {std::ssize(batch), std::ssize(rows), std::ssize(cols)});
    std::int64_t at = 0;
    for (const std::int64_t entry : batch)
        for (const std::int64_t row : rows)
            for (const std::int64_t col : cols) {
                if (entry >= whole.dim(0) || row >= whole.dim(1) || col >= whole.dim(2))
                    throw InputError(describe({entry, row, col}) + " is outside " + describe(whole));
                out.set(at++, whole.get((entry * whole.dim(1) + row) * whole.dim(2) + col));
            }
    return out;
}

}  // namespace

std::vector<std::int64_t> sampled_shape(const Outline& whole,
                                        const std::optional<std::vector<std::int64_t>>& rows,
                                        const std::optional<std::vector<std::int64_t>>& cols) {
    std::vector<std::int64_t> shape = whole.shape;
    if (shape.size() < (rows && cols ? 2U : rows || cols ? 1U : 0U))
        throw InputError("rows and cols need a matrix, not " + describe(whole));
    const auto keep = [&](const std::vector<std::int64_t>& kept, std::int64_t& extent, const char* what) {
        for (const std::int64_t i : kept)
            if (i >= extent) throw InputError(what + std::to_string(i) + " is outside " + describe(whole));
        extent = std::ssize(kept);
    };
    if (rows) keep(*rows, shape.front(), "row ");
    if (cols) keep(*cols, shape.back(), "column ");
    return shape;
}

Tensor sampled(const Tensor& whole,
               const std::optional<std::vector<std::int64_t>>& kept_rows,
               const std::optional<std::vector<std::int64_t>>& kept_cols,
               const std::optional<std::vector<std::int64_t>>& batch) {
    if (batch) return sampled_of_batch(whole, *batch, kept_rows, kept_cols);
    if (!kept_rows && !kept_cols) return whole;
    const std::vector<std::int64_t> shape = sampled_shape(outline(whole), kept_rows, kept_cols);
    const std::int64_t width = whole.cols(), height = whole.dim(0),
                       middle = whole.rank() > 1 ? whole.size() / std::max<std::int64_t>(1, width * height) : 1;
    const std::vector<std::int64_t> rows = kept_rows ? *kept_rows : all_indices(height);
    const std::vector<std::int64_t> cols = kept_cols ? *kept_cols : all_indices(width);
    Tensor out(whole.format(), shape);
    if (whole.rank() == 1) {
        const auto& picked = kept_rows ? rows : cols;
        for (std::int64_t i = 0; i < std::ssize(picked); ++i)
            out.set(i, whole.get(picked[static_cast<std::size_t>(i)]));
        return out;
    }
    std::int64_t at = 0;
    for (const std::int64_t row : rows)
        for (std::int64_t m = 0; m < middle; ++m)
            for (const std::int64_t col : cols) out.set(at++, whole.get((row * middle + m) * width + col));
    return out;
}

std::vector<std::string> recorded_op_names(const Manifest& manifest) {
    std::vector<std::string> out;
    for (const ManifestOp& op : manifest.ops) {
        if (op.op != "decoder_layer") {
            if (!op.expect.empty()) out.push_back(op.id);
            continue;
        }
        for (const auto& [stage, expect] : op.expect) out.push_back(op.id + "." + stage);
    }
    return out;
}

}  // namespace bitreplay
