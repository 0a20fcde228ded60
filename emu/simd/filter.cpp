#include "emu/simd/filter.hpp"

#include <bit>

namespace bitreplay {

#if defined(__x86_64__)
namespace avx512 {
const simd::FilterKernels* filter_row() noexcept;
}
#endif

namespace simd {

int filter_roundings(int block, int position) noexcept {
    // A pair sum of a chain rounds twice at most, the first one (from zero) once; then the tree of chains.
    const int chains = filter_chains(block), length = block / 2 / chains, place = position / 2 / chains;
    const int in_chain = 2 * (length - place) - (place == 0 ? 1 : 0);
    return in_chain + std::countr_zero(static_cast<unsigned>(chains));
}

void FilterSegment::relative_to(int top, std::uint16_t (&out)[depth_levels]) const noexcept {
    const int lower = top - top_field;
    for (int i = 0; i < depth_levels; ++i) out[i] = i < lower ? static_cast<std::uint16_t>(count) : deeper[i - lower];
}

int middle_of(const std::uint16_t (&deeper)[depth_levels]) noexcept {
    int i = 0;
    while (i + 1 < depth_levels && deeper[i] > deeper[0] / 16) ++i;
    return i;
}

const FilterKernels* filter_kernels() noexcept {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return avx512::filter_row();
#endif
    return nullptr;
}

}  // namespace simd
}  // namespace bitreplay
