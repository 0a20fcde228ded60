#include "emu/simd/dot.hpp"

namespace bitreplay {

#if defined(__x86_64__)
#define BITREPLAY_DOT_KERNEL(isa, feature)                         \
    namespace isa {                                                \
    simd::WalkKernel walk_kernel(const simd::WalkShape&) noexcept; \
    }
#include "emu/simd/dot_kernels.inc"
#undef BITREPLAY_DOT_KERNEL
#endif

namespace simd {
namespace {

#if defined(__x86_64__)
template <class Check>
bool with_common(Check check) noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("fma") && check();
}

constexpr KernelRow rows[] = {
#define BITREPLAY_DOT_KERNEL(isa, feature)                                                       \
    {#isa,                                                                                       \
     []() noexcept { return with_common([] { return __builtin_cpu_supports(feature) != 0; }); }, \
     isa::walk_kernel},
#include "emu/simd/dot_kernels.inc"
#undef BITREPLAY_DOT_KERNEL
};
#endif

}  // namespace

std::span<const KernelRow> kernel_rows() noexcept {
#if defined(__x86_64__)
    return rows;
#else
    return {};
#endif
}

WalkKernel find_walk(const WalkShape& shape, std::string_view only) noexcept {
    for (const KernelRow& row : kernel_rows()) {
        if ((!only.empty() && row.name != only) || !row.supported()) continue;
        if (const WalkKernel kernel = row.walk(shape)) return kernel;
    }
    return nullptr;
}

}  // namespace simd
}  // namespace bitreplay
