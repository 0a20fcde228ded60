#include "emu/simd/fp32_kernels.hpp"

namespace bitreplay {

#define BITREPLAY_FP32_KERNELS(isa, condition) \
    namespace isa {                            \
    extern const Fp32Kernels fp32_table;       \
    }
#include "emu/simd/fp32_kernels.inc"
#undef BITREPLAY_FP32_KERNELS

std::vector<const Fp32Kernels*> fp32_kernel_rows() {
    std::vector<const Fp32Kernels*> out;
#define BITREPLAY_FP32_KERNELS(isa, condition) \
    if (condition) out.push_back(&isa::fp32_table);
#include "emu/simd/fp32_kernels.inc"
#undef BITREPLAY_FP32_KERNELS
    return out;
}

const Fp32Kernels& fp32_kernels() noexcept {
    static const Fp32Kernels& best = *fp32_kernel_rows().front();
    return best;
}

}  // namespace bitreplay
