// Runs single tensor-core instructions on given tiles. Built as a shared library for capture_instructions.py:
//   nvcc -O2 -shared -Xcompiler -fPIC -gencode=arch=compute_90a,code=sm_90a instructions.cu -o instructions.so
// Tiles: a[tile][m][k], b[tile][n][k], c and d [tile][m][n]. One warp (mma.sync) or warpgroup (wgmma) per tile.
// wgmma takes A from registers and B from shared memory without swizzling.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

namespace {

template <class T>
__device__ uint32_t pack4(const T* p) {
    uint32_t r;
    memcpy(&r, p, 4);
    return r;
}

__device__ uint32_t pack_half(const __half* lo, const __half* hi) {
    return static_cast<uint32_t>(__half_as_ushort(*lo)) | static_cast<uint32_t>(__half_as_ushort(*hi)) << 16;
}

__device__ void unpack_half(uint32_t v, __half* lo, __half* hi) {
    *lo = __ushort_as_half(static_cast<unsigned short>(v & 0xFFFF));
    *hi = __ushort_as_half(static_cast<unsigned short>(v >> 16));
}

struct Lane {
    int group, quad;  // lane / 4 and lane % 4: the row and column of PTX fragments
};

__device__ Lane lane() {
    const int l = static_cast<int>(threadIdx.x) & 31;
    return {l >> 2, l & 3};
}

// ---- FP64: a register i holds row group + 8 (i odd), k = quad + 4 (i / 2); m8n8k4 has one.
template <int M, int K>
struct Fp64 {
    using A = double;
    using C = double;
    static constexpr int m = M, n = 8, k = K, threads = 32;
    static constexpr int na = M * K / 32, nb = K / 4, nc = M / 4;
    __device__ static void run(const double* a, const double* b, const double* c, double* d) {
        const Lane t = lane();
        double fa[na], fb[nb], fc[nc];
        for (int i = 0; i < na; ++i) {
            const int row = M == 8 ? t.group : t.group + 8 * (i & 1);
            const int col = M == 8 ? t.quad : t.quad + 4 * (i >> 1);
            fa[i] = a[row * K + col];
        }
        for (int i = 0; i < nb; ++i) fb[i] = b[t.group * K + t.quad + 4 * i];
        for (int i = 0; i < nc; ++i) fc[i] = c[(t.group + 8 * (i >> 1)) * 8 + t.quad * 2 + (i & 1)];
        step(fa, fb, fc);
        for (int i = 0; i < nc; ++i) d[(t.group + 8 * (i >> 1)) * 8 + t.quad * 2 + (i & 1)] = fc[i];
    }
    __device__ static void step(const double* a, const double* b, double* c) {
        if constexpr (M == 8) {
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
                         : "+d"(c[0]), "+d"(c[1])
                         : "d"(a[0]), "d"(b[0]));
        } else if constexpr (K == 4) {
            asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                         : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                         : "d"(a[0]), "d"(a[1]), "d"(b[0]));
        } else if constexpr (K == 8) {
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
                         "{%0,%1,%2,%3};"
                         : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                         : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
        } else {
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},"
                         "{%4,%5,%6,%7,%8,%9,%10,%11},{%12,%13,%14,%15},{%0,%1,%2,%3};"
                         : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                         : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
                           "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
        }
    }
};

// The same tiles through scalar DFMA in ascending k: what mma.f64 is compared with.
template <int M, int K>
struct FmaChain : Fp64<M, K> {
    __device__ static void run(const double* a, const double* b, const double* c, double* d) {
        for (int i = static_cast<int>(threadIdx.x); i < M * 8; i += 32) {
            double acc = c[i];
            for (int k = 0; k < K; ++k) acc = __fma_rn(a[i / 8 * K + k], b[i % 8 * K + k], acc);
            d[i] = acc;
        }
    }
};

// ---- 8-bit operands
template <int K>
struct Bytes {
    using A = uint8_t;
    static constexpr int m = 16, n = 8, k = K, threads = 32;
    static constexpr int na = K / 8, nb = K / 16;
    __device__ static void load(const uint8_t* a, const uint8_t* b, uint32_t* fa, uint32_t* fb) {
        const Lane t = lane();
        for (int i = 0; i < na; ++i) fa[i] = pack4(a + (t.group + 8 * (i & 1)) * K + t.quad * 4 + 16 * (i >> 1));
        for (int i = 0; i < nb; ++i) fb[i] = pack4(b + t.group * K + t.quad * 4 + 16 * i);
    }
};

template <class C>
struct Accumulator;
template <>
struct Accumulator<float> {
    float v[4];
    __device__ void load(const float* c, int row) {
        const Lane t = lane();
        for (int i = 0; i < 4; ++i) v[i] = c[(row + t.group + 8 * (i >> 1)) * 8 + t.quad * 2 + (i & 1)];
    }
    __device__ void store(float* d, int row) const {
        const Lane t = lane();
        for (int i = 0; i < 4; ++i) d[(row + t.group + 8 * (i >> 1)) * 8 + t.quad * 2 + (i & 1)] = v[i];
    }
};
template <>
struct Accumulator<__half> {
    uint32_t v[2];
    __device__ void load(const __half* c, int row) {
        const Lane t = lane();
        for (int i = 0; i < 2; ++i) {
            const __half* p = c + (row + t.group + 8 * i) * 8 + t.quad * 2;
            v[i] = pack_half(p, p + 1);
        }
    }
    __device__ void store(__half* d, int row) const {
        const Lane t = lane();
        for (int i = 0; i < 2; ++i) {
            __half* p = d + (row + t.group + 8 * i) * 8 + t.quad * 2;
            unpack_half(v[i], p, p + 1);
        }
    }
};

#define MMA_FP8(NAME, K_, C_, D_TEXT, A_TEXT, B_TEXT, BODY)                                      \
    struct NAME : Bytes<K_> {                                                                    \
        using C = C_;                                                                            \
        __device__ static void run(const uint8_t* a, const uint8_t* b, const C* c, C* d) {       \
            uint32_t fa[na], fb[nb];                                                             \
            load(a, b, fa, fb);                                                                  \
            Accumulator<C> acc;                                                                  \
            acc.load(c, 0);                                                                      \
            BODY("mma.sync.aligned.m16n8k" #K_ ".row.col." D_TEXT "." A_TEXT "." B_TEXT "." D_TEXT); \
            acc.store(d, 0);                                                                     \
        }                                                                                        \
    };

#define BODY_F32_K32(TEXT)                                                                              \
    asm volatile(TEXT " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"                             \
                 : "+f"(acc.v[0]), "+f"(acc.v[1]), "+f"(acc.v[2]), "+f"(acc.v[3])                       \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]))
#define BODY_F16_K32(TEXT)                                                                              \
    asm volatile(TEXT " {%0,%1},{%2,%3,%4,%5},{%6,%7},{%0,%1};"                                         \
                 : "+r"(acc.v[0]), "+r"(acc.v[1])                                                       \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]))
#define BODY_F32_K16(TEXT)                                                                              \
    asm volatile(TEXT " {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"                                      \
                 : "+f"(acc.v[0]), "+f"(acc.v[1]), "+f"(acc.v[2]), "+f"(acc.v[3])                       \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fb[0]))
#define BODY_F16_K16(TEXT)                                                                              \
    asm volatile(TEXT " {%0,%1},{%2,%3},{%4},{%0,%1};"                                                  \
                 : "+r"(acc.v[0]), "+r"(acc.v[1])                                                       \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fb[0]))

MMA_FP8(k32_f32_e5m2_e4m3, 32, float, "f32", "e5m2", "e4m3", BODY_F32_K32)
MMA_FP8(k32_f16_e4m3_e5m2, 32, __half, "f16", "e4m3", "e5m2", BODY_F16_K32)
MMA_FP8(k32_f16_e5m2_e4m3, 32, __half, "f16", "e5m2", "e4m3", BODY_F16_K32)
MMA_FP8(k16_f32_e5m2_e5m2, 16, float, "f32", "e5m2", "e5m2", BODY_F32_K16)
MMA_FP8(k16_f32_e4m3_e5m2, 16, float, "f32", "e4m3", "e5m2", BODY_F32_K16)
MMA_FP8(k16_f32_e5m2_e4m3, 16, float, "f32", "e5m2", "e4m3", BODY_F32_K16)
MMA_FP8(k16_f16_e4m3_e4m3, 16, __half, "f16", "e4m3", "e4m3", BODY_F16_K16)
MMA_FP8(k16_f16_e5m2_e5m2, 16, __half, "f16", "e5m2", "e5m2", BODY_F16_K16)
MMA_FP8(k16_f16_e4m3_e5m2, 16, __half, "f16", "e4m3", "e5m2", BODY_F16_K16)
MMA_FP8(k16_f16_e5m2_e4m3, 16, __half, "f16", "e5m2", "e4m3", BODY_F16_K16)

// ---- wgmma m64n8k32, 8-bit
__device__ uint64_t b_descriptor(const void* shared) {
    const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
    const uint64_t stride = 128 >> 4;  // the two core matrices (8 columns x 16 bytes of k) lie 128 bytes apart
    return ((address & 0x3FFFF) >> 4) | stride << 16 | stride << 32;
}

#define WGMMA_FP8(NAME, C_, D_TEXT, A_TEXT, B_TEXT, BODY)                                            \
    struct NAME {                                                                                    \
        using A = uint8_t;                                                                           \
        using C = C_;                                                                                \
        static constexpr int m = 64, n = 8, k = 32, threads = 128;                                   \
        __device__ static void run(const uint8_t* a, const uint8_t* b, const C* c, C* d) {           \
            __shared__ alignas(128) uint8_t tile[256];                                               \
            const int x = static_cast<int>(threadIdx.x);                                             \
            for (int i = x; i < 256; i += 128) {                                                     \
                const int column = i / 32, depth = i % 32;                                           \
                tile[depth / 16 * 128 + column * 16 + depth % 16] = b[i];                            \
            }                                                                                        \
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                             \
            __syncthreads();                                                                         \
            const int row = x / 32 * 16;                                                             \
            uint32_t fa[4], unused[2];                                                               \
            Bytes<32>::load(a + row * 32, b, fa, unused);                                            \
            Accumulator<C> acc;                                                                      \
            acc.load(c, row);                                                                        \
            const uint64_t descriptor = b_descriptor(tile);                                          \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                  \
            BODY("wgmma.mma_async.sync.aligned.m64n8k32." D_TEXT "." A_TEXT "." B_TEXT);             \
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                           \
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                           \
            acc.store(d, row);                                                                       \
        }                                                                                            \
    };
#define BODY_W32(TEXT)                                                                               \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; " TEXT                                         \
                 " {%0,%1,%2,%3},{%4,%5,%6,%7}, %8, p, 1, 1;}"                                       \
                 : "+f"(acc.v[0]), "+f"(acc.v[1]), "+f"(acc.v[2]), "+f"(acc.v[3])                    \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "l"(descriptor))
#define BODY_W16(TEXT)                                                                               \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; " TEXT                                         \
                 " {%0,%1},{%2,%3,%4,%5}, %6, p, 1, 1;}"                                             \
                 : "+r"(acc.v[0]), "+r"(acc.v[1])                                                    \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "l"(descriptor))

WGMMA_FP8(w32_f32_e4m3_e4m3, float, "f32", "e4m3", "e4m3", BODY_W32)
WGMMA_FP8(w32_f32_e5m2_e4m3, float, "f32", "e5m2", "e4m3", BODY_W32)
WGMMA_FP8(w32_f16_e4m3_e5m2, __half, "f16", "e4m3", "e5m2", BODY_W16)
WGMMA_FP8(w32_f16_e5m2_e4m3, __half, "f16", "e5m2", "e4m3", BODY_W16)

template <class I>
__global__ void kernel(const typename I::A* a, const typename I::A* b, const typename I::C* c, typename I::C* d) {
    const int t = static_cast<int>(blockIdx.x);
    I::run(a + t * I::m * I::k, b + t * I::n * I::k, c + t * I::m * I::n, d + t * I::m * I::n);
}

template <class T>
T* upload(const void* host, size_t count) {
    T* device = nullptr;
    if (cudaMalloc(&device, count * sizeof(T)) != cudaSuccess) return nullptr;
    if (host != nullptr) cudaMemcpy(device, host, count * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}

template <class I>
int run(int tiles, const void* a, const void* b, const void* c, void* d) {
    const size_t t = static_cast<size_t>(tiles);
    auto* da = upload<typename I::A>(a, t * I::m * I::k);
    auto* db = upload<typename I::A>(b, t * I::n * I::k);
    auto* dc = upload<typename I::C>(c, t * I::m * I::n);
    auto* dd = upload<typename I::C>(nullptr, t * I::m * I::n);
    kernel<I><<<tiles, I::threads>>>(da, db, dc, dd);
    const cudaError_t launched = cudaDeviceSynchronize();
    cudaMemcpy(d, dd, t * I::m * I::n * sizeof(typename I::C), cudaMemcpyDeviceToHost);
    cudaFree(da), cudaFree(db), cudaFree(dc), cudaFree(dd);
    return static_cast<int>(launched != cudaSuccess ? launched : cudaGetLastError());
}

struct Entry {
    const char* name;
    int (*run)(int, const void*, const void*, const void*, void*);
};
const Entry entries[] = {
    {"mma.m8n8k4.f64.f64.f64.f64", run<Fp64<8, 4>>},
    {"mma.m16n8k4.f64.f64.f64.f64", run<Fp64<16, 4>>},
    {"mma.m16n8k8.f64.f64.f64.f64", run<Fp64<16, 8>>},
    {"mma.m16n8k16.f64.f64.f64.f64", run<Fp64<16, 16>>},
    {"fma_chain.m8n8k4", run<FmaChain<8, 4>>},
    {"fma_chain.m16n8k4", run<FmaChain<16, 4>>},
    {"fma_chain.m16n8k8", run<FmaChain<16, 8>>},
    {"fma_chain.m16n8k16", run<FmaChain<16, 16>>},
    {"mma.m16n8k32.f32.e5m2.e4m3.f32", run<k32_f32_e5m2_e4m3>},
    {"mma.m16n8k32.f16.e4m3.e5m2.f16", run<k32_f16_e4m3_e5m2>},
    {"mma.m16n8k32.f16.e5m2.e4m3.f16", run<k32_f16_e5m2_e4m3>},
    {"mma.m16n8k16.f32.e5m2.e5m2.f32", run<k16_f32_e5m2_e5m2>},
    {"mma.m16n8k16.f32.e4m3.e5m2.f32", run<k16_f32_e4m3_e5m2>},
    {"mma.m16n8k16.f32.e5m2.e4m3.f32", run<k16_f32_e5m2_e4m3>},
    {"mma.m16n8k16.f16.e4m3.e4m3.f16", run<k16_f16_e4m3_e4m3>},
    {"mma.m16n8k16.f16.e5m2.e5m2.f16", run<k16_f16_e5m2_e5m2>},
    {"mma.m16n8k16.f16.e4m3.e5m2.f16", run<k16_f16_e4m3_e5m2>},
    {"mma.m16n8k16.f16.e5m2.e4m3.f16", run<k16_f16_e5m2_e4m3>},
    {"wgmma.m64n8k32.f32.e4m3.e4m3", run<w32_f32_e4m3_e4m3>},
    {"wgmma.m64n8k32.f32.e5m2.e4m3", run<w32_f32_e5m2_e4m3>},
    {"wgmma.m64n8k32.f16.e4m3.e5m2", run<w32_f16_e4m3_e5m2>},
    {"wgmma.m64n8k32.f16.e5m2.e4m3", run<w32_f16_e5m2_e4m3>},
};

}  // namespace

// 0, a CUDA error code, or -1 for an unknown instruction.
extern "C" int capture_run(const char* name, int tiles, const void* a, const void* b, const void* c, void* d) {
    for (const Entry& e : entries)
        if (std::strcmp(e.name, name) == 0) return e.run(tiles, a, b, c, d);
    return -1;
}
