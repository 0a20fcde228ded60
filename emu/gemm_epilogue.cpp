#include "emu/gemm_epilogue.hpp"

#include <algorithm>
#include <atomic>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

using Bits = std::uint32_t;
using Order = RecipeAddend::Order;

constexpr Bits half = 0x3F000000;

/// Source: fitted to cuBLASLt's EPILOGUE_GELU on H200 by others; no output was compared here.
Bits gelu(const Mufu& unit, Bits x) noexcept {
    const Bits u = f32::mul(x, f32::fma(f32::mul(x, 0x3D12227E), x, 0x3F4C422A));
    const Bits scaled = f32::mul(x, half);
    return f32::fma(scaled, unit.tanh(u), scaled);
}

/// Computes one output after another.
class Element {
public:
    Element(const GemmEpilogue& epilogue, const Format& result) : epilogue_(epilogue), result_(result) {}

    Bits rounded(Bits x) const { return static_cast<Bits>(convert(result_, fp32, convert(fp32, result_, x))); }

    Bits scaled(Bits acc, std::size_t row, std::size_t col) const {
        const auto &r = epilogue_.row_scale, &c = epilogue_.col_scale;
        if (r.empty()) return acc;
        if (r.size() == 1 && c.size() == 1) return f32::mul(acc, f32::mul(r[0], c[0]));
        return f32::mul(f32::mul(acc, c[col]), r[row]);
    }

    Bits with_bias(Bits acc, Bits bias) const {
        return f32::add(*epilogue_.bias == RecipeBias::Add::rounded ? rounded(acc) : acc, bias);
    }

    Bits with_c(Order order, Bits acc, Bits c) const {
        const Bits alpha = epilogue_.alpha, beta = epilogue_.beta;
        switch (order) {
            case Order::fma_alpha: return f32::fma(alpha, acc, f32::mul(beta, c));
            case Order::fma_beta: return f32::fma(beta, c, f32::mul(alpha, acc));
            case Order::separate: return f32::add(f32::mul(alpha, acc), f32::mul(beta, c));
            case Order::rounded: return f32::add(rounded(f32::mul(alpha, acc)), c);
            case Order::alpha_x:
            case Order::alpha_vector: return f32::fma(beta, c, acc);
            case Order::first_part:
            case Order::from_c:
            case Order::each_part: break;
        }
        return f32::add(acc, c);
    }

    std::uint64_t finish(Bits value) const {
        return convert(fp32, result_, epilogue_.gelu != nullptr ? gelu(*epilogue_.gelu, value) : value);
    }

private:
    const GemmEpilogue& epilogue_;
    const Format& result_;
};

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

Bits Addend::at(std::int64_t entry, std::int64_t row, std::int64_t col) const noexcept {
    const std::int64_t i = entry * entry_stride_ + row * row_stride_ + col * col_stride_;
    return static_cast<Bits>(convert(values_.format(), fp32, values_.get(i)));
}

bool GemmEpilogue::scales_operand() const noexcept { return !orders.empty() && bitreplay::scales_operand(orders.front()); }

bool GemmEpilogue::starts_from_c() const noexcept { return !orders.empty() && orders.front() == Order::from_c; }

bool GemmEpilogue::needs_parts() const noexcept {
    return bias == RecipeBias::Add::first_part || (!orders.empty() && (orders.front() == Order::first_part || orders.front() == Order::each_part));
}

Tensor apply_epilogue(const GemmEpilogue& epilogue,
                      std::span<const Tensor> parts,
                      const EpiloguePlace& place,
                      const Format& result) {
    const std::int64_t width = std::ssize(place.cols);
    Tensor out(result, {std::ssize(place.rows), width});
    const Element element(epilogue, result);
    std::atomic<bool> unclear = false;
    parallel_for(std::ssize(place.rows), 16, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first * width; at < last * width; ++at) {
            const std::int64_t row = place.rows[static_cast<std::size_t>(at / width)],
                               col = place.cols[static_cast<std::size_t>(at % width)];
            const auto part = [&](std::size_t i) {
                return static_cast<Bits>(convert(parts[i].format(), fp32, parts[i].get(at)));
            };
            Bits value = element.scaled(part(0), static_cast<std::size_t>(row), static_cast<std::size_t>(col));
            const Bits addend = epilogue.addend.empty() ? 0 : epilogue.addend.at(place.entry, row, col);
            if (epilogue.needs_parts() && !epilogue.orders.empty() && epilogue.orders.front() == Order::each_part) {
                value = f32::mul(epilogue.beta, addend);
                for (std::size_t i = 0; i < parts.size(); ++i)
                    value = element.rounded(f32::add(value, f32::mul(epilogue.alpha, part(i))));
            } else if (epilogue.needs_parts()) {
                value = f32::add(value, addend);
                for (std::size_t i = 1; i < parts.size(); ++i) value = f32::add(element.rounded(value), part(i));
            } else if (epilogue.bias) {
                value = element.with_bias(value, addend);
            } else if (!epilogue.orders.empty()) {
                const Bits acc = value;
                value = element.with_c(epilogue.orders.front(), acc, addend);
                for (const Order other : epilogue.orders)
                    if (element.finish(element.with_c(other, acc, addend)) != element.finish(value)) unclear = true;
            }
            out.set(at, element.finish(value));
        }
    });
    if (unclear) throw NotModelled("the order in which alpha, beta and c enter is not known, and it changes an output");
    return out;
}

}  // namespace bitreplay
