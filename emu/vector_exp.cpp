#include "emu/vector_exp.hpp"

#include <string>

#include "emu/cuda_math.hpp"
#include "formats/error.hpp"

namespace bitreplay {

#if defined(__x86_64__)
#define BITREPLAY_EXP_KERNEL(isa, feature)     \
    namespace isa {                            \
    simd::ExpKernels exp_kernels() noexcept; \
    }
#include "emu/simd/exp_kernels.inc"
#undef BITREPLAY_EXP_KERNEL
#endif

namespace simd {

std::span<const ExpRow> exp_rows() noexcept {
#if defined(__x86_64__)
    static constexpr ExpRow rows[] = {
#define BITREPLAY_EXP_KERNEL(isa, feature)                                                         \
    {#isa,                                                                                         \
     []() noexcept {                                                                               \
         __builtin_cpu_init();                                                                     \
         return __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports(feature) != 0; \
     },                                                                                            \
     isa::exp_kernels},
#include "emu/simd/exp_kernels.inc"
#undef BITREPLAY_EXP_KERNEL
    };
    return rows;
#else
    return {};
#endif
}

}  // namespace simd

namespace {

/// False if the numbers do not fit the kernels' 32-bit lanes; then the scalar function serves.
bool fill(const Mufu::Curve& curve, simd::Ex2Table& table) {
    if (curve.low_bits != 17 || curve.sum_fraction != 38 || curve.rows.size() != 64) return false;
    const auto offset = curve.rows[0].constant & 0x1FFF;
    for (std::size_t i = 0; i < 64; ++i) {
        const Mufu::Row& row = curve.rows[i];
        constexpr std::int64_t largest_square = 0x7FFF, largest_low = 0x1FFFF;
        const bool fits = (row.constant & 0x1FFF) == offset && row.linear >= 0 && row.linear < 1 << 16 && row.square >= 0 &&
                          row.square < 1 << 14;  // 2^16·2^8 + 2^14·2^15 + 2^13 < 2^31
        const std::int64_t largest = row.constant + row.linear * largest_low + row.square * largest_square;
        // The kernels take the leading bit as given.
        if (!fits || row.constant < std::int64_t{1} << 38 || largest >= std::int64_t{1} << 39) return false;
        table.constant[i] = static_cast<std::uint32_t>(row.constant >> 13);
        table.slopes[i] = static_cast<std::uint32_t>(row.linear | (row.square << 16));
    }
    table.offset = static_cast<std::uint32_t>(offset);
    return true;
}

}  // namespace

VectorExp::VectorExp(const Mufu& unit, std::string_view kernel) : unit_(&unit) {
    if (kernel == "scalar") return;
    const bool fits = fill(unit.ex2_curve(), table_);
    for (const simd::ExpRow& row : simd::exp_rows()) {
        if ((!kernel.empty() && row.name != kernel) || !row.supported() || !fits) continue;
        name_ = row.name;
        kernels_ = row.kernels();
        return;
    }
    if (!kernel.empty()) throw InputError("no kernel \"" + std::string(kernel.substr(0, 40)) + "\" for this CPU and table");
}

std::vector<std::string_view> VectorExp::kernels() {
    std::vector<std::string_view> out;
    for (const simd::ExpRow& row : simd::exp_rows())
        if (row.supported()) out.push_back(row.name);
    out.push_back("scalar");
    return out;
}

void VectorExp::ex2_ftz(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept {
    if (kernels_.ex2_ftz != nullptr) return kernels_.ex2_ftz(table_, in.data(), out.data(), in.size());
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = unit_->ex2_ftz(in[i]);
}

void VectorExp::ex2(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept {
    if (kernels_.ex2 != nullptr) return kernels_.ex2(table_, in.data(), out.data(), in.size());
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = unit_->ex2(in[i]);
}

void VectorExp::expf(std::span<const std::uint32_t> in, std::span<std::uint32_t> out) const noexcept {
    if (kernels_.expf != nullptr) return kernels_.expf(table_, in.data(), out.data(), in.size());
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = cuda::expf(*unit_, in[i]);
}

void VectorExp::exp_parts(std::span<const std::uint32_t> in,
                          std::span<std::uint32_t> power,
                          std::span<std::uint32_t> scale) const noexcept {
    if (kernels_.exp_parts != nullptr) return kernels_.exp_parts(table_, in.data(), power.data(), scale.data(), in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
        const cuda::ExpParts parts = cuda::exp_parts(*unit_, in[i]);
        power[i] = parts.power;
        scale[i] = parts.scale;
    }
}

}  // namespace bitreplay
