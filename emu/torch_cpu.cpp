#include "emu/torch_cpu.hpp"

#include <bit>
#include <string>

#include "arch/fp32.hpp"
#include "formats/error.hpp"

namespace bitreplay::torch_cpu {
namespace {

using Bits = std::uint32_t;
using f32::add;
using f32::div;
using f32::fma;
using f32::mul;
using f32::sub;

constexpr Bits one = 0x3F800000, minus_one = 0xBF800000, two = 0x40000000, infinity = 0x7F800000, min_normal = 0x00800000;
constexpr Bits negate(Bits x) noexcept { return x ^ 0x80000000; }

/// An unevaluated sum of two floats.
struct Pair {
    Bits high, low;
};

// Sums in the order of the algorithm; `ordered` ones rely on |x| >= |y|.
Pair ordered_sum(Pair x, Pair y) noexcept {
    const Bits s = add(x.high, y.high);
    return {s, add(add(add(sub(x.high, s), y.high), x.low), y.low)};
}
Pair ordered_sum(Bits x, Pair y) noexcept {
    const Bits s = add(x, y.high);
    return {s, add(add(sub(x, s), y.high), y.low)};
}
/// The rounding error of s = x + y.
Bits sum_error(Bits x, Bits y, Bits s) noexcept {
    const Bits v = sub(s, x);
    return add(sub(x, sub(s, v)), sub(y, v));
}
Pair sum(Bits x, Bits y) noexcept {
    const Bits s = add(x, y);
    return {s, sum_error(x, y, s)};
}
Pair sum(Pair x, Bits y) noexcept {
    const Bits s = add(x.high, y);
    return {s, add(sum_error(x.high, y, s), x.low)};
}
Pair sum(Pair x, Pair y) noexcept {
    const Bits s = add(x.high, y.high);
    return {s, add(sum_error(x.high, y.high, s), add(x.low, y.low))};
}
Pair product(Pair x, Pair y) noexcept {
    const Bits s = mul(x.high, y.high);
    return {s, fma(x.high, y.low, fma(x.low, y.high, fma(x.high, y.high, negate(s))))};
}
Pair product(Pair x, Bits y) noexcept {
    const Bits s = mul(x.high, y);
    return {s, fma(x.low, y, fma(x.high, y, negate(s)))};
}
Pair square(Pair x) noexcept {
    const Bits s = mul(x.high, x.high);
    return {s, fma(add(x.high, x.high), x.low, fma(x.high, x.high, negate(s)))};
}
Pair quotient(Pair n, Pair d) noexcept {
    const Bits t = div(one, d.high), s = mul(n.high, t);
    const Bits u = fma(t, n.high, negate(s)), v = fma(negate(d.low), t, fma(negate(d.high), t, one));
    return {s, fma(s, v, fma(n.low, t, u))};
}

/// log of a positive normal number.
Pair logarithm(Bits x) noexcept {
    const auto exponent = static_cast<std::int32_t>(mul(x, 0x3FAAAAAB) >> 23) - 127;  // m in [3/4, 3/2)
    const Bits m = x - (static_cast<Bits>(exponent) << 23);
    const Pair r = quotient(sum(minus_one, m), sum(one, m)), r2 = square(r);
    const Bits t = fma(fma(0x3E76168A, r2.high, 0x3E91FA4A), r2.high, 0x3ECCCDD9);
    constexpr Pair two_thirds{0x3F2AAAAA, 0x317DB383}, ln_2{0x3F317218, 0xB102E308};
    const Pair whole = product(ln_2, f32::from_int(exponent));
    const Pair main = ordered_sum(whole, Pair{mul(r.high, two), mul(r.low, two)});
    return ordered_sum(main, product(product(r2, r), sum(product(r2, t), two_thirds)));
}

/// exp of a pair whose result is a normal number.
Bits exponential(Pair x) noexcept {
    const Bits q = f32::round_to_integer(mul(add(x.high, x.low), 0x3FB8AA3B));
    Pair s = sum(sum(x, mul(q, 0xBF317200)), mul(q, 0xB5BFBE8E));
    const Bits high = add(s.high, s.low);
    s = {high, add(sub(s.high, high), s.low)};
    Bits p = fma(fma(0x3AB2AEF6, s.high, 0x3C09116B), s.high, 0x3D2AAF4C);
    p = fma(fma(p, s.high, 0x3E2AAA5E), s.high, 0x3EFFFFFB);
    const Pair t = ordered_sum(one, ordered_sum(s, product(square(s), p)));
    return add(t.high, t.low) + (static_cast<Bits>(f32::to_int(q)) << 23);
}

}  // namespace

std::uint32_t powf(std::uint32_t x, std::uint32_t y) {
    const bool normal = x >= min_normal && x < infinity && (y & 0x7FFFFFFF) < infinity;
    const Pair exponent = normal ? product(logarithm(x), y) : Pair{infinity, 0};
    constexpr Bits largest = 0x428A0000;  // 69 < 100·log(2)
    if ((exponent.high & 0x7FFFFFFF) > largest) throw NotModelled("torch CPU pow: argument out of the modelled range");
    return exponential(exponent);
}

std::vector<std::uint32_t> inverse_frequencies(std::uint32_t theta, std::int64_t dim) {
    if (dim <= 0 || dim % 2 != 0 || dim > 1 << 20) throw InputError("rotary dimension " + std::to_string(dim) + " is not an even number");
    std::vector<std::uint32_t> out;
    for (std::int64_t i = 0; i < dim; i += 2)
        out.push_back(div(one, powf(theta, div(f32::from_int(static_cast<std::int32_t>(i)), f32::from_int(static_cast<std::int32_t>(dim))))));
    return out;
}

void scale_llama3(std::span<std::uint32_t> frequencies, const Llama3Scaling& scaling) {
    const auto single = [](double x) { return f64::to_f32(std::bit_cast<std::uint64_t>(x)); };
    const auto number_over = [](Bits number, Bits x) { return mul(div(one, x), number); };
    constexpr Bits two_pi = 0x40C90FDB;
    const Bits longest = single(scaling.original_length / scaling.low_factor);
    const Bits shortest = single(scaling.original_length / scaling.high_factor);
    const Bits range = single(scaling.high_factor - scaling.low_factor), factor = single(scaling.factor);
    for (Bits& x : frequencies) {
        const Bits length = number_over(two_pi, x);
        if (f32::less(length, shortest)) continue;
        if (f32::less(longest, length)) {
            x = div(x, factor);
            continue;
        }
        const Bits smooth = div(sub(number_over(single(scaling.original_length), length), single(scaling.low_factor)), range);
        x = add(div(mul(sub(one, smooth), x), factor), mul(smooth, x));
    }
}

}  // namespace bitreplay::torch_cpu
