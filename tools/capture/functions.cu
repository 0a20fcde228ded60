// Single functions of the GPU on arrays of bit patterns, for capture_functions.py. No fast-math:
//   nvcc -O2 -shared -Xcompiler -fPIC -gencode=arch=compute_90a,code=sm_90a functions.cu -o functions.so
#include <cstdint>
#include <cstring>

namespace {

// ---- 16-bit and packed forms of the special-function unit
#define UNARY16(NAME, TEXT)                                        \
    struct NAME {                                                  \
        using T = uint16_t;                                        \
        __device__ static T run(T x) {                             \
            T y;                                                   \
            asm(TEXT " %0, %1;" : "=h"(y) : "h"(x));               \
            return y;                                              \
        }                                                          \
    };
#define UNARY32(NAME, TEXT)                                        \
    struct NAME {                                                  \
        using T = uint32_t;                                        \
        __device__ static T run(T x) {                             \
            T y;                                                   \
            asm(TEXT " %0, %1;" : "=r"(y) : "r"(x));               \
            return y;                                              \
        }                                                          \
    };
UNARY16(ex2_f16, "ex2.approx.f16")
UNARY16(ex2_bf16, "ex2.approx.ftz.bf16")
UNARY16(tanh_f16, "tanh.approx.f16")
UNARY16(tanh_bf16, "tanh.approx.bf16")
UNARY32(ex2_f16x2, "ex2.approx.f16x2")
UNARY32(ex2_bf16x2, "ex2.approx.ftz.bf16x2")
UNARY32(tanh_f16x2, "tanh.approx.f16x2")
UNARY32(tanh_bf16x2, "tanh.approx.bf16x2")

// ---- CUDA's fast intrinsics
#define INTRINSIC1(NAME, CALL)                                     \
    struct NAME {                                                  \
        using T = uint32_t;                                        \
        __device__ static T run(T x) { return __float_as_uint(CALL(__uint_as_float(x))); } \
    };
#define INTRINSIC2(NAME, CALL)                                     \
    struct NAME {                                                  \
        using T = uint32_t;                                        \
        __device__ static T run(T x, T y) { return __float_as_uint(CALL(__uint_as_float(x), __uint_as_float(y))); } \
    };
INTRINSIC1(fast_exp, __expf)
INTRINSIC1(fast_exp10, __exp10f)
INTRINSIC1(fast_log, __logf)
INTRINSIC1(fast_log2, __log2f)
INTRINSIC1(fast_log10, __log10f)
INTRINSIC1(fast_sin, __sinf)
INTRINSIC1(fast_cos, __cosf)
INTRINSIC1(fast_tan, __tanf)
INTRINSIC2(fast_divide, __fdividef)
INTRINSIC2(fast_pow, __powf)

template <class F>
__global__ void map1(const typename F::T* x, typename F::T* out, int64_t n) {
    for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += gridDim.x * int64_t{256}) out[i] = F::run(x[i]);
}

template <class F>
__global__ void map2(const typename F::T* x, const typename F::T* y, typename F::T* out, int64_t n) {
    for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += gridDim.x * int64_t{256}) out[i] = F::run(x[i], y[i]);
}

template <class F>
void run1(const void* x, const void*, void* out, int64_t n) {
    using T = typename F::T;
    map1<F><<<1024, 256>>>(static_cast<const T*>(x), static_cast<T*>(out), n);
}

template <class F>
void run2(const void* x, const void* y, void* out, int64_t n) {
    using T = typename F::T;
    map2<F><<<1024, 256>>>(static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(out), n);
}

struct Entry {
    const char* name;
    void (*run)(const void*, const void*, void*, int64_t);
};
const Entry entries[] = {
    {"ex2.approx.f16", run1<ex2_f16>},         {"ex2.approx.ftz.bf16", run1<ex2_bf16>},
    {"tanh.approx.f16", run1<tanh_f16>},       {"tanh.approx.bf16", run1<tanh_bf16>},
    {"ex2.approx.f16x2", run1<ex2_f16x2>},     {"ex2.approx.ftz.bf16x2", run1<ex2_bf16x2>},
    {"tanh.approx.f16x2", run1<tanh_f16x2>},   {"tanh.approx.bf16x2", run1<tanh_bf16x2>},
    {"__expf", run1<fast_exp>},                {"__exp10f", run1<fast_exp10>},
    {"__logf", run1<fast_log>},                {"__log2f", run1<fast_log2>},
    {"__log10f", run1<fast_log10>},            {"__sinf", run1<fast_sin>},
    {"__cosf", run1<fast_cos>},                {"__tanf", run1<fast_tan>},
    {"__fdividef", run2<fast_divide>},         {"__powf", run2<fast_pow>},
};

}  // namespace

// Device pointers; y only for two arguments. 0, a CUDA error code, or -1 for an unknown name.
extern "C" int capture_map(const char* name, const void* x, const void* y, void* out, int64_t n) {
    for (const Entry& e : entries)
        if (std::strcmp(e.name, name) == 0) {
            e.run(x, y, out, n);
            return static_cast<int>(cudaDeviceSynchronize());
        }
    return -1;
}
