#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/tensor.hpp"

namespace bitreplay {

/// One differing element.
struct Difference {
    std::vector<std::int64_t> index;  ///< one per dimension
    std::uint64_t expected_bits;
    std::uint64_t actual_bits;
    std::uint64_t ulp;  ///< ulp_distance of the two
};

struct CompareOptions {
    std::size_t max_first = 5;            ///< how many differences to list
    bool any_nan_equals_any_nan = false;  ///< otherwise NaNs are equal only if their bits are
};

/// The outcome of a bit comparison; differences are those of bits, so −0 and +0 differ.
struct Comparison {
    std::int64_t compared = 0;
    std::int64_t different = 0;
    std::int64_t nan_against_number = 0;  ///< of the different ones, those where exactly one side is NaN
    std::vector<Difference> first;        ///< the first ones in row-major order
    /// histogram[b]: differing elements whose distance has b significant bits: [0] only −0 against +0 (or bits that the
    /// format ignores), [1] one ulp, [2] two or three, [3] four to seven, …
    std::array<std::int64_t, 65> histogram{};

    bool equal() const noexcept { return different == 0; }
};

/// How many representable steps lie between two codes: the difference of their ranks when all codes are ordered by
/// value. −0 and +0 have distance 0; infinity is one step beyond the largest finite number and NaN codes lie beyond
/// infinity, in the order of their bits.
std::uint64_t ulp_distance(const Format& format, std::uint64_t x, std::uint64_t y) noexcept;

/// Compares every bit. InputError unless format and shape are the same. The result does not depend on the number of
/// threads.
Comparison compare(const Tensor& expected, const Tensor& actual, const CompareOptions& options = {});

}  // namespace bitreplay
