#!/usr/bin/env python3
"""Writes testdata/h200/ops from the captures ops.safetensors and ops2.safetensors of PyTorch's own kernels.

usage: make_op_manifests.py CAPTURES OUT     (CAPTURES holds the two files)

Outputs are selected, copied byte by byte into OUT/ops.safetensors, and described by manifests; inputs are synthetic
tensors. Nothing is computed here.
"""
import json
import struct
import sys
from pathlib import Path

from gemm_cases import synthetic

SOFTWARE = {"torch": "2.11.0+cu130", "cuda": "13.0"}


class Capture:
    def __init__(self, path):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        self.entries = json.loads(data[8:8 + size])
        self.entries.pop("__metadata__", None)
        self.data = data[8 + size:]

    def bytes(self, name):
        begin, end = self.entries[name]["data_offsets"]
        return self.data[begin:end]


def write_safetensors(path, tensors):
    header, blob = {}, b""
    order = {"F32": 0, "BF16": 1}
    for name, (entry, data) in sorted(tensors.items(), key=lambda item: (order[item[1][0]["dtype"]], item[0])):
        header[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


class Manifest:
    def __init__(self):
        self.tensors, self.ops = {}, []

    def synthetic(self, name, seed, shape, dtype="fp32", exp2=0, plus=None):
        self.tensors[name] = synthetic(seed, exp2, dtype, shape, **({} if plus is None else {"plus": plus}))
        return name

    def stored(self, name):
        self.tensors[name] = {"file": "ops.safetensors", "key": name}
        return {"tensor": name}

    def op(self, identifier, op, inputs, out_dtype, params=None, expect=None):
        row = {"id": identifier, "op": op, "in": inputs, "out": "out:" + identifier, "out_dtype": out_dtype}
        if params:
            row["params"] = params
        if expect:
            row["expect"] = expect
        self.ops.append(row)
        return row["out"]

    def write(self, path):
        head = {"bitreplay": 1, "gpu": "h200", "software": SOFTWARE}
        lines = ["{"] + [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        lines.append(' "tensors": {')
        lines.append(",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in self.tensors.items()))
        lines.append(' },\n "ops": [')
        lines.append(",\n".join("  " + json.dumps(op) for op in self.ops))
        lines.append(" ]\n}\n")
        path.write_text("\n".join(lines))


def sha(capture, name):
    return {"sha256": capture.bytes(name).hex()}


def main():
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    ops, ops2 = Capture(source / "ops.safetensors"), Capture(source / "ops2.safetensors")
    kept = {}

    def keep(manifest, capture, name):
        kept[name] = (capture.entries[name], capture.bytes(name))
        return manifest.stored(name)

    # Row sums and means of x*x: launches of every kind, from one element to several blocks per row.
    reduce = Manifest()
    for width in (1, 7, 31, 127, 129, 131, 255, 768, 3000, 8192, 30000):
        for rows in (1, 5, 33, 257):
            if rows * width > 300000:
                continue
            shape = f"{rows}x{width}"
            x = reduce.synthetic("x_" + shape, 5000 + width, [rows, width])
            wide = reduce.op("sq_" + shape, "mul", {"a": x, "b": x}, "fp32")
            narrow = reduce.op("bsq_" + shape, "mul", {"a": x, "b": x}, "bf16")
            for prefix, tensor, dtype, params in (
                    ("rsum_", wide, "fp32", {"fn": "sum"}), ("rmean_", wide, "fp32", {"fn": "mean"}),
                    ("bsumf_", narrow, "fp32", {"fn": "sum"}), ("bmeanf_", narrow, "fp32", {"fn": "mean"}),
                    ("bmean_", narrow, "bf16", {"fn": "mean"}),
                    ("mis_", wide, "fp32", {"fn": "sum", "storage_offset": 3}),
                    ("misb_", narrow, "fp32", {"fn": "sum", "storage_offset": 3})):
                name = prefix + shape
                if name in ops2.entries:
                    reduce.op(name, "reduce", {"x": tensor}, dtype, params, keep(reduce, ops2, name))
    for width in (64, 257, 2560, 11008):
        shape = f"7x{width}"
        x = reduce.synthetic("n_" + shape, 900 + width, [7, width])
        reduce.op("mean_sq_" + shape, "reduce", {"x": x}, "fp32", {"fn": "mean_sq"}, keep(reduce, ops, "mean_sq_" + shape))
        x4 = reduce.synthetic("n4_" + shape, 900 + width, [7, width], exp2=2)
        reduce.op("lse_" + shape, "reduce", {"x": x4}, "fp32", {"fn": "logsumexp"}, keep(reduce, ops, "lse_" + shape))
    reduce.write(out / "reduce.json")

    softmax = Manifest()
    for width in (1, 5, 33, 2048, 2049, 9216, 9217, 10240, 12256, 12289, 24573, 50257):
        for dtype, label in (("fp32", "f32"), ("bf16", "bf16")):
            x = softmax.synthetic(f"x_{label}_{width}", 4000 + width, [3, width], dtype, exp2=2)
            softmax.op(f"sm_{label}_{width}", "softmax", {"x": x}, dtype, None, sha(ops2, f"sm_{label}_sha_{width}"))
            softmax.op(f"sm_log_{label}_{width}", "log_softmax", {"x": x}, dtype, None,
                       sha(ops2, f"sm_log_{label}_sha_{width}"))
        softmax.op(f"sm_conv_{width}", "softmax", {"x": f"x_bf16_{width}"}, "fp32", None, sha(ops2, f"sm_conv_sha_{width}"))
    softmax.write(out / "softmax.json")

    norm = Manifest()
    for width in (8, 64, 257, 1000, 1001, 1026, 2560, 4096, 11008):
        for dtype, label in (("fp32", "f32"), ("bf16", "bf16")):
            tail = f"{label}_{width}"
            x = norm.synthetic("x_" + tail, 3000 + width, [8, width], dtype, plus=0.25)
            w = norm.synthetic("w_" + tail, 3500 + width, [width], dtype, exp2=-3, plus=1.0)
            b = norm.synthetic("b_" + tail, 3600 + width, [width], dtype, exp2=-2)
            ln, rms = {"eps": 1e-5}, {"eps": 1e-6, "style": "torch"}
            norm.op("ln_" + tail, "layer_norm", {"x": x, "w": w, "bias": b}, dtype, ln, sha(ops2, "ln_sha_" + tail))
            norm.op("ln_g_" + tail, "layer_norm", {"x": x, "w": w}, dtype, ln, sha(ops2, "ln_g_sha_" + tail))
            norm.op("ln_plain_" + tail, "layer_norm", {"x": x}, dtype, ln, sha(ops2, "ln_plain_sha_" + tail))
            norm.op("rms_" + tail, "rms_norm", {"x": x, "w": w}, dtype, rms, sha(ops2, "rms_sha_" + tail))
            norm.op("rms_plain_" + tail, "rms_norm", {"x": x}, dtype, rms, sha(ops2, "rms_plain_sha_" + tail))
    norm.write(out / "norm.json")

    rope = Manifest()
    positions = list(struct.unpack("<8q", ops2.bytes("rot_pos")))
    keep(rope, ops2, "inv_cpu_1e+06_128")
    rope.ops.append({"id": "rot", "op": "rope_table", "in": {"inv_freq": "inv_cpu_1e+06_128"}, "out_dtype": "fp32",
                     "out": {"cos": "out:cos", "sin": "out:sin"}, "params": {"positions": positions},
                     "expect": {"cos": keep(rope, ops2, "rot_cos"), "sin": keep(rope, ops2, "rot_sin")}})
    rope.write(out / "rope_table.json")
    write_safetensors(out / "ops.safetensors", kept)


if __name__ == "__main__":
    main()
