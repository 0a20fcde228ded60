"""Calls cuBLASLt through ctypes: runs a matrix product with an algorithm, tile, split, cluster and so on of the caller's choice.

The library's heuristic, which PyTorch asks, picks a small part of what the library can run.
"""
import ctypes as C
import functools
import os
import re
import subprocess

import torch

lib = C.CDLL("libcublasLt.so.13")

TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28,
         torch.float8_e5m2: 29}
COMPUTE = {"16F": (64, torch.float16), "32F": (68, torch.float32), "64F": (70, torch.float64),
           "TF32": (77, torch.float32)}  # and the type of alpha and beta
EPILOGUES = {"default": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36}
SCHEMES = {"NONE": 0, "INPLACE": 1, "COMPUTE_TYPE": 2, "OUTPUT_TYPE": 4}
# Settings of an algorithm: number of the attribute and its type.
CONFIG = {"id": (0, C.c_int32), "tile": (1, C.c_uint32), "split": (2, C.c_int32), "scheme": (3, C.c_uint32),
          "swizzle": (4, C.c_uint32), "option": (5, C.c_uint32), "stages": (6, C.c_uint32), "inner": (7, C.c_uint16),
          "cluster": (8, C.c_uint16)}
CAPABILITIES = {"tile": 6, "stages": 13}
# Attributes of a product and of a matrix.
TRANS_A, TRANS_B, EPILOGUE, BIAS = 3, 4, 7, 8
BATCH_COUNT, BATCH_STRIDE = 5, 6
MAX_WORKSPACE = 1  # of a heuristic's preference
NAMED = {"tile": "CUBLASLT_MATMUL_TILE_", "stages": "CUBLASLT_MATMUL_STAGES_", "cluster": "CUBLASLT_CLUSTER_SHAPE_",
         "inner": "CUBLASLT_MATMUL_INNER_SHAPE_"}


class Algorithm(C.Structure):
    _fields_ = [("data", C.c_uint64 * 8)]


class Heuristic(C.Structure):
    _fields_ = [("algo", Algorithm), ("workspace", C.c_size_t), ("state", C.c_int), ("waves", C.c_float),
                ("reserved", C.c_int * 4)]


def check(status, what):
    if status != 0:
        raise RuntimeError(f"cublasLt: {what}: status {status}")


def _size(value):
    return C.c_size_t(C.sizeof(value))


@functools.cache
def _handle():
    handle = C.c_void_p()
    check(lib.cublasLtCreate(C.byref(handle)), "create")
    return handle


@functools.cache
def _workspace(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@functools.cache
def _header():
    """(name, number) of the constants in cublasLt.h: the file CUBLASLT_HEADER, or the first found under /usr and /opt."""
    path = os.environ.get("CUBLASLT_HEADER") or subprocess.run(
        ["find", "/usr", "/opt", "-name", "cublasLt.h"], capture_output=True, text=True).stdout.split()[0]
    with open(path, errors="replace") as f:
        return re.findall(r"\b(CUBLASLT_[A-Za-z0-9_]+)\s*=\s*(\d+)\b", f.read())


@functools.cache
def names(setting):
    """The names of a setting's numbers ("tile", "stages", "cluster" or "inner"), from the header."""
    prefix = NAMED[setting]
    return {int(number): name[len(prefix):] for name, number in _header() if name.startswith(prefix)}


def get(algo, setting):
    """None if the algorithm does not have it."""
    number, kind = CONFIG[setting]
    value, written = kind(), C.c_size_t()
    status = lib.cublasLtMatmulAlgoConfigGetAttribute(C.byref(algo), number, C.byref(value), _size(value), C.byref(written))
    return value.value if status == 0 else None


def describe(algo):
    """All settings of an algorithm, by name where the header has one."""
    out = {setting: get(algo, setting) for setting in CONFIG}
    for setting in NAMED:
        out[setting] = names(setting).get(out[setting], out[setting])
    return out


def capability(algo, setting):
    """The list of tiles or stages that an algorithm knows."""
    buffer, written = (C.c_uint32 * 512)(), C.c_size_t()
    status = lib.cublasLtMatmulAlgoCapGetAttribute(C.byref(algo), CAPABILITIES[setting], buffer, _size(buffer), C.byref(written))
    return list(buffer[:written.value // 4]) if status == 0 else []


class Problem:
    """out[M, N] = alpha·x[M, K]·w[N, K]ᵀ + beta·c[M, N], row-major, in batches (3 dimensions) or not; c is out if not given.

    trans_w: w is [N, K], else [K, N]; trans_x: x is [K, M], else [M, K]. The library's matrices are column-major, so its A is w,
    its B is x, and its m is N. workspace: the bytes that an algorithm may use.
    """

    def __init__(self, x, w, out, c=None, compute="32F", epilogue="default", bias=None, trans_w=True, trans_x=False,
                 workspace=64 << 20):
        self.desc, self.layouts = C.c_void_p(), []
        self.x, self.w, self.out, self.c, self.bias = x, w, out, out if c is None else c, bias
        self.workspace = _workspace(workspace)
        number, self.scale = COMPUTE[compute]
        self.types = (number, *(TYPES[t] for t in (self.scale, w.dtype, x.dtype, self.c.dtype, out.dtype)))
        check(lib.cublasLtMatmulDescCreate(C.byref(self.desc), *self.types[:2]), "desc")
        settings = {TRANS_A: C.c_int32(trans_w), TRANS_B: C.c_int32(trans_x), EPILOGUE: C.c_int32(EPILOGUES[epilogue])}
        if bias is not None:
            settings[BIAS] = C.c_void_p(bias.data_ptr())
        for attribute, value in settings.items():
            check(lib.cublasLtMatmulDescSetAttribute(self.desc, attribute, C.byref(value), _size(value)), "desc attribute")
        for tensor in (w, x, self.c, out):
            self.layouts.append(self._layout(tensor))

    @staticmethod
    def _layout(tensor):
        layout = C.c_void_p()
        rows, cols = tensor.shape[-2:]
        stride = tensor.stride(-2) if rows > 1 else cols
        check(lib.cublasLtMatrixLayoutCreate(C.byref(layout), TYPES[tensor.dtype], C.c_uint64(cols), C.c_uint64(rows),
                                             C.c_int64(stride)), "layout")
        if tensor.dim() == 3:
            for attribute, value in ((BATCH_COUNT, C.c_int32(tensor.shape[0])), (BATCH_STRIDE, C.c_int64(tensor.stride(0)))):
                check(lib.cublasLtMatrixLayoutSetAttribute(layout, attribute, C.byref(value), _size(value)), "layout attribute")
        return layout

    def algorithms(self):
        """Numbers (algoId) of all algorithms for these types."""
        buffer, count = (C.c_int * 128)(), C.c_int()
        check(lib.cublasLtMatmulAlgoGetIds(_handle(), *self.types, 128, buffer, C.byref(count)), "ids")
        return list(buffer[:count.value])

    def start(self, number):
        """The algorithm of this number with its default settings, None if it does not take the types."""
        algo = Algorithm()
        status = lib.cublasLtMatmulAlgoInit(_handle(), *self.types, number, C.byref(algo))
        return algo if status == 0 else None

    def choose(self, number, **config):
        """An algorithm with these settings (None: the default), or None if it does not take them or the problem."""
        algo = self.start(number)
        if algo is None:
            return None
        for setting, value in config.items():
            if value is None:
                continue
            attribute, kind = CONFIG[setting]
            value = kind(value)
            if lib.cublasLtMatmulAlgoConfigSetAttribute(C.byref(algo), attribute, C.byref(value), _size(value)) != 0:
                return None
        return algo if self.workspace_of(algo) is not None else None

    def workspace_of(self, algo):
        """Bytes that the algorithm asks for; None if it cannot run the problem."""
        result = Heuristic()
        status = lib.cublasLtMatmulAlgoCheck(_handle(), self.desc, *self.layouts, C.byref(algo), C.byref(result))
        runs = status == 0 and result.state == 0 and result.workspace <= self.workspace.numel()
        return result.workspace if runs else None

    def heuristic(self, limit=32 << 20):
        """The library's own choice, None if it has none."""
        preference, most = C.c_void_p(), C.c_size_t(limit)
        check(lib.cublasLtMatmulPreferenceCreate(C.byref(preference)), "preference")
        check(lib.cublasLtMatmulPreferenceSetAttribute(preference, MAX_WORKSPACE, C.byref(most), _size(most)), "workspace limit")
        result, count = Heuristic(), C.c_int()
        status = lib.cublasLtMatmulAlgoGetHeuristic(_handle(), self.desc, *self.layouts, preference, 1, C.byref(result), C.byref(count))
        lib.cublasLtMatmulPreferenceDestroy(preference)
        return Algorithm.from_buffer_copy(result.algo) if status == 0 and count.value == 1 else None

    def _scalar(self, value):
        if self.scale is torch.float16:
            return C.c_uint16(torch.tensor(value, dtype=torch.float16).view(torch.int16).item() & 0xFFFF)
        return C.c_double(value) if self.scale is torch.float64 else C.c_float(value)

    def run(self, algo, alpha=1.0, beta=0.0):
        """The output, None if the library refuses."""
        a, b = self._scalar(alpha), self._scalar(beta)
        w, x, c, out, workspace = (C.c_void_p(t.data_ptr()) for t in (self.w, self.x, self.c, self.out, self.workspace))
        of_w, of_x, of_c, of_out = self.layouts
        status = lib.cublasLtMatmul(_handle(), self.desc, C.byref(a), w, of_w, x, of_x, C.byref(b), c, of_c, out, of_out,
                                    C.byref(algo), workspace, C.c_size_t(self.workspace.numel()),
                                    C.c_void_p(torch.cuda.current_stream().cuda_stream))
        return self.out if status == 0 else None

    def __del__(self):
        for layout in self.layouts:
            lib.cublasLtMatrixLayoutDestroy(layout)
        if self.desc:
            lib.cublasLtMatmulDescDestroy(self.desc)
