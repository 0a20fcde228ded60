#pragma once

#include <array>
#include <cmath>
#include <string_view>

#include "emu/tensor.hpp"
#include "formats/convert.hpp"
#include "test/support/support.hpp"

namespace bitreplay::test {

/// The kinds of data on which every GEMM kernel is compared with the definition.
inline constexpr std::array<std::string_view, 15> gemm_kinds{"normal",
                                                             "wide-exponent",
                                                             "subnormal",
                                                             "both-subnormal",
                                                             "smallest",
                                                             "nan-inf",
                                                             "overflow",
                                                             "zero-heavy",
                                                             "cancellation",
                                                             "all-maximal",
                                                             "one-huge-tiny",
                                                             "repeated",
                                                             "binade-edge",
                                                             "zero-padded",
                                                             "any-code"};

/// A matrix of one kind. `side` 0: x, 1: w; cancellation pairs columns k and k + 1 of the two.
inline Tensor gemm_input(
    Random& random, std::string_view kind, const Format& format, std::int64_t rows, std::int64_t k, int side) {
    Tensor out(format, {rows, k});
    const auto finite = [&](bool negative, std::uint64_t magnitude) {
        return (negative ? format.sign_mask() : 0) | (magnitude << format.padding_bits);
    };
    const std::uint64_t largest = format.max_finite() >> format.padding_bits;
    const auto exponent_code = [&](int exponent, std::uint64_t fraction) {
        const int field = std::clamp(exponent + format.bias(), 0, format.max_exponent() + format.bias());
        return std::min(
            (static_cast<std::uint64_t>(field) << format.fraction_bits) | (fraction & format.fraction_mask()), largest);
    };
    const auto normal = [&] {  // bell-shaped exponents as of a normal variate
        const double u = static_cast<double>(random.next() >> 11) * 0x1p-53;
        const int exponent = -static_cast<int>(std::floor(-std::log2(u + 1e-12) * 0.9)) + 1;
        return finite((random.next() & 1) != 0, exponent_code(exponent, random.next()));
    };
    const std::uint64_t repeated = normal();
    for (std::int64_t i = 0; i < rows; ++i) {
        std::uint64_t before = 0;
        for (std::int64_t j = 0; j < k; ++j) {
            const bool sign = (random.next() & 1) != 0;
            std::uint64_t code = normal();
            if (kind == "wide-exponent") {
                const int span = format.max_exponent() - format.min_exponent();
                code =
                    finite(sign,
                           exponent_code(format.min_exponent() +
                                             static_cast<int>(random.below(static_cast<std::uint64_t>(span) + 1)) / 2,
                                         random.next()));
            } else if (kind == "subnormal") {
                if (side == 0 || random.below(4) == 0) code = finite(sign, random.next() & format.fraction_mask());
            } else if (kind == "both-subnormal") {
                code = finite(sign, random.next() & format.fraction_mask());
                if (i % 8 == 5) code = normal();
            } else if (kind == "smallest") {  // sums on both sides of the smallest normal number
                if (side == 0)
                    code =
                        finite(sign, exponent_code(-format.bias() + static_cast<int>(random.below(9)), random.next()));
            } else if (kind == "nan-inf") {
                if (i % 5 == 1 && random.below(40) == 0)
                    code = format.has_infinity() && random.below(3) != 0
                               ? format.infinity() | (sign ? format.sign_mask() : 0)
                               : format.canonical_nan();
            } else if (kind == "overflow") {
                if (random.below(3) != 0) code = finite(i % 3 == 0 ? sign : false, largest - random.below(3));
            } else if (kind == "zero-heavy") {
                if (random.below(16) != 0) code = finite(sign, 0);
            } else if (kind == "cancellation") {
                if (side == 0 && j % 2 == 1) code = before;
                if (side == 1 && j % 2 == 1) code = before ^ format.sign_mask();
                if (random.below(64) == 0) code ^= std::uint64_t{1} << format.padding_bits;
            } else if (kind == "all-maximal") {
                code =
                    finite(i % 4 == 3 && sign, exponent_code(random.below(64) == 0 ? -1 : 0, format.fraction_mask()));
            } else if (kind == "one-huge-tiny") {
                const bool huge = j == (i * 7) % k;
                code = finite(sign,
                              exponent_code(huge ? format.max_exponent() / 3
                                                 : -format.bias() / 3 - static_cast<int>(random.below(6)),
                                            random.next()));
            } else if (kind == "repeated") {
                code = i % 2 == 0 ? repeated : repeated ^ (sign ? format.sign_mask() : 0);
            } else if (kind == "binade-edge") {  // sums on both sides of 1
                if (j == 0)
                    code = finite(false, exponent_code(0, 0));
                else if (side == 0)
                    code = finite(sign, exponent_code(-9 - static_cast<int>(random.below(6)), random.next()));
            } else if (kind == "zero-padded") {  // both sides: zeros in the middle and at the end, tiny values between
                if ((j >= 512 && j < 1024) || j >= k - k % 512)
                    code = finite(sign && k % 3 != 0, 0);
                else if (j >= 1024 && j < 1536)
                    code = finite(sign, exponent_code(format.min_exponent() + 20, random.next()));
            } else if (kind == "any-code") {
                code = random.next() & ((std::uint64_t{2} << (format.storage_bits() - 1)) - 1);
            }
            before = code;
            out.set(i * k + j, code);
        }
    }
    return out;
}

}  // namespace bitreplay::test
