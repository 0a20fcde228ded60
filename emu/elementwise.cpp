#include "emu/elementwise.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "emu/fp32_rows.hpp"
#include "emu/parallel.hpp"
#include "emu/simd/fp32_kernels.hpp"
#include "formats/error.hpp"

namespace bitreplay {

Tensor binary(Binary op, const Tensor& a, const Tensor& b, const Format& result) {
    const bool scalar_a = a.rank() == 0, scalar_b = b.rank() == 0;
    if (!scalar_a && !scalar_b && a.shape() != b.shape())
        throw InputError("shapes " + describe(a) + " and " + describe(b) + " differ");
    for (const Format& format : {a.format(), b.format(), result})
        if (!is_fp32_loadable(format)) throw NotModelled("element-wise " + std::string(named(format).name));
    Tensor out(result, scalar_a ? b.shape() : a.shape());
    constexpr std::int64_t chunk = 4096;  // both operands stay in the first-level cache
    parallel_for((out.size() + chunk - 1) / chunk, 8, [&](std::int64_t begin, std::int64_t end) {
        const Fp32Kernels& kernels = fp32_kernels();
        std::vector<std::uint32_t> x(chunk), y(chunk);
        for (std::int64_t first = begin * chunk; first < std::min(end * chunk, out.size()); first += chunk) {
            const auto n = static_cast<std::size_t>(std::min(chunk, out.size() - first));
            const auto fetch = [&](const Tensor& from, bool scalar, std::vector<std::uint32_t>& to) {
                load_fp32(from, scalar ? 0 : first, {to.data(), scalar ? 1 : n});
                if (scalar) std::fill_n(to.begin(), n, to[0]);
            };
            fetch(a, scalar_a, x);
            fetch(b, scalar_b, y);
            (op == Binary::add ? kernels.add : kernels.mul)(x.data(), y.data(), x.data(), n);
            store_fp32(out, first, {x.data(), n});
        }
    });
    return out;
}

}  // namespace bitreplay
