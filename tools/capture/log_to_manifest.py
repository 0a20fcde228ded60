"""Turns a cuBLASLt log and dumped tensors into a replay manifest. Standard library only.

    python3 log_to_manifest.py LOG TENSORS.safetensors OUT.json --gpu h200 [--kernels KERNELS.json] [--names A B ...]

LOG: the file that CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE=... wrote while the products ran.
TENSORS: for each product, in the order of the calls, NAME.x [M, K] and NAME.w [N, K] (F.linear), or NAME.a and NAME.b
(torch.matmul, bmm), its output NAME.y, and what it had of NAME.bias, NAME.c (addmm, baddbmm), NAME.x_scale and
NAME.w_scale (_scaled_mm). The file's metadata may hold NAME.alpha and NAME.beta.
Names are sorted as people sort them (q2 before q10) and matched with the calls in order, or listed with --names.
KERNELS.json: a list with, for each product, its CUDA kernel names, each alone or as [name, grid]; some orders of summation
cannot be told without them, and bitreplay then says so.
"""
import argparse
import json
import math
import os
import re
import struct
import sys

from cublaslt_log import log_line, parse_log

INPUTS = ("x", "w", "a", "b", "bias", "c", "x_scale", "w_scale")
FP8 = ("F8_E4M3", "F8_E5M2")


def fail(reason):
    sys.exit(f"log_to_manifest: {reason}")


def header(path):
    """Tensor entries and metadata of a safetensors file."""
    try:
        with open(path, "rb") as f:
            entries = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    except (OSError, ValueError, struct.error) as error:
        fail(f"{path}: {error}")
    return entries, entries.pop("__metadata__", {})


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def launches(kernels):
    """Kernel names, and the parameters that only a launch tells."""
    names = [k if isinstance(k, str) else k[0] for k in kernels]
    names = [name for name in names if not name.startswith("void at::native")]  # torch's own copies
    for kernel in kernels:
        if not isinstance(kernel, str) and "_segment_k_on_" in kernel[0]:
            return names, {"ctas": kernel[1][0] * kernel[1][1] * kernel[1][2]}
    return names, {}


def operation(name, entries, metadata, entry, kernels):
    has = {part: f"{name}.{part}" for part in INPUTS if f"{name}.{part}" in entries}
    if not ({"x", "w"} <= has.keys() or {"a", "b"} <= has.keys()):
        fail(f"{name}: neither {name}.x and {name}.w nor {name}.a and {name}.b are dumped")
    output = entries[f"{name}.y"]
    m, n = entry.get("shape", (1, 1))
    if math.prod(output["shape"]) % (m * n) != 0 or (n != 1 and output["shape"][-1] != n):
        fail(f"{name}: the output is {output['shape']}, the log says {[m, n]}: another call?")
    op = {"id": name, "op": "linear" if "x" in has else "matmul", "in": has, "out_dtype": output["dtype"],
          "cublaslt": log_line(entry), "params": {}, "expect": {"tensor": f"{name}.y"}}
    if "x" in has and entries[has["x"]]["dtype"] in FP8:
        op["op"] = "scaled_linear"
    for key in ("alpha", "beta"):
        if f"{name}.{key}" in metadata:
            op["params"][key] = float(metadata[f"{name}.{key}"])
    if kernels:
        op["kernel_names"], more = launches(kernels)
        op["params"].update(more)
    return op


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("tensors")
    parser.add_argument("out")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--kernels")
    parser.add_argument("--names", nargs="+")
    args = parser.parse_args()
    try:
        with open(args.log, errors="replace") as f:
            log = parse_log(f.read())
        kernels = json.load(open(args.kernels)) if args.kernels else [None] * len(log)
    except (OSError, ValueError) as error:
        fail(error)
    entries, metadata = header(args.tensors)
    names = args.names or sorted({key[:-2] for key in entries if key.endswith(".y")}, key=natural)
    for name in names:
        if f"{name}.y" not in entries:
            fail(f"{args.tensors}: no tensor {name}.y")
    if len(names) != len(log) or len(names) != len(kernels):
        fail(f"{len(names)} outputs are dumped, {len(log)} products are in the log, {len(kernels)} in the list of kernels")
    ops = [operation(name, entries, metadata, entry, launched) for name, entry, launched in zip(names, log, kernels)]
    used = sorted({key for op in ops for key in (*op["in"].values(), op["expect"]["tensor"])})
    file = os.path.relpath(args.tensors, os.path.dirname(args.out) or ".")
    manifest = {"bitreplay": 1, "gpu": args.gpu, "tensors": {key: {"file": file, "key": key} for key in used}, "ops": ops}
    with open(args.out, "w") as f:
        json.dump(manifest, f, indent=1)
        f.write("\n")
    print(f"{args.out}: {len(ops)} products")


if __name__ == "__main__":
    main()
