#include <algorithm>
#include <array>
#include <bit>

#include "emu/attention/flash_private.hpp"
#include "emu/gemm_pack.hpp"
#include "emu/simd/flash_rows.hpp"

// The layout is transposed: a tensor-core product is the same with its operands exchanged, so lanes are query rows
// throughout. Scores are K·Qᵀ, outputs Vᵀ·Pᵀ, and what happens between the two is a loop over lanes.
namespace bitreplay::detail {
namespace {

constexpr int rows = simd::flash_rows;
static_assert(rows == simd::panel_columns);
constexpr float minus_infinity = -__builtin_inff();

using Lanes = std::array<float, rows>;

WalkLayout layout(const FlashPack& pack, int instruction_k, std::int64_t depth) {
    Plan plan;
    plan.ranges = {{0, depth}};
    return walk_layout(plan, pack.shape, instruction_k, depth);
}

std::vector<std::int64_t> first_integers(std::int64_t count) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(i);
    return out;
}

bool any_special(const PackedRows& packed) {
    for (std::int64_t i = 0; i < packed.count(); ++i)
        if (packed.special(i)) return true;
    return false;
}

std::int32_t largest_top(const PackedRows& packed) { return *std::max_element(packed.top(0), packed.top(0) + packed.count()); }

int bits_of(std::int64_t count) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count))); }

std::uint32_t code(float x) noexcept { return std::bit_cast<std::uint32_t>(x); }
float from_code(std::uint32_t x) noexcept { return std::bit_cast<float>(x); }

int exponent_of(std::uint32_t x) { return static_cast<int>((x >> 23) & 0xFF) - 127; }

/// The table of ex2 as doubles; every coefficient is far below 2^53.
struct Table {
    std::vector<double> constant, linear, square;
    int low_bits = 0;

    explicit Table(const Mufu& unit) {
        const Mufu::Curve& curve = unit.ex2_curve();
        low_bits = curve.low_bits;
        for (const Mufu::Row& row : curve.rows) {
            constant.push_back(static_cast<double>(row.constant));
            linear.push_back(static_cast<double>(row.linear));
            square.push_back(static_cast<double>(row.square));
        }
    }
};

}  // namespace

struct FlashPack::Packed {
    PackedRows k, v;  // keys; and one row per element of the head dimension
    Table table;
};

FlashPack::~FlashPack() = default;

std::unique_ptr<const FlashPack> FlashPack::make(const FlashProblem& problem,
                                                 std::int64_t kv_row,
                                                 std::int64_t keys,
                                                 const simd::FlashRowKernels* kernels,
                                                 std::string_view walk_name) {
    const std::optional<simd::WalkShape> shape = walk_shape(problem.rule, problem.instruction_k);
    if (kernels == nullptr || problem.math.fast() || !shape || shape->halves) return nullptr;
    auto out = std::unique_ptr<FlashPack>(new FlashPack);
    out->shape = *shape;
    out->walk = simd::find_walk(*shape, walk_name);
    out->kernels = kernels;
    out->kv_row = kv_row;
    const std::int64_t key_tile = problem.plan.tile.key;
    // A positive scale of ordinary size keeps every product and difference of the softmax finite.
    const bool plain_scale = problem.scale_log2 < 0x80000000 && std::abs(exponent_of(problem.scale_log2)) < 100;
    if (out->walk == nullptr || !plain_scale || key_tile % problem.instruction_k != 0) return nullptr;

    const std::int64_t d = problem.k.cols();
    const Format& format = problem.k.format();
    const auto codes = [&](const Tensor& tensor, bool transposed) {
        const std::byte* data = tensor.bytes().data() + kv_row * d * tensor.element_bytes();
        return transposed ? Codes{data, format, d, keys, 1, d} : Codes{data, format, keys, d, d, 1};
    };
    out->packed = std::unique_ptr<const Packed>(
        new Packed{PackedRows(codes(problem.k, false), problem.rule.unit_a, layout(*out, problem.instruction_k, d), first_integers(keys)),
                   PackedRows(codes(problem.v, true), problem.rule.unit_a, layout(*out, problem.instruction_k, keys), first_integers(d)),
                   Table(problem.math.unit())});
    const Packed& packed = *out->packed;
    if (any_special(packed.k) || any_special(packed.v)) return nullptr;
    if (largest_top(packed.v) + 2 + bits_of(keys) > simd::safe_exponent - 2) return nullptr;
    return out;
}

namespace {

/// One panel of at most 64 query rows of a thread block.
class Panel {
public:
    Panel(const FlashProblem& problem, const FlashBlock& block, const FlashPack& pack, std::int64_t first_row)
        : problem_(problem),
          block_(block),
          pack_(pack),
          first_row_(first_row),
          count_(std::min<std::int64_t>(rows, block.rows - first_row)),
          d_(problem.q.cols()),
          q_(codes(), problem.rule.unit_b, layout(pack, problem.instruction_k, d_), first_integers(count_)) {}

    /// Whether the fast path may compute this panel.
    bool safe() const {
        for (std::int64_t r = 0; r < count_; ++r)
            if (q_.special(r)) return false;
        const int score = largest_top(pack_.packed->k) + q_.top(0) + 2 + bits_of(d_);
        return score <= simd::safe_exponent && score + exponent_of(problem_.scale_log2) < 100;
    }

    /// False if only the scalar definition can tell what the kernel computes.
    bool run(std::span<std::uint32_t> o, std::span<std::uint32_t> lse) {
        const std::int64_t tile_keys = problem_.plan.tile.key;
        output_.assign(static_cast<std::size_t>(d_ * rows), 0.0F);
        scores_.resize(static_cast<std::size_t>(tile_keys * rows));
        exponents_.resize(scores_.size());
        max_.fill(minus_infinity);
        for (std::int64_t n = 0; n < block_.last_tile - block_.first_tile; ++n)
            if (!step((problem_.cudnn ? block_.first_tile + n : block_.last_tile - 1 - n) * tile_keys)) return false;
        finish(o, lse);
        return !problem_.cudnn || (std::none_of(o.begin(), o.end(), is_subnormal_bits) && std::none_of(lse.begin(), lse.end(), is_subnormal_bits));
    }

private:
    Codes codes() const {
        const Tensor& q = problem_.q;
        const std::int64_t at = (block_.q_row + first_row_) * d_ * q.element_bytes();
        return {q.bytes().data() + at, q.format(), count_, d_, d_, 1};
    }

    std::pair<std::int64_t, std::int64_t> visible(std::int64_t row) const {
        return visible_keys(problem_.plan, block_, block_.position + first_row_ + std::min(row, count_ - 1));
    }

    bool step(std::int64_t first_key) {
        const std::int64_t tile_keys = problem_.plan.tile.key;
        const std::int64_t end = std::min(first_key + tile_keys, block_.keys);
        // Visible keys move along with the rows: the first row has the earliest, the last row the latest.
        const std::int64_t from = std::max(first_key, visible(0).first), to = std::min(end, visible(count_ - 1).second);
        // Nothing was accumulated yet and no row sees this tile: every state stays as it is.
        if (!started_ && from >= to) return true;

        std::fill(scores_.begin(), scores_.end(), minus_infinity);
        if (from < to) {
            float* const scores = scores_.data() + (from - first_key) * rows;
            std::fill_n(scores, (to - from) * rows, 0.0F);
            const PackedRows& k = pack_.packed->k;
            const std::int64_t offset = block_.kv_row - pack_.kv_row + from;
            pack_.walk({&pack_.shape, k.values(offset), k.scale(offset), k.top(offset), k.depth(), q_.values(0), q_.scale(0), q_.top(0),
                        to - from, k.depth() / pack_.shape.block, static_cast<int>(count_), scores, rows});
            mask(first_key, from, to);
        }
        if (problem_.cudnn) {
            if (!softmax_cudnn()) return false;
        } else {
            softmax();
        }
        accumulate(first_key, end);
        started_ = true;
        return true;
    }

    void mask(std::int64_t first_key, std::int64_t from, std::int64_t to) {
        if (visible(count_ - 1).first <= from && visible(0).second >= to) return;
        for (std::int64_t r = 0; r < rows; ++r) {
            const auto [row_from, row_to] = visible(r);
            for (std::int64_t key = from; key < to; ++key)
                if (key < row_from || key >= row_to) scores_[static_cast<std::size_t>((key - first_key) * rows + r)] = minus_infinity;
        }
    }

    void softmax() {
        const simd::FlashRowKernels& kernel = *pack_.kernels;
        const std::int64_t tile_keys = problem_.plan.tile.key;
        const simd::Ex2Table table = ex2_table();
        const auto scale = std::bit_cast<float>(problem_.scale_log2);
        const Lanes old = max_;
        kernel.column_max(scores_.data(), tile_keys, max_.data());
        Lanes rescale;
        if (started_) {
            kernel.rescale_arguments(old.data(), max_.data(), scale, rescale.data());
            kernel.exp2(rescale.data(), 1, table);
            kernel.multiply(output_.data(), d_, rescale.data());
        }
        kernel.arguments(scores_.data(), tile_keys, max_.data(), scale);
        kernel.exp2(scores_.data(), tile_keys, table);
        kernel.add_sums(scores_.data(), tile_keys, started_ ? rescale.data() : nullptr, sums_[0].data());
        round_probabilities();
    }

    /// The same for cuDNN's kernels, see cudnn_block_scalar; false where that would find a value that no capture covers.
    bool softmax_cudnn() {
        const simd::FlashRowKernels& kernel = *pack_.kernels;
        const FlashMath& math = problem_.math;
        const std::int64_t tile_keys = problem_.plan.tile.key;
        const simd::Ex2Table table = ex2_table();
        const auto uncovered = [](float x) { return x < -126.0F && x != minus_infinity; };
        Lanes scale;
        scale.fill(std::bit_cast<float>(problem_.scale));
        if (scale[0] != 1.0F) kernel.multiply(scores_.data(), tile_keys, scale.data());
        const Lanes old = max_;
        kernel.column_max(scores_.data(), tile_keys, max_.data());
        Lanes rescale{};
        if (started_) {
            for (std::size_t r = 0; r < rows; ++r)
                rescale[r] = from_code(math.sub(math.mul(code(old[r]), problem_.scale_log2), math.mul(code(max_[r]), problem_.scale_log2)));
            if (std::any_of(rescale.begin(), rescale.end(), uncovered)) return false;
            kernel.exp2(rescale.data(), 1, table);
            kernel.multiply(output_.data(), d_, rescale.data());
            if (std::any_of(output_.begin(), output_.end(), [](float x) { return is_subnormal_bits(code(x)); })) return false;
        }
        kernel.arguments(scores_.data(), tile_keys, max_.data(), std::bit_cast<float>(problem_.scale_log2));
        if (std::any_of(scores_.begin(), scores_.end(), uncovered)) return false;
        kernel.exp2(scores_.data(), tile_keys, table);
        std::array<Lanes, 4> tile_sums;
        kernel.add_sums(scores_.data(), tile_keys, nullptr, tile_sums[0].data());
        for (std::size_t t = 0; t < 4; ++t)
            for (std::size_t r = 0; r < rows; ++r)
                sums_[t][r] = from_code(math.fma(code(sums_[t][r]), code(rescale[r]), code(tile_sums[t][r])));
        round_probabilities();
        return true;
    }

    void round_probabilities() {
        const simd::FlashRowKernels& kernel = *pack_.kernels;
        (problem_.q.format() == bf16 ? kernel.round_bf16 : kernel.round_fp16)(scores_.data(), problem_.plan.tile.key, exponents_.data());
    }

    simd::Ex2Table ex2_table() const {
        const Table& table = pack_.packed->table;
        return {table.constant.data(), table.linear.data(), table.square.data(), table.low_bits};
    }

    void accumulate(std::int64_t first_key, std::int64_t end) {
        const PackedRows& v = pack_.packed->v;
        const std::int64_t block = pack_.shape.block;
        const std::int64_t offset = block_.kv_row - pack_.kv_row + first_key;
        // Keys beyond the last are zero in v's filler (sequences of a variable-length call are packed apart).
        const std::int64_t blocks = (end - first_key + block - 1) / block;
        pack_.walk({&pack_.shape, v.values(0) + offset, v.scale(0) + offset, v.top(0), v.depth(), scores_.data(), exponents_.data(), 0, d_,
                    blocks, static_cast<int>(count_), output_.data(), rows});
    }

    void finish(std::span<std::uint32_t> o, std::span<std::uint32_t> lse) {
        const FlashMath& math = problem_.math;
        Lanes factor;
        factor.fill(1.0F);
        for (std::size_t r = 0; r < static_cast<std::size_t>(count_); ++r) {
            std::uint32_t& out = lse[static_cast<std::size_t>(first_row_) + r];
            if (problem_.cudnn) {
                const std::uint32_t sum = cudnn_total(math, code(sums_[0][r]), code(sums_[1][r]), code(sums_[2][r]), code(sums_[3][r]));
                factor[r] = from_code(math.unit().rcp_ftz(sum));
                out = cudnn_lse(problem_, code(max_[r]), sum);
                continue;
            }
            const std::uint32_t total = math.add(math.add(code(sums_[0][r]), code(sums_[2][r])), math.add(code(sums_[1][r]), code(sums_[3][r])));
            out = problem_.partial ? 0xFF800000 : 0x7F800000;
            if (total == 0) continue;  // no key was visible; sums are neither negative nor NaN here
            factor[r] = from_code(math.reciprocal(total));
            out = math.fma(code(max_[r]), problem_.scale, math.fast_log(total));
        }
        pack_.kernels->multiply(output_.data(), d_, factor.data());
        for (std::int64_t r = 0; r < count_; ++r)
            for (std::int64_t i = 0; i < d_; ++i)
                o[static_cast<std::size_t>((first_row_ + r) * d_ + i)] = code(output_[static_cast<std::size_t>(i * rows + r)]);
    }

    const FlashProblem& problem_;
    const FlashBlock& block_;
    const FlashPack& pack_;
    std::int64_t first_row_, count_, d_;
    PackedColumns q_;
    std::vector<float> output_, scores_;   // [d][rows] and [keys][rows]; the latter become probabilities
    std::vector<std::int8_t> exponents_;
    std::array<Lanes, 4> sums_{};
    Lanes max_{};
    bool started_ = false;
};

}  // namespace

bool flash_block_fast(const FlashProblem& problem,
                      const FlashBlock& block,
                      const FlashPack& pack,
                      std::span<std::uint32_t> o,
                      std::span<std::uint32_t> lse) {
    for (std::int64_t first = 0; first < block.rows; first += rows) {
        Panel panel(problem, block, pack, first);
        if (!panel.safe()) return false;
        if (!panel.run(o, lse)) return false;
    }
    return true;
}

}  // namespace bitreplay::detail
