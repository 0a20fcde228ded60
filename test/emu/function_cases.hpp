#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/parallel.hpp"
#include "test/support/sweep_hash.hpp"

namespace bitreplay::test {

inline std::uint32_t fp32_bits(float value) { return std::bit_cast<std::uint32_t>(value); }

/// A fast intrinsic by its CUDA name; those of one argument ignore y.
struct Intrinsic {
    std::string_view name;
    std::uint32_t (*function)(const Mufu& unit, std::uint32_t x, std::uint32_t y);
};
inline const Intrinsic* find_intrinsic(std::string_view name) {
    using U = std::uint32_t;
    static constexpr Intrinsic rows[] = {
        {"__expf", [](const Mufu& unit, U x, U) { return cuda::fast_expf(unit, x); }},
        {"__exp10f", [](const Mufu& unit, U x, U) { return cuda::fast_exp10f(unit, x); }},
        {"__logf", [](const Mufu& unit, U x, U) { return cuda::fast_logf(unit, x); }},
        {"__log2f", [](const Mufu& unit, U x, U) { return cuda::fast_log2f(unit, x); }},
        {"__log10f", [](const Mufu& unit, U x, U) { return cuda::fast_log10f(unit, x); }},
        {"__sinf", [](const Mufu& unit, U x, U) { return cuda::fast_sinf(unit, x); }},
        {"__cosf", [](const Mufu& unit, U x, U) { return cuda::fast_cosf(unit, x); }},
        {"__tanf", [](const Mufu& unit, U x, U) { return cuda::fast_tanf(unit, x); }},
        {"__fdividef", [](const Mufu& unit, U x, U y) { return cuda::fast_divide(unit, x, y); }},
        {"__powf", [](const Mufu& unit, U x, U y) { return cuda::fast_powf(unit, x, y); }},
    };
    for (const Intrinsic& row : rows)
        if (row.name == name) return &row;
    return nullptr;
}

/// One captured sweep of torch.pow; what element i was is in testdata/h200/functions/functions.json.
class PowSweep {
public:
    explicit PowSweep(const std::string& name)
        : ordinary_(name == "pow_ordinary"), base_(name.starts_with("pow_base_")), exponent_(name.starts_with("pow_exponent_")) {
        if (ordinary_) exponents_ = synthetic({.seed = 6, .exp2 = 1, .shape = {1 << 24}});
        if (base_) constant_ = fp32_bits(std::stof(name.substr(9)));
        if (exponent_) constant_ = fp32_bits(std::stof(name.substr(13)));
    }
    std::uint32_t operator()(const Mufu& unit, std::uint64_t i) const {
        auto x = static_cast<std::uint32_t>(counter_random(1, i));
        if (ordinary_) {
            const std::uint64_t z = counter_random(5, i);
            x = static_cast<std::uint32_t>((119 + ((z >> 40) & 15)) << 23 | (z & 0x7FFFFF));
            return cuda::powf(unit, x, static_cast<std::uint32_t>(exponents_.get(static_cast<std::int64_t>(i))));
        }
        if (base_) return cuda::powf(unit, constant_, fp32_bits(static_cast<float>(i) / 16777216.0F));
        if (!exponent_) return cuda::powf(unit, x, static_cast<std::uint32_t>(counter_random(2, i)));
        constexpr std::uint32_t three = 0x40400000;  // PyTorch takes a product for this exponent
        return constant_ == three ? f32::mul(f32::mul(x, x), x) : cuda::powf(unit, x, constant_);
    }
    std::uint64_t hash(const Mufu& unit, std::uint64_t first, std::uint64_t count) const {
        std::uint64_t sum = 0;
        for (std::uint64_t i = first; i < first + count; ++i) sum += sweep_term(i, (*this)(unit, i));
        return sum;
    }

private:
    bool ordinary_, base_, exponent_;
    std::uint32_t constant_ = 0;
    Tensor exponents_;
};

/// Hash of a function's outputs for the 2^24 inputs whose top byte is `slice`.
inline std::uint64_t slice_hash(const Mufu& unit, const cuda::Unary& fn, std::uint32_t slice) {
    std::atomic<std::uint64_t> hash = 0;
    parallel_for(256, 1, [&](std::int64_t begin, std::int64_t end) {
        std::uint64_t sum = 0;
        for (auto i = static_cast<std::uint32_t>(begin) << 16; i < static_cast<std::uint32_t>(end) << 16; ++i) {
            const std::uint32_t x = slice << 24 | i;
            sum += sweep_term(x, fn.function(unit, x));
        }
        hash += sum;
    });
    return hash;
}

}  // namespace bitreplay::test
