#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "emu/gemm.hpp"
#include "emu/gemm_filter.hpp"
#include "emu/gemm_pack.hpp"
#include "formats/convert.hpp"

namespace bitreplay {

/// An accumulator (a code of `accumulator`) rounded to nearest even to a code of `out`. fp32 to bf16 and fp16 is fast;
/// a NaN becomes the canonical one.
inline std::uint64_t round_accumulator(const Format& accumulator, const Format& out, std::uint64_t code) {
    if (out == accumulator) return code;
    const std::uint64_t magnitude = code & 0x7FFFFFFFU;
    if (accumulator == fp32 && out == bf16)
        return magnitude > 0x7F800000U ? bf16.canonical_nan() : (code + 0x7FFFU + ((code >> 16) & 1)) >> 16;
    // What rounds to a normal number.
    if (accumulator == fp32 && out == fp16 && magnitude >= 0x38800000U && magnitude < 0x477FF000U)
        return ((magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1)) >> 13) | ((code >> 16) & 0x8000U);
    return convert(accumulator, out, code);
}

/// The outputs at positions rows x cols of the task's lists, by `compute`, rounded into out[rows[i]][cols[j]].
void compute_at(const GemmTask& task,
                std::span<const std::int64_t> rows,
                std::span<const std::int64_t> cols,
                const std::function<Tensor(const GemmTask&)>& compute,
                Tensor& out);

/// The weights of a GemmTask in kernel form, for a caller that multiplies by them again. For gemm_accumulators (engine
/// dense) five bytes per weight; for gemm_rounded (engine filtered) two; engine automatic holds both.
class PackedWeights {
public:
    /// Packs w[cols] of the task (its x and rows do not matter). Holds nothing if no kernel fits the rule.
    explicit PackedWeights(const GemmTask& task);

    const PackedColumns* columns() const noexcept { return columns_ ? &*columns_ : nullptr; }
    const FilterColumns* filter() const noexcept { return filter_ ? &*filter_ : nullptr; }
    std::int64_t bytes() const noexcept {
        return (columns_ ? columns_->bytes() : 0) + (filter_ ? filter_->bytes() : 0);
    }

private:
    std::optional<PackedColumns> columns_;
    std::optional<FilterColumns> filter_;
};

/// Small exact products with a live accumulator, as attention needs them: acc[i][j] <- walk over a[i]·b[j] from
/// acc[i][j]. Falls back to the scalar definition where no kernel fits.
class DotEngine {
public:
    /// One side of a product in kernel form. Refers to the codes, which must outlive it.
    class Operand {
        friend class DotEngine;
        Codes codes_;
        std::optional<PackedRows> rows_;
        std::optional<PackedColumns> columns_;
    };

    DotEngine(const DotRule& rule, int instruction_k, std::string_view kernel = {});

    Operand rows(const Codes& a) const;     ///< codes of rule.types.a
    Operand columns(const Codes& b) const;  ///< codes of rule.types.b, a vector per output column
    /// acc: codes of rule.types.d (= types.c), acc_stride from row to row. a and b have one depth.
    void accumulate(const Operand& a, const Operand& b, std::uint32_t* acc, std::int64_t acc_stride) const;

private:
    WalkLayout layout(std::int64_t depth) const;

    DotRule rule_;
    int instruction_k_;
    std::optional<simd::WalkShape> shape_;
    simd::WalkKernel kernel_ = nullptr;
};

}  // namespace bitreplay
