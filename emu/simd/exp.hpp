#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Vector kernels of ex2 and expf: the functions of arch/mufu.hpp and emu/cuda_math.hpp on arrays, bit for bit. For use
// through emu/vector_exp.hpp.
namespace bitreplay::simd {

/// The table of ex2 in the layout that the kernels need: sum = (constant << 13) + linear·x + square·S(x) + offset in units
/// of 2^-38, x the low 17 bits of the fraction. All partial sums fit 32 bits.
struct Ex2Table {
    std::uint32_t constant[64];
    std::uint32_t slopes[64];  ///< linear in the low 16 bits, square in the high ones
    std::uint32_t offset;      ///< below 2^13
};

/// in and out may be the same array; any n.
struct ExpKernels {
    using Map = void (*)(const Ex2Table& table, const std::uint32_t* in, std::uint32_t* out, std::size_t n) noexcept;
    Map ex2_ftz, ex2, expf;
    void (*exp_parts)(const Ex2Table& table,
                      const std::uint32_t* in,
                      std::uint32_t* power,
                      std::uint32_t* scale,
                      std::size_t n) noexcept;
};

struct ExpRow {
    std::string_view name;
    bool (*supported)() noexcept;
    ExpKernels (*kernels)() noexcept;
};

/// The rows of exp_kernels.inc, best first; none on other architectures.
std::span<const ExpRow> exp_rows() noexcept;

}  // namespace bitreplay::simd
