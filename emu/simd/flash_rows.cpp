#include "emu/simd/flash_rows.hpp"

namespace bitreplay {

#if defined(__x86_64__)
#define BITREPLAY_FLASH_ROWS(isa, ...) \
    namespace isa {                    \
    extern const simd::FlashRowKernels flash_row_table; \
    }
#include "emu/simd/flash_rows.inc"
#undef BITREPLAY_FLASH_ROWS
#endif

namespace simd {

std::vector<const FlashRowKernels*> flash_row_kernels() {
    std::vector<const FlashRowKernels*> out;
#if defined(__x86_64__)
    __builtin_cpu_init();
#define BITREPLAY_FLASH_ROWS(isa, first, second) \
    if (__builtin_cpu_supports(first) && __builtin_cpu_supports(second)) out.push_back(&isa::flash_row_table);
#include "emu/simd/flash_rows.inc"
#undef BITREPLAY_FLASH_ROWS
#endif
    return out;
}

}  // namespace simd
}  // namespace bitreplay
