"""cuBLASLt through ctypes: runs a matrix product with a chosen algorithm, tile, split, reduction, cluster and so on.

The library's heuristic picks a small part of what it can run; probes choose for themselves. Names of tiles, stages and
clusters are read from cublasLt.h: the file CUBLASLT_HEADER, or the first found under /usr and /opt.
"""
import ctypes as C
import os
import re
import subprocess

import torch

lib = C.CDLL("libcublasLt.so.13")
HEADER = os.environ.get("CUBLASLT_HEADER") or subprocess.run(
    ["find", "/usr", "/opt", "-name", "cublasLt.h"], capture_output=True, text=True).stdout.split()[0]
with open(HEADER, errors="replace") as _file:
    _NUMBERS = re.findall(r"\b(CUBLASLT_[A-Za-z0-9_]+)\s*=\s*(\d+)\b", _file.read())


def _names(prefix):
    return {int(number): name[len(prefix):] for name, number in _NUMBERS if name.startswith(prefix)}


TILES, STAGES = _names("CUBLASLT_MATMUL_TILE_"), _names("CUBLASLT_MATMUL_STAGES_")
CLUSTERS, INNER = _names("CUBLASLT_CLUSTER_SHAPE_"), _names("CUBLASLT_MATMUL_INNER_SHAPE_")
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28,
         torch.float8_e5m2: 29}
COMPUTE = {"16F": 64, "32F": 68, "64F": 70, "TF32": 77}
SCALE = {"16F": torch.float16, "32F": torch.float32, "64F": torch.float64, "TF32": torch.float32}
EPILOGUES = {"default": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36}
# configuration of an algorithm: number of the attribute and its type
CONFIG = {"id": (0, C.c_int32), "tile": (1, C.c_uint32), "split": (2, C.c_int32), "scheme": (3, C.c_uint32),
          "swizzle": (4, C.c_uint32), "option": (5, C.c_uint32), "stages": (6, C.c_uint32), "inner": (7, C.c_uint16),
          "cluster": (8, C.c_uint16)}
TILE_IDS, STAGES_IDS = 6, 13  # capabilities


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


handle = C.c_void_p()
check(lib.cublasLtCreate(C.byref(handle)), "create")
workspace = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")


def get(algo, name):
    number, kind = CONFIG[name]
    value, written = kind(), C.c_size_t()
    status = lib.cublasLtMatmulAlgoConfigGetAttribute(C.byref(algo), number, C.byref(value), _size(value), C.byref(written))
    return value.value if status == 0 else None


def describe(algo):
    out = {name: get(algo, name) for name in CONFIG}
    for name, names in (("tile", TILES), ("stages", STAGES), ("cluster", CLUSTERS), ("inner", INNER)):
        out[name] = names.get(out[name], out[name])
    return out


def capability(algo, number):
    """The list of tiles or stages that an algorithm knows."""
    buffer, written = (C.c_uint32 * 512)(), C.c_size_t()
    status = lib.cublasLtMatmulAlgoCapGetAttribute(C.byref(algo), number, buffer, _size(buffer), C.byref(written))
    return list(buffer[:written.value // 4]) if status == 0 else []


class Problem:
    """out[M,N] = alpha·x[M,K]·w[N,K]ᵀ + beta·c, row-major; nn: w is [K,N]. The library's matrices are column-major, so its
    first operand is w and its m is N."""

    def __init__(self, x, w, out, c=None, compute="32F", epilogue="default", bias=None, nn=False):
        self.x, self.w, self.out, self.c, self.bias = x, w, out, out if c is None else c, bias
        self.scale = SCALE[compute]
        M, K = x.shape
        N = w.shape[1] if nn else w.shape[0]
        self.desc = C.c_void_p()
        check(lib.cublasLtMatmulDescCreate(C.byref(self.desc), COMPUTE[compute], TYPES[self.scale]), "desc")
        for number, value in ((3, C.c_int32(0 if nn else 1)), (4, C.c_int32(0)), (7, C.c_int32(EPILOGUES[epilogue])),
                              *([] if bias is None else [(8, C.c_void_p(bias.data_ptr()))])):
            check(lib.cublasLtMatmulDescSetAttribute(self.desc, number, C.byref(value), _size(value)), "desc attribute")
        self.layouts = [self._layout(w, *((N, K) if nn else (K, N))), self._layout(x, K, M), self._layout(self.c, N, M),
                        self._layout(out, N, M)]
        self.types = (COMPUTE[compute], *(TYPES[t] for t in (self.scale, w.dtype, x.dtype, self.c.dtype, out.dtype)))

    @staticmethod
    def _layout(tensor, rows, cols):
        layout = C.c_void_p()
        check(lib.cublasLtMatrixLayoutCreate(C.byref(layout), TYPES[tensor.dtype], C.c_uint64(rows), C.c_uint64(cols),
                                             C.c_int64(rows)), "layout")
        return layout

    def algorithms(self):
        """Numbers (algoId) of all algorithms for these types."""
        buffer, count = (C.c_int * 128)(), C.c_int()
        check(lib.cublasLtMatmulAlgoGetIds(handle, *self.types, 128, buffer, C.byref(count)), "ids")
        return list(buffer[:count.value])

    def start(self, number):
        algo = Algorithm()
        check(lib.cublasLtMatmulAlgoInit(handle, *self.types, number, C.byref(algo)), "init")
        return algo

    def choose(self, number, **config):
        """An algorithm with these settings (None: the default), or None if it does not take them or the problem."""
        algo = self.start(number)
        for name, value in config.items():
            if value is None:
                continue
            attribute, kind = CONFIG[name]
            value = kind(value)
            if lib.cublasLtMatmulAlgoConfigSetAttribute(C.byref(algo), attribute, C.byref(value), _size(value)) != 0:
                return None
        return algo if self.workspace_of(algo) is not None else None

    def workspace_of(self, algo):
        """Bytes that the algorithm asks for; None if it cannot run the problem."""
        result = Heuristic()
        status = lib.cublasLtMatmulAlgoCheck(handle, self.desc, *self.layouts, C.byref(algo), C.byref(result))
        return None if status != 0 or result.workspace > workspace.numel() else result.workspace

    def heuristic(self, limit=32 << 20):
        """The library's own choice, None if it has none."""
        preference, most = C.c_void_p(), C.c_size_t(limit)
        check(lib.cublasLtMatmulPreferenceCreate(C.byref(preference)), "preference")
        check(lib.cublasLtMatmulPreferenceSetAttribute(preference, 1, C.byref(most), _size(most)), "workspace limit")
        result, count = Heuristic(), C.c_int()
        status = lib.cublasLtMatmulAlgoGetHeuristic(handle, self.desc, *self.layouts, preference, 1, C.byref(result), C.byref(count))
        lib.cublasLtMatmulPreferenceDestroy(preference)
        return Algorithm.from_buffer_copy(result.algo) if status == 0 and count.value == 1 else None

    def _scalar(self, value):
        if self.scale is torch.float16:
            return C.c_uint16(torch.tensor(value, dtype=torch.float16).view(torch.int16).item() & 0xFFFF)
        return C.c_double(value) if self.scale is torch.float64 else C.c_float(value)

    def run(self, algo, alpha=1.0, beta=0.0):
        """Whether the library ran it."""
        a, b = self._scalar(alpha), self._scalar(beta)
        A, B, Cc, D = self.layouts
        pointers = [C.c_void_p(t.data_ptr()) for t in (self.w, self.x, self.c, self.out, workspace)]
        return lib.cublasLtMatmul(handle, self.desc, C.byref(a), pointers[0], A, pointers[1], B, C.byref(b), pointers[2], Cc,
                                  pointers[3], D, C.byref(algo), pointers[4], C.c_size_t(workspace.numel()),
                                  C.c_void_p(torch.cuda.current_stream().cuda_stream)) == 0

    def __del__(self):
        lib.cublasLtMatmulDescDestroy(self.desc)
        for layout in getattr(self, "layouts", []):
            lib.cublasLtMatrixLayoutDestroy(layout)
