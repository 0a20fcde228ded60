"""Calls cuBLASLt through ctypes with an algorithm of the caller's choice, where PyTorch would ask the library's heuristic.

Matrices are given as PyTorch has them: out[M, N] = x[M, K] times w[N, K] transposed, row-major, in batches or not. The library's
A is w, its B is x, its D is out.
"""
import ctypes

import torch

TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}
COMPUTE_32F, REAL_32F, COMPUTE_64F, REAL_64F = 68, 0, 70, 1
SCHEMES = {"NONE": 0, "INPLACE": 1, "COMPUTE_TYPE": 2, "OUTPUT_TYPE": 4}
EPILOGUES = {"": 1, "bias": 4, "gelu": 32, "gelu_bias": 36}
WORKSPACE = 256 << 20


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Result(ctypes.Structure):
    _fields_ = [("algo", _Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4)]


def arithmetic(dtype):
    """The compute type and the type of alpha and beta."""
    return (COMPUTE_64F, REAL_64F) if dtype == torch.float64 else (COMPUTE_32F, REAL_32F)


class Refused(Exception):
    """The library does not run this algorithm on this problem."""


class Lt:
    def __init__(self):
        torch.zeros(1, device="cuda")
        self.lib = ctypes.CDLL("libcublasLt.so.13")
        self.handle = ctypes.c_void_p()
        self._must(self.lib.cublasLtCreate(ctypes.byref(self.handle)))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")

    @staticmethod
    def _must(status):
        if status != 0:
            raise Refused(f"cublasStatus {status}")

    def algorithms(self, in_type, out_type):
        ids, count = (ctypes.c_int * 512)(), ctypes.c_int()
        a, d = TYPES[in_type], TYPES[out_type]
        self._must(self.lib.cublasLtMatmulAlgoGetIds(self.handle, *arithmetic(in_type), a, a, d, d, 512, ids, ctypes.byref(count)))
        return list(ids[:count.value])

    def algorithm(self, in_type, out_type, number, **config):
        """config: tile, stages, split_k, reduction, swizzle, custom_option."""
        algo = _Algorithm()
        a, d = TYPES[in_type], TYPES[out_type]
        self._must(self.lib.cublasLtMatmulAlgoInit(self.handle, *arithmetic(in_type), a, a, d, d, number, ctypes.byref(algo)))
        keys = {"tile": 1, "split_k": 2, "reduction": 3, "swizzle": 4, "custom_option": 5, "stages": 6}
        for name, value in config.items():
            number = ctypes.c_uint32(SCHEMES[value] if name == "reduction" else value)
            self._must(self.lib.cublasLtMatmulAlgoConfigSetAttribute(ctypes.byref(algo), keys[name], ctypes.byref(number), 4))
        return algo

    def capability(self, algo, attribute, count=1):
        out, written = (ctypes.c_uint32 * count)(), ctypes.c_size_t()
        status = self.lib.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(algo), attribute, out, ctypes.sizeof(out), ctypes.byref(written))
        values = list(out[:written.value // 4]) if status == 0 else []
        return values if count > 1 else (values or [None])[0]

    def problem(self, x, w, out, trans_w=True, trans_x=False, bias=None, epilogue="", size=None):
        return _Problem(self, x, w, out, trans_w, trans_x, bias, epilogue, size)


class _Problem:
    """x, w: as they lie in memory: w is [N, K] if trans_w, else [K, N]; x is [K, M] if trans_x, else [M, K]; a batch first."""

    def __init__(self, lt, x, w, out, trans_w, trans_x, bias, epilogue, size):
        self.lt, self.x, self.w, self.out, self.keep, self.made = lt, x, w, out, bias, []
        lib = lt.lib
        self.desc = ctypes.c_void_p()
        lt._must(lib.cublasLtMatmulDescCreate(ctypes.byref(self.desc), *arithmetic(x.dtype)))
        settings = [(3, ctypes.c_int32(int(trans_w))), (4, ctypes.c_int32(int(trans_x))), (7, ctypes.c_int32(EPILOGUES[epilogue]))]
        if bias is not None:
            settings.append((8, ctypes.c_void_p(bias.data_ptr())))
        for attribute, value in settings:
            lt._must(lib.cublasLtMatmulDescSetAttribute(self.desc, attribute, ctypes.byref(value), ctypes.sizeof(value)))
        self.layouts = [self._layout(t) for t in (w, x, out)]

    def _layout(self, t):
        lt, layout = self.lt, ctypes.c_void_p()
        rows, cols = t.shape[-2], t.shape[-1]
        lt._must(lt.lib.cublasLtMatrixLayoutCreate(ctypes.byref(layout), TYPES[t.dtype], ctypes.c_uint64(cols), ctypes.c_uint64(rows),
                                                   ctypes.c_int64(t.stride(-2) if rows > 1 else max(cols, 1))))
        if t.dim() == 3:
            for attribute, value in ((5, ctypes.c_int32(t.shape[0])), (6, ctypes.c_int64(t.stride(0)))):
                lt._must(lt.lib.cublasLtMatrixLayoutSetAttribute(layout, attribute, ctypes.byref(value), ctypes.sizeof(value)))
        return layout

    def check(self, algo):
        result = _Result()
        a, b, d = self.layouts
        status = self.lt.lib.cublasLtMatmulAlgoCheck(self.lt.handle, self.desc, a, b, d, d, ctypes.byref(algo), ctypes.byref(result))
        return status == 0 and result.state == 0 and result.workspace <= WORKSPACE

    def run(self, algo, alpha=1.0, beta=0.0, c=None):
        """c: as out, which it may be."""
        if not self.check(algo):
            raise Refused("cublasLtMatmulAlgoCheck")
        a, b, d = self.layouts
        scalar = ctypes.c_double if self.x.dtype == torch.float64 else ctypes.c_float
        one, zero = scalar(alpha), scalar(beta)
        c = self.out if c is None else c
        self.lt._must(self.lt.lib.cublasLtMatmul(
            self.lt.handle, self.desc, ctypes.byref(one), ctypes.c_void_p(self.w.data_ptr()), a, ctypes.c_void_p(self.x.data_ptr()), b,
            ctypes.byref(zero), ctypes.c_void_p(c.data_ptr()), d, ctypes.c_void_p(self.out.data_ptr()), d, ctypes.byref(algo),
            ctypes.c_void_p(self.lt.workspace.data_ptr()), ctypes.c_size_t(WORKSPACE),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))
        return self.out

    def close(self):
        for layout in self.layouts:
            self.lt.lib.cublasLtMatrixLayoutDestroy(layout)
        self.lt.lib.cublasLtMatmulDescDestroy(self.desc)
