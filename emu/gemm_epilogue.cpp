#include "emu/gemm_epilogue.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "emu/epilogue_math_private.hpp"
#include "emu/parallel.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

using Bits = std::uint64_t;
using Order = RecipeAddend::Order;

std::uint32_t gelu(const Mufu& unit, bool in_kernel, std::uint32_t x) noexcept {
    constexpr std::uint32_t half = 0x3F000000, one = 0x3F800000, root = 0x3F4C422A;  // root: sqrt(2/pi)
    if (in_kernel) {
        const std::uint32_t t = unit.tanh(f32::mul(x, f32::fma(f32::mul(x, 0x3D12227E), x, root)));
        return f32::mul(half, f32::fma(x, t, x));
    }
    const std::uint32_t u = f32::mul(f32::mul(x, root), f32::fma(f32::mul(x, 0x3D372713), x, one));
    return f32::mul(f32::mul(x, half), f32::add(one, unit.tanh(u)));
}

/// Computes one output after another.
template <class Math>
class Element {
public:
    Element(const GemmEpilogue& epilogue, const Format& result)
        : epilogue_(epilogue), result_(result), alpha_(scalar(epilogue.alpha)), beta_(scalar(epilogue.beta)) {}

    Bits rounded(Bits x) const { return convert(result_, Math::format, convert(Math::format, result_, x)); }

    Bits scaled(Bits acc, std::size_t row, std::size_t col) const {
        const auto &r = epilogue_.row_scale, &c = epilogue_.col_scale;
        if (r.empty()) return acc;
        if (r.size() == 1 && c.size() == 1) return Math::mul(acc, Math::mul(r[0], c[0]));
        return Math::mul(Math::mul(acc, c[col]), r[row]);
    }

    Bits with_bias(Bits acc, Bits bias) const {
        return Math::add(*epilogue_.bias == RecipeBias::Add::rounded ? rounded(acc) : acc, bias);
    }

    /// alpha·acc + beta·c; of a sum in parts, what the first part becomes.
    Bits with_c(Order order, Bits acc, Bits c) const {
        switch (order) {
            case Order::fma_alpha:
            case Order::serial_fma_alpha: return Math::fma(alpha_, acc, Math::mul(beta_, c));
            case Order::fma_beta:
            case Order::serial_fma_beta: return Math::fma(beta_, c, Math::mul(alpha_, acc));
            case Order::separate: return Math::add(Math::mul(alpha_, acc), Math::mul(beta_, c));
            case Order::rounded: return Math::add(rounded(Math::mul(alpha_, acc)), c);
            case Order::alpha_x:
            case Order::alpha_vector: return Math::fma(beta_, c, acc);
            case Order::each_part: return rounded(Math::add(Math::mul(beta_, c), Math::mul(alpha_, acc)));
            case Order::first_part:
            case Order::from_c: break;
        }
        return Math::add(acc, c);
    }

    /// A further part, added to the rounded sum of those before it.
    Bits with_part(Order order, Bits sum, Bits part) const {
        switch (order) {
            case Order::serial_fma_alpha: return Math::fma(alpha_, part, sum);
            case Order::serial_fma_beta:
            case Order::each_part: return Math::add(sum, Math::mul(alpha_, part));
            default: return Math::add(sum, part);
        }
    }

    std::uint64_t finish(Bits value) const {
        if (epilogue_.gelu != nullptr)  // FP32 only: see GemmEpilogue
            value = gelu(*epilogue_.gelu, epilogue_.gelu_in_kernel, static_cast<std::uint32_t>(value));
        if (epilogue_.relu && (value & Math::format.sign_mask()) != 0) value = 0;
        return convert(Math::format, result_, value);
    }

private:
    static Bits scalar(double value) {
        const Bits given = std::bit_cast<std::uint64_t>(value);
        return Math::format == fp64 ? given : convert(fp32, Math::format, convert(fp64, fp32, given));
    }

    const GemmEpilogue& epilogue_;
    const Format& result_;
    Bits alpha_, beta_;
};

template <class Math>
Tensor apply(const GemmEpilogue& epilogue,
             std::span<const Tensor> parts,
             const EpiloguePlace& place,
             const Format& result) {
    const std::int64_t width = std::ssize(place.cols);
    Tensor out(result, {std::ssize(place.rows), width});
    const Element<Math> element(epilogue, result);
    const Order order = epilogue.orders.empty() ? Order::first_part : epilogue.orders.front();
    std::atomic<bool> unclear = false, relu_of_nan = false;
    parallel_for(std::ssize(place.rows), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first * width; at < last * width; ++at) {
            const std::int64_t row = place.rows[static_cast<std::size_t>(at / width)],
                               col = place.cols[static_cast<std::size_t>(at % width)];
            const auto part = [&](std::size_t i) { return convert(parts[i].format(), Math::format, parts[i].get(at)); };
            const Bits acc = element.scaled(part(0), static_cast<std::size_t>(row), static_cast<std::size_t>(col));
            Bits value = acc;
            const Bits addend = epilogue.addend.empty() ? 0 : epilogue.addend.at(place.entry, row, col, Math::format);
            if (epilogue.needs_parts()) {
                value = element.with_c(order, acc, addend);
                for (std::size_t i = 1; i < parts.size(); ++i)
                    value = element.with_part(order, element.rounded(value), part(i));
            } else if (epilogue.bias) {
                value = element.with_bias(acc, addend);
            } else if (!epilogue.orders.empty()) {
                value = element.with_c(order, acc, addend);
                for (const Order other : std::span(epilogue.orders).subspan(1))
                    if (element.finish(element.with_c(other, acc, addend)) != element.finish(value)) unclear = true;
            }
            if (epilogue.relu && is_nan(Math::format, value)) relu_of_nan = true;
            out.set(at, element.finish(value));
        }
    });
    if (relu_of_nan) throw NotModelled("RELU of a NaN");
    if (unclear) throw NotModelled("the order in which alpha, beta and c enter is not known, and it changes an output");
    return out;
}

}  // namespace

Addend::Addend(const Tensor& values, std::int64_t batch, std::int64_t m, std::int64_t n)
    : values_(values), is_set_(true) {
    const std::int64_t whole[] = {n, m, batch};
    std::int64_t* const strides[] = {&col_stride_, &row_stride_, &entry_stride_};
    std::int64_t stride = 1;
    const std::size_t rank = values.rank();
    for (std::size_t i = 0; i < rank; ++i) {
        const std::int64_t extent = values.dim(rank - 1 - i);
        if (i < 3 ? extent != 1 && extent != whole[i] : extent != 1)
            throw InputError(describe(values) + " does not broadcast to " + describe({batch, m, n}));
        if (i < 3 && extent != 1) *strides[i] = stride;
        stride *= extent;
    }
}

std::uint64_t Addend::at(std::int64_t entry, std::int64_t row, std::int64_t col, const Format& format) const noexcept {
    const std::int64_t i = entry * entry_stride_ + row * row_stride_ + col * col_stride_;
    return convert(values_.format(), format, values_.get(i));
}

bool GemmEpilogue::scales_operand() const noexcept {
    return !orders.empty() && bitreplay::scales_operand(orders.front());
}

bool GemmEpilogue::starts_from_c() const noexcept { return !orders.empty() && orders.front() == Order::from_c; }

bool GemmEpilogue::needs_parts() const noexcept {
    if (bias == RecipeBias::Add::first_part) return true;
    if (orders.empty()) return false;
    const Order order = orders.front();
    return order == Order::first_part || order == Order::serial_fma_alpha || order == Order::serial_fma_beta ||
           order == Order::each_part;
}

Tensor apply_epilogue(const GemmEpilogue& epilogue,
                      std::span<const Tensor> parts,
                      const EpiloguePlace& place,
                      const Format& result) {
    if (epilogue.math == fp64) return apply<detail::Fp64Math>(epilogue, parts, place, result);
    if (epilogue.math == fp16) return apply<detail::Fp16Math>(epilogue, parts, place, result);
    return apply<detail::Fp32Math>(epilogue, parts, place, result);
}

}  // namespace bitreplay
