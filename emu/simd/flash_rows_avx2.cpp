#if defined(__x86_64__)
#define BITREPLAY_ISA avx2
#define BITREPLAY_ISA_NAME "avx2"
#define BITREPLAY_LANES 8
#include "emu/simd/flash_rows.ipp"
#endif
