#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace bitreplay {

/// What the codes with the largest exponent field mean.
enum class Specials : std::uint8_t {
    ieee,           ///< all-ones exponent: infinity (fraction 0) and NaN
    nan_only,       ///< only the all-ones code (either sign) is NaN; no infinity (OCP E4M3)
    none,           ///< every code is a finite number (OCP FP6 and FP4)
    exponent_only,  ///< unsigned power of two, no zero, no subnormals, all-ones is NaN (OCP E8M0)
};

/// A binary floating-point format. Everything else (bias, masks, limits) is derived from these five values.
/// Bit patterns are right-aligned in a uint64_t: sign, exponent field, fraction, padding (low bits that the
/// format ignores: a tf32 operand is stored in 32 bits and hardware reads the upper 19).
struct Format {
    int exponent_bits;
    int fraction_bits;
    Specials specials = Specials::ieee;
    bool is_signed = true;
    int padding_bits = 0;

    constexpr bool operator==(const Format&) const = default;

    constexpr int bias() const noexcept { return (1 << (exponent_bits - 1)) - 1; }
    constexpr int max_field() const noexcept { return (1 << exponent_bits) - 1; }
    constexpr bool has_subnormals() const noexcept { return specials != Specials::exponent_only; }
    constexpr bool has_infinity() const noexcept { return specials == Specials::ieee; }
    constexpr bool has_nan() const noexcept { return specials != Specials::none; }
    /// Exponent of the smallest normal number, shared by the subnormals.
    constexpr int min_exponent() const noexcept { return (has_subnormals() ? 1 : 0) - bias(); }
    /// Exponent of the largest finite number.
    constexpr int max_exponent() const noexcept {
        const bool reserved = specials == Specials::ieee || specials == Specials::exponent_only;
        return max_field() - (reserved ? 1 : 0) - bias();
    }
    constexpr int storage_bits() const noexcept {
        return (is_signed ? 1 : 0) + exponent_bits + fraction_bits + padding_bits;
    }
    constexpr std::uint64_t fraction_mask() const noexcept { return (std::uint64_t{1} << fraction_bits) - 1; }
    constexpr std::uint64_t sign_mask() const noexcept {
        return is_signed ? std::uint64_t{1} << (storage_bits() - 1) : 0;
    }
    /// All-ones below the sign: the NaN that NVIDIA units produce (fp32 0x7fffffff, fp16 0x7fff); 0 if there is none.
    constexpr std::uint64_t canonical_nan() const noexcept {
        if (!has_nan()) return 0;
        return (((std::uint64_t{1} << (exponent_bits + fraction_bits)) - 1) << padding_bits) |
               ((std::uint64_t{1} << padding_bits) - 1);
    }
    /// Positive infinity; only where has_infinity().
    constexpr std::uint64_t infinity() const noexcept {
        return static_cast<std::uint64_t>(max_field()) << (fraction_bits + padding_bits);
    }
    /// Largest finite code.
    constexpr std::uint64_t max_finite() const noexcept {
        const std::uint64_t all = (std::uint64_t{1} << (exponent_bits + fraction_bits)) - 1;
        const std::uint64_t code = specials == Specials::ieee  ? all - fraction_mask() - 1
                                   : specials == Specials::none ? all
                                                                : all - 1;
        return code << padding_bits;
    }
};

inline constexpr Format fp64{.exponent_bits = 11, .fraction_bits = 52};
inline constexpr Format fp32{.exponent_bits = 8, .fraction_bits = 23};
inline constexpr Format tf32{.exponent_bits = 8, .fraction_bits = 10, .padding_bits = 13};
inline constexpr Format fp16{.exponent_bits = 5, .fraction_bits = 10};
inline constexpr Format bf16{.exponent_bits = 8, .fraction_bits = 7};
inline constexpr Format e5m2{.exponent_bits = 5, .fraction_bits = 2};
inline constexpr Format e4m3{.exponent_bits = 4, .fraction_bits = 3, .specials = Specials::nan_only};
inline constexpr Format e3m2{.exponent_bits = 3, .fraction_bits = 2, .specials = Specials::none};
inline constexpr Format e2m3{.exponent_bits = 2, .fraction_bits = 3, .specials = Specials::none};
inline constexpr Format e2m1{.exponent_bits = 2, .fraction_bits = 1, .specials = Specials::none};
inline constexpr Format e8m0{
    .exponent_bits = 8, .fraction_bits = 0, .specials = Specials::exponent_only, .is_signed = false};

/// One line per format: the short name, the PTX name, the safetensors and the torch spelling ("" where there is none;
/// the sub-byte types are stored one per byte and have no safetensors name).
struct NamedFormat {
    std::string_view name, ptx, safetensors, torch;
    Format format;
};

inline constexpr std::array<NamedFormat, 11> formats{{
    {"fp64", "f64", "F64", "float64", fp64},
    {"fp32", "f32", "F32", "float32", fp32},
    {"tf32", "tf32", "", "", tf32},
    {"fp16", "f16", "F16", "float16", fp16},
    {"bf16", "bf16", "BF16", "bfloat16", bf16},
    {"e5m2", "e5m2", "F8_E5M2", "float8_e5m2", e5m2},
    {"e4m3", "e4m3", "F8_E4M3", "float8_e4m3fn", e4m3},
    {"e3m2", "e3m2", "", "", e3m2},
    {"e2m3", "e2m3", "", "", e2m3},
    {"e2m1", "e2m1", "", "", e2m1},
    {"e8m0", "ue8m0", "F8_E8M0", "float8_e8m0fnu", e8m0},
}};

/// The table row with this name in any of the four spellings (exact case), or nullptr.
constexpr const NamedFormat* find_format(std::string_view name) noexcept {
    if (name.empty()) return nullptr;
    for (const NamedFormat& row : formats)
        if (row.name == name || row.ptx == name || row.safetensors == name || row.torch == name) return &row;
    return nullptr;
}

/// The table row of a format (every constant above has one).
constexpr const NamedFormat& named(const Format& format) noexcept {
    for (const NamedFormat& row : formats)
        if (row.format == format) return row;
    return formats[0];
}

}  // namespace bitreplay
