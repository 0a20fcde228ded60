#include "emu/simd/pack.hpp"

namespace bitreplay {

#if defined(__x86_64__)
namespace avx512 {
const simd::PackKernels* pack_kernels() noexcept;
}
#endif

namespace simd {

const PackKernels* pack_kernels() noexcept {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
        return avx512::pack_kernels();
#endif
    return nullptr;
}

}  // namespace simd
}  // namespace bitreplay
