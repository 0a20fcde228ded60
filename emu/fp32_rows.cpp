#include "emu/fp32_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "emu/simd/fp32_kernels.hpp"
#include "formats/convert.hpp"

namespace bitreplay {

bool is_fp32_loadable(const Format& format) noexcept { return format == fp32 || format == bf16 || format == fp16; }

void load_fp32(const Tensor& x, std::int64_t first, std::span<std::uint32_t> out) noexcept {
    if (x.format() == bf16) {
        fp32_kernels().widen_bf16(x.bytes().data() + 2 * first, out.data(), out.size());
        return;
    }
    if (x.format() == fp16) {
        fp32_kernels().widen_fp16(x.bytes().data() + 2 * first, out.data(), out.size());
        return;
    }
    x.read(first, out);
}

void store_fp32(Tensor& out, std::int64_t first, std::span<const std::uint32_t> values) noexcept {
    std::byte* at = out.mutable_bytes().data() + first * out.element_bytes();
    if (out.format() == bf16) {
        fp32_kernels().round_bf16(values.data(), at, values.size());
    } else if (out.format() == fp32) {
        std::memcpy(at, values.data(), values.size_bytes());
    } else {
        for (std::size_t i = 0; i < values.size(); ++i)
            out.set(first + static_cast<std::int64_t>(i), convert(fp32, out.format(), values[i]));
    }
}

void round_through(const Format& format, std::span<std::uint32_t> values) noexcept {
    if (format == fp32) return;
    if (format == bf16) {
        std::array<std::byte, 512> codes;
        for (std::size_t i = 0; i < values.size(); i += codes.size() / 2) {
            const std::size_t n = std::min(values.size() - i, codes.size() / 2);
            fp32_kernels().round_bf16(values.data() + i, codes.data(), n);
            fp32_kernels().widen_bf16(codes.data(), values.data() + i, n);
        }
        return;
    }
    for (std::uint32_t& bits : values)
        bits = static_cast<std::uint32_t>(convert(format, fp32, convert(fp32, format, bits)));
}

std::uint32_t fp32_maximum(std::span<const std::uint32_t> values) noexcept {
    std::int32_t best = INT32_MIN;  // rank by value; no number has this one
    for (const std::uint32_t bits : values) {
        const auto code = static_cast<std::int32_t>(bits);
        const std::int32_t rank = code < 0 ? static_cast<std::int32_t>(0x80000000U - bits) : code;
        if ((bits & 0x7FFFFFFFU) <= 0x7F800000U) best = std::max(best, rank);
    }
    if (best == INT32_MIN) return 0x7FFFFFFF;
    return best < 0 ? 0x80000000U - static_cast<std::uint32_t>(best) : static_cast<std::uint32_t>(best);
}

std::uint32_t fp32_from_integer(std::int64_t value) noexcept {
    const auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
    return static_cast<std::uint32_t>(round_pack(fp32, {value < 0, magnitude, 0}));
}

std::uint32_t fp32_from_real(double value) noexcept {
    return static_cast<std::uint32_t>(convert(fp64, fp32, std::bit_cast<std::uint64_t>(value)));
}

}  // namespace bitreplay
