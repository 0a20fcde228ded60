#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arch/gpu.hpp"
#include "formats/format.hpp"

namespace bitreplay {

/// A special-function unit (MUFU): reciprocal, roots, powers of two, logarithm, sine, cosine and tanh as one quadratic
/// interpolation in integers, driven by the tables of a file in arch/mufu. Arguments and results are bit patterns; every
/// pattern has an answer, every NaN result is 0x7fffffff. The object is immutable: any number of threads may use it.
/// Source: fitted to, and equal on, all 2^32 inputs of each FP32 form and all 65536 of each 16-bit form on H200.
class Mufu {
public:
    /// A row of a table, its coefficients scaled to the unit of the sum.
    struct Row {
        std::int64_t constant, linear, square;
    };
    /// One table: sum = constant + linear·x + square·S(x), x the `low_bits` low bits of the argument's fraction, S their
    /// truncated square; the value is sum · 2^-sum_fraction.
    struct Curve {
        int low_bits = 0;
        int sum_fraction = 0;
        std::vector<Row> rows;
    };

    /// Reads the text of a file in arch/mufu strictly; InputError names file and key.
    static Mufu parse(std::string_view json, const std::string& file);

    // FP32 in, FP32 out. The _ftz forms take subnormal arguments as zero and flush subnormal results.
    std::uint32_t rcp_ftz(std::uint32_t x) const noexcept;
    std::uint32_t rcp(std::uint32_t x) const noexcept;
    std::uint32_t rsqrt_ftz(std::uint32_t x) const noexcept;
    std::uint32_t rsqrt(std::uint32_t x) const noexcept;
    std::uint32_t sqrt_ftz(std::uint32_t x) const noexcept;
    std::uint32_t sqrt(std::uint32_t x) const noexcept;
    std::uint32_t ex2_ftz(std::uint32_t x) const noexcept;
    std::uint32_t ex2(std::uint32_t x) const noexcept;
    std::uint32_t lg2_ftz(std::uint32_t x) const noexcept;
    std::uint32_t lg2(std::uint32_t x) const noexcept;
    std::uint32_t sin(std::uint32_t x) const noexcept;  ///< sin.approx.f32 and sin.approx.ftz.f32 are the same function
    std::uint32_t cos(std::uint32_t x) const noexcept;  ///< likewise
    std::uint32_t tanh(std::uint32_t x) const noexcept;
    // 16-bit in, 16-bit out: widened exactly, the FP32 function, truncated towards zero; NaN is 0x7fff.
    std::uint32_t ex2_f16(std::uint32_t x) const noexcept;
    std::uint32_t ex2_bf16(std::uint32_t x) const noexcept;
    std::uint32_t tanh_f16(std::uint32_t x) const noexcept;
    std::uint32_t tanh_bf16(std::uint32_t x) const noexcept;

    /// The table of ex2, for vector code.
    const Curve& ex2_curve() const noexcept { return ex2_; }

private:
    struct Binade {
        int row_bits = 0;
        std::uint32_t first_row = 0;
    };
    static constexpr int tanh_min_exponent = -8, tanh_max_exponent = 2;

    std::uint32_t circular(std::uint32_t x, bool cosine) const noexcept;

    Curve rcp_, rsq_even_, rsq_odd_, sqrt_even_, sqrt_odd_, ex2_, lg2_, sin_, tanh_;
    std::array<Binade, tanh_max_exponent - tanh_min_exponent + 1> tanh_binades_{};
};

/// The 15-bit truncated square of the unit: of the partial products b_i·4^i and (b_i∧b_j)·2^(i+j+1) of the `low_bits`-bit
/// number x (16 or 17 bits) it keeps those of weight at least 2^(2·low_bits − 15), and counts them in that unit.
constexpr std::int64_t mufu_square(std::uint32_t x, int low_bits) noexcept {
    // Cut above the lower half (8 or 9 bits): everything inside that half and the upper half's lowest square are dropped,
    // the rest of the upper half is kept, and of the cross products those with i + j at least the width of the lower half.
    const int half = low_bits - 8;
    const std::uint32_t low = x & ((1U << half) - 1), high = x >> half;
    std::uint32_t sum = (high * high) >> 1;
    for (int j = 1; j < 8; ++j) sum += (0U - ((high >> j) & 1U)) & (low >> (half - j));
    return sum;
}

/// A spelling of a special-function instruction.
struct MufuForm {
    std::string_view ptx;  ///< "ex2.approx.ftz.f32"
    Format format;         ///< of argument and result
    std::uint32_t (Mufu::*function)(std::uint32_t) const noexcept;
};

/// Every modelled spelling. The packed .f16x2 and .bf16x2 forms act on each 16-bit half alone.
std::span<const MufuForm> mufu_forms() noexcept;
/// The form of that PTX name; NotModelled for any other text.
const MufuForm& find_mufu_form(std::string_view ptx);

/// The special-function unit of a GPU; NotModelled if its file names no table, InputError if the table does not exist.
const Mufu& mufu(const Gpu& gpu);
/// A built-in table by file name (without .json), its JSON text, and all names.
const Mufu& mufu_table(std::string_view name);
std::string_view mufu_json(std::string_view name);
std::vector<std::string_view> mufu_names();

}  // namespace bitreplay
