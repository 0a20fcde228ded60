#define BITREPLAY_ISA generic
#define BITREPLAY_ISA_NAME "generic"
#define BITREPLAY_LANES 4
#include "emu/simd/fp32_kernels.ipp"
