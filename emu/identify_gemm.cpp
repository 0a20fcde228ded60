// Matrix products: which outputs tell candidates apart, and how many of them a candidate gets wrong.

#include <algorithm>
#include <bit>
#include <cmath>

#include "emu/identify_private.hpp"
#include "emu/indices.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay::detail {
namespace {

/// A matrix product given as x [M, K] and w [N, K] and its epilogue's inputs.
class GemmSearch : public Search {
public:
    GemmSearch(const RecordedOp& op, const IdentifyOptions& options)
        : recorded_(op.outputs.front()), options_(options), request_(plain(op.request)) {
        x_ = &request_.input("x");
        w_ = &request_.input("w");
        if (w_->rank() != 2 || x_->rank() < 1 || x_->cols() != w_->cols() || x_->cols() == 0)
            throw InputError("op " + op.name + ": x is " + describe(*x_) + ", w is " + describe(*w_));
        rows_ = request_.rows ? *request_.rows : all_indices(x_->rows());
        cols_ = request_.cols ? *request_.cols : all_indices(w_->rows());
        if (rows_.empty() || cols_.empty()) throw InputError("op " + op.name + ": its output has no elements");
        if (recorded_.sha256.empty() && recorded_.values.size() != std::ssize(rows_) * std::ssize(cols_))
            throw InputError("op " + op.name + ": computed [" + std::to_string(rows_.size()) + ", " +
                             std::to_string(cols_.size()) + "], recorded " + describe(recorded_.values));
        if (recorded_.sha256.empty()) request_.out_format = recorded_.values.format();
    }

    CandidateList candidates() override {
        CandidateList list;
        add_gemm_candidates(request_, options_, list);
        if (!list.named()) throw NotModelled("no recipe, GPU and parameters go together for this op");
        choose_telling(list);
        return list;
    }

    Score telling(const CandidateName& name, std::size_t batch) override {
        if (batch >= telling_.size()) return {};
        return compare_part(name, telling_[batch].rows, telling_[batch].cols);
    }

    void left(std::size_t candidates) override {
        const std::int64_t m = std::ssize(rows_), n = std::ssize(cols_);
        constexpr std::int64_t about_a_second = 400'000'000;  // products
        constexpr std::int64_t many = 8;                      // candidates; more of them share the time
        const std::int64_t share = std::max<std::int64_t>(1, static_cast<std::int64_t>(candidates) / many);
        std::int64_t budget = std::max<std::int64_t>(512, about_a_second / x_->cols() / share);
        if (options_.max_compared != 0) budget = options_.max_compared < 0 ? m * n : options_.max_compared;
        const std::int64_t columns = std::clamp<std::int64_t>(budget / std::min<std::int64_t>(m, 64), 1, n);
        final_ = {spread(m, std::max<std::int64_t>(1, budget / columns)), spread(n, columns)};
    }

    Score full(const CandidateName& name) override { return compare_part(name, final_.rows, final_.cols); }

private:
    /// Positions within rows_ and cols_.
    struct Part {
        std::vector<std::int64_t> rows, cols;
    };

    /// Up to `count` of [0, extent), spread evenly, first and last included.
    static std::vector<std::int64_t> spread(std::int64_t extent, std::int64_t count) {
        if (count >= extent) return all_indices(extent);
        std::vector<std::int64_t> out;
        for (std::int64_t i = 0; i < count; ++i) out.push_back(count == 1 ? 0 : i * (extent - 1) / (count - 1));
        return out;
    }

    /// a·b as x·wᵀ, so that b is transposed once.
    static OpRequest plain(const OpRequest& request) {
        OpRequest out = request;
        if (request.in.contains("w")) {
            if (request.input("w").rank() > 2) request.not_modelled("identify of a batched product");
            return out;
        }
        const Tensor& b = request.input("b");
        if (b.rank() != 2) request.fail("input b must be a matrix, not " + describe(b));
        Tensor w(b.format(), {b.dim(1), b.dim(0)});
        for (std::int64_t n = 0; n < b.dim(1); ++n)
            for (std::int64_t k = 0; k < b.dim(0); ++k) w.set(n * b.dim(0) + k, b.get(k * b.dim(1) + n));
        out.op = "linear";
        out.in = {{"x", request.input("a")}, {"w", w}};
        if (request.in.contains("c")) out.in.emplace("c", request.input("c"));
        return out;
    }

    /// Which outputs are compared. With a narrow output type most outputs are the same in any order; those tell whose
    /// unrounded value, computed under one of the candidates, lies closest to where the rounding tips over.
    void choose_telling(const CandidateList& list) {
        const std::int64_t m = std::ssize(rows_), n = std::ssize(cols_);
        // Few columns at a time: most candidates die of the first few, and reading a column costs more than multiplying
        // it.
        constexpr std::int64_t some_rows = 16, per_row = 16, per_batch = 4;
        const std::vector<std::int64_t> rows = spread(m, some_rows), cols = spread(n, 4096 / std::ssize(rows));
        const Format& narrow = recorded_.values.format();
        const Tensor exact = narrow.storage_bits() < 32 ? unrounded(list, rows, cols) : Tensor(fp32, {0});
        std::vector<std::vector<std::int64_t>> by_row;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (exact.size() == 0) {
                by_row.push_back(spread(n, per_row));
                continue;
            }
            std::vector<std::pair<double, std::int64_t>> by_distance;
            for (std::size_t j = 0; j < cols.size(); ++j)
                by_distance.emplace_back(distance(exact.get(static_cast<std::int64_t>(i * cols.size() + j))), cols[j]);
            std::sort(by_distance.begin(), by_distance.end());
            by_row.emplace_back();
            for (std::size_t j = 0; j < std::min<std::size_t>(by_distance.size(), per_row); ++j)
                by_row.back().push_back(by_distance[j].second);
        }
        for (std::int64_t first = 0; first < per_row; first += per_batch)
            for (std::size_t i = 0; i < rows.size(); ++i) {
                const std::int64_t last = std::min(first + per_batch, std::ssize(by_row[i]));
                if (first < last)
                    telling_.push_back({{rows[i]}, {by_row[i].begin() + first, by_row[i].begin() + last}});
            }
    }

    Tensor unrounded(const CandidateList& list,
                     const std::vector<std::int64_t>& rows,
                     const std::vector<std::int64_t>& cols) const {
        for (const Candidate& candidate : list.all()) {
            OpRequest request = with_candidate(request_, candidate.names.front());
            request.out_format = fp32;
            request.rows = picked(rows_, rows);
            request.cols = picked(cols_, cols);
            try {
                return find_op(request.op)(request).out.at("");
            } catch (const NotModelled&) {
                continue;
            }
        }
        return Tensor(fp32, {0});
    }

    /// How far an unrounded value is from the nearest value at which the recorded type's rounding changes.
    double distance(std::uint64_t code) const {
        const Format& narrow = recorded_.values.format();
        const auto value = [](const Format& format, std::uint64_t bits) {
            return std::bit_cast<double>(convert(format, fp64, bits));
        };
        const std::uint64_t down = convert(fp32, narrow, code, {.rounding = Rounding::down}),
                            up = convert(fp32, narrow, code, {.rounding = Rounding::up});
        const double x = value(fp32, code), middle = (value(narrow, down) + value(narrow, up)) / 2;
        // An exactly representable value is half a step away from both sides.
        const double d = down == up ? HUGE_VAL : std::abs(x - middle);
        return std::isnan(d) ? HUGE_VAL : d;
    }

    static std::vector<std::int64_t> picked(const std::vector<std::int64_t>& from,
                                            const std::vector<std::int64_t>& positions) {
        std::vector<std::int64_t> out;
        for (const std::int64_t i : positions) out.push_back(from[static_cast<std::size_t>(i)]);
        return out;
    }

    Score compare_part(const CandidateName& name,
                       const std::vector<std::int64_t>& rows,
                       const std::vector<std::int64_t>& cols) const {
        OpRequest request = with_candidate(request_, name);
        request.rows = picked(rows_, rows);
        request.cols = picked(cols_, cols);
        const Tensor actual = find_op(request.op)(request).out.at("");
        RecordedOutput part = recorded_;
        part.values = Tensor(recorded_.values.format(), {std::ssize(rows), std::ssize(cols)});
        std::int64_t at = 0;
        for (const std::int64_t row : rows)
            for (const std::int64_t col : cols)
                part.values.set(at++, recorded_.values.get(row * std::ssize(cols_) + col));
        return score(part, actual);
    }

    const RecordedOutput& recorded_;
    const IdentifyOptions& options_;
    OpRequest request_;
    const Tensor *x_ = nullptr, *w_ = nullptr;
    std::vector<std::int64_t> rows_, cols_;  // of the output: what was recorded
    std::vector<Part> telling_;
    Part final_;
};

}  // namespace

std::unique_ptr<Search> gemm_search(const RecordedOp& op, const IdentifyOptions& options) {
    return std::make_unique<GemmSearch>(op, options);
}

}  // namespace bitreplay::detail
