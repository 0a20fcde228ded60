"""Which CUDA kernels and which cuBLASLt algorithms a piece of PyTorch code ran.

Import this module before torch makes its first cuBLAS call: the log file of cuBLASLt is chosen through the
environment when the library loads.
"""
import bisect
import json
import os
import tempfile

LOG = os.environ.setdefault("CUBLASLT_LOG_FILE", os.path.join(tempfile.gettempdir(), f"cublaslt.{os.getpid()}.log"))
os.environ.setdefault("CUBLASLT_LOG_LEVEL", "5")

import torch  # noqa: E402  (after the environment)
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

from cublaslt_log import parse_log, split_k  # noqa: E402, F401  (split_k for those who import this module)


class Recorder:
    """Profiles everything inside `with recorder:`; `with recorder.mark(name):` names the spans. Spans nest.

    After the block, `kernels` is the list of (name, grid, block, shared_bytes, marks) in launch order, with marks the
    names of the spans around the launch, outermost first, and `log[name]` the cuBLASLt entries of a span."""

    def __init__(self, prefix="mark:"):
        self.prefix = prefix
        self.log = {}
        self.kernels = []
        self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])

    def __enter__(self):
        torch.cuda.synchronize()
        self._profile.__enter__()
        return self

    def __exit__(self, *error):
        torch.cuda.synchronize()
        self._profile.__exit__(*error)
        if error[0] is None:
            path = tempfile.mktemp(suffix=".json")
            self._profile.export_chrome_trace(path)
            with open(path) as f:
                self._read(json.load(f)["traceEvents"])
            os.remove(path)

    def mark(self, name):
        return _Mark(self, name)

    def by_mark(self):
        """Kernels as [name, grid, block, shared_bytes] by the innermost span around their launch."""
        out = {}
        for *kernel, marks in self.kernels:
            if marks:
                out.setdefault(marks[-1], []).append(kernel)
        return out

    def _read(self, events):
        launches = {}
        spans = []
        kernels = []
        for e in events:
            category = e.get("cat")
            if category in ("cuda_runtime", "cuda_driver"):
                launches[e["args"].get("correlation")] = e["ts"]
            elif category == "user_annotation" and e["name"].startswith(self.prefix):
                spans.append((e["ts"], e["ts"] + e["dur"], e["name"][len(self.prefix):]))
            elif category == "kernel":
                kernels.append(e)
        spans.sort(key=lambda s: (s[0], -s[1]))
        starts = [s[0] for s in spans]
        parents = []
        open_spans = []
        for i, span in enumerate(spans):
            while open_spans and spans[open_spans[-1]][1] < span[1]:
                open_spans.pop()
            parents.append(open_spans[-1] if open_spans else None)
            open_spans.append(i)
        found = []
        for e in kernels:
            args = e["args"]
            at = launches.get(args.get("correlation"), e["ts"])
            i = bisect.bisect_right(starts, at) - 1
            while i is not None and i >= 0 and spans[i][1] < at:
                i = parents[i]
            marks = []
            while i is not None and i >= 0:
                marks.insert(0, spans[i][2])
                i = parents[i]
            found.append((at, (e["name"], args["grid"], args["block"], args.get("shared memory", 0), marks)))
        self.kernels = [kernel for _, kernel in sorted(found, key=lambda k: k[0])]


class _Mark:
    def __init__(self, recorder, name):
        self.recorder = recorder
        self.name = name
        self.span = record_function(recorder.prefix + name)

    def __enter__(self):
        self.offset = os.path.getsize(LOG) if os.path.exists(LOG) else 0
        self.span.__enter__()

    def __exit__(self, *error):
        self.span.__exit__(*error)
        if os.path.exists(LOG):
            with open(LOG, errors="replace") as f:
                f.seek(self.offset)
                entries = parse_log(f.read())
            if entries:
                self.recorder.log.setdefault(self.name, []).extend(entries)


def environment():
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cublasLt": ".".join(map(str, _cublaslt_version())),
    }


def _cublaslt_version():
    import ctypes
    try:
        lib = ctypes.CDLL("libcublasLt.so.13")
        lib.cublasLtGetVersion.restype = ctypes.c_size_t
        v = lib.cublasLtGetVersion()
        return v // 10000, v // 100 % 100, v % 100
    except OSError:
        return ("unknown",)
