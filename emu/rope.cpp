#include "emu/rope.hpp"

#include <string>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/error.hpp"

namespace bitreplay {

Tensor rope_hf(const Tensor& x, const Tensor& cos, const Tensor& sin) {
    if (x.rank() != 3 || x.cols() % 2 != 0 || cos.shape() != std::vector{x.dim(0), x.dim(2)} ||
        sin.shape() != cos.shape())
        throw InputError("rope of x " + describe(x) + " with cos " + describe(cos) + " and sin " + describe(sin));
    if (cos.format() != x.format() || sin.format() != x.format() || (x.format() != bf16 && x.format() != fp32))
        throw NotModelled("rope of x " + describe(x) + " with cos " + describe(cos) + " and sin " + describe(sin));
    const std::int64_t tokens = x.dim(0), heads = x.dim(1);
    const auto d = static_cast<std::size_t>(x.cols());
    Tensor out(x.format(), x.shape());
    parallel_for(tokens, 1 + 16384 / (1 + heads * x.cols()), [&](std::int64_t begin, std::int64_t end) {
        const Fp32Kernels& kernels = fp32_kernels();
        std::vector<std::uint32_t> c(d), s(d), v(d), rotated(d);
        for (std::int64_t token = begin; token < end; ++token) {
            load_fp32(cos, token * x.cols(), c);
            load_fp32(sin, token * x.cols(), s);
            for (std::int64_t head = token * heads; head < (token + 1) * heads; ++head) {
                load_fp32(x, head * x.cols(), v);
                // torch.neg flips the sign bit, of NaN as well; the products make NaN canonical.
                for (std::size_t i = 0; i < d / 2; ++i) {
                    rotated[i] = v[i + d / 2] ^ 0x80000000U;
                    rotated[i + d / 2] = v[i];
                }
                kernels.mul(v.data(), c.data(), v.data(), d);
                kernels.mul(rotated.data(), s.data(), rotated.data(), d);
                round_through(x.format(), v);
                round_through(x.format(), rotated);
                kernels.add(v.data(), rotated.data(), v.data(), d);
                store_fp32(out, head * x.cols(), v);
            }
        }
    });
    return out;
}

RopeTable rope_table(const Gpu& gpu,
                     const Tensor& inv_freq,
                     std::span<const std::int64_t> positions,
                     const Format& result) {
    if (inv_freq.rank() != 1 || inv_freq.format() != fp32)
        throw InputError("rope_table needs fp32 inv_freq [d/2], not " + describe(inv_freq));
    if (!is_fp32_loadable(result)) throw NotModelled("rope_table as " + std::string(named(result).name));
    const auto half = static_cast<std::size_t>(inv_freq.size());
    const auto rows = static_cast<std::int64_t>(positions.size()), d = 2 * inv_freq.size();
    RopeTable out{Tensor(result, {rows, d}), Tensor(result, {rows, d})};
    const Mufu& unit = mufu(gpu);
    std::vector<std::uint32_t> frequency(half);
    load_fp32(inv_freq, 0, frequency);
    parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint32_t> c(half), s(half);
        for (std::int64_t row = begin; row < end; ++row) {
            const std::uint32_t position = fp32_from_integer(positions[static_cast<std::size_t>(row)]);
            for (std::size_t i = 0; i < half; ++i) {
                const std::uint32_t angle = f32::mul(frequency[i], position);
                c[i] = cuda::cosf(unit, angle);
                s[i] = cuda::sinf(unit, angle);
            }
            for (const std::int64_t first : {row * d, row * d + inv_freq.size()}) {
                store_fp32(out.cos, first, c);
                store_fp32(out.sin, first, s);
            }
        }
    });
    return out;
}

}  // namespace bitreplay
