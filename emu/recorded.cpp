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

Tensor sampled(const Tensor& whole,
               const std::optional<std::vector<std::int64_t>>& kept_rows,
               const std::optional<std::vector<std::int64_t>>& kept_cols,
               const std::optional<std::vector<std::int64_t>>& batch) {
    if (batch) return sampled_of_batch(whole, *batch, kept_rows, kept_cols);
    if (!kept_rows && !kept_cols) return whole;
    if (whole.rank() < (kept_rows && kept_cols ? 2U : 1U))
        throw InputError("rows and cols need a matrix, not " + describe(whole));
    std::vector<std::int64_t> shape = whole.shape();
    const std::int64_t width = whole.cols(), height = shape.front(),
                       middle = whole.rank() > 1 ? whole.size() / std::max<std::int64_t>(1, width * height) : 1;
    const std::vector<std::int64_t> rows = kept_rows ? *kept_rows : all_indices(height);
    const std::vector<std::int64_t> cols = kept_cols ? *kept_cols : all_indices(width);
    for (const std::int64_t row : rows)
        if (row >= height) throw InputError("row " + std::to_string(row) + " is outside " + describe(whole));
    for (const std::int64_t col : cols)
        if (col >= width) throw InputError("column " + std::to_string(col) + " is outside " + describe(whole));
    if (kept_rows) shape.front() = std::ssize(rows);
    if (kept_cols) shape.back() = std::ssize(cols);
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
