#if defined(__x86_64__)
#define BITREPLAY_ISA avx512
#define BITREPLAY_ISA_NAME "avx512"
#define BITREPLAY_LANES 16
#include "emu/simd/flash_rows.ipp"
#endif
