#include "emu/unary.hpp"

#include <algorithm>
#include <array>

#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

constexpr std::int64_t block = 1024;

void require_cuda_format(const Format& format) {
    if (format == fp32 || format == bf16 || format == fp16) return;
    throw NotModelled("elementwise functions of " + std::string(named(format).name) + " are not modelled");
}

/// One block of x at a time as codes, in parallel.
template <class Code>
Tensor map(const Tensor& x, const Format& result, const Code& code) {
    Tensor out(result, x.shape());
    parallel_for(x.size(), block, [&](std::int64_t begin, std::int64_t end) {
        std::array<std::uint32_t, block> codes;
        for (std::int64_t first = begin; first < end; first += block) {
            const auto count = static_cast<std::size_t>(std::min(block, end - first));
            x.read(first, std::span(codes).first(count));
            for (std::size_t i = 0; i < count; ++i) out.set(first + static_cast<std::int64_t>(i), code(codes[i]));
        }
    });
    return out;
}

}  // namespace

Tensor unary(const Mufu& unit, const cuda::Unary& fn, const Tensor& x, const Format& result) {
    require_cuda_format(x.format());
    require_cuda_format(result);
    const Format from = x.format();
    return map(x, result, [&](std::uint32_t code) {
        const auto wide = from == fp32 ? code : static_cast<std::uint32_t>(convert(from, fp32, code));
        const std::uint32_t y = fn.function(unit, wide);
        return result == fp32 ? y : static_cast<std::uint32_t>(convert(fp32, result, y));
    });
}

Tensor mufu(const Mufu& unit, const MufuForm& form, const Tensor& x) {
    if (!(x.format() == form.format))
        throw InputError(std::string(form.ptx) + " takes " + std::string(named(form.format).name) + " codes, not " + describe(x));
    return map(x, x.format(), [&](std::uint32_t code) { return (unit.*form.function)(code); });
}

}  // namespace bitreplay
