#!/usr/bin/env python3
"""Writes replay manifests for folders of captured GPU outputs. Standard library only; nothing is computed, only described.

    python3 make_manifests.py CAPTURES OUT [--full-below M] [--algorithms FILE]

CAPTURES is one folder of captures (public, h200/instructions, h200/gemm, ...) or a folder above several; every kind that
is known is written to OUT, the others are named on stderr. Tensor files are referred to where they are, relative to OUT.
--full-below M: matrix products with fewer than M rows expect the SHA-256 of the whole output, not only the samples.
--algorithms: the split of each matrix product, from running it again with cuBLASLt's log (default: the file in testdata).
"""
import argparse
import json
import os
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "capture"))
from gemm_cases import products, synthetic  # noqa: E402  (after the path)

ALGORITHMS = Path(__file__).resolve().parents[2] / "testdata/h200/gemm/relog.json"
SHORT = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}


def header(path):
    """Tensor entries and metadata of a safetensors file."""
    with open(path, "rb") as f:
        entries = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    return entries, entries.pop("__metadata__", {})


def write_values(path, values):
    """A safetensors file of (dtype, shape, bytes) by name."""
    entries, at = {}, 0
    for name, (dtype, shape, data) in values.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(entries).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in values.values():
            f.write(data)


class Writer:
    def __init__(self, out):
        self.out = Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def stored(self, path, key):
        return {"file": os.path.relpath(path, self.out), "key": key}

    def write(self, name, gpu, tensors, ops, software=None):
        # One line per tensor and op: short, and a difference between two manifests can be read.
        lines = [f' "bitreplay": 1,\n "gpu": {json.dumps(gpu)}']
        if software:
            lines.append(f' "software": {json.dumps(software)}')
        lines.append(' "tensors": {\n' + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in tensors.items()) + "\n }")
        lines.append(' "ops": [\n' + ",\n".join("  " + json.dumps(op) for op in ops) + "\n ]")
        (self.out / (name + ".json")).write_text("{\n" + ",\n".join(lines) + "\n}\n")
        self.count += 1


def public_instruction(gpu, given, k, result):
    """The instruction behind a column of the published data; (name, whether it takes c)."""
    fp8 = given in ("e4m3", "e5m2")
    if gpu == "V100":
        shape = "m8n8k4"
    elif given == "tf32":
        shape = "m16n8k4"
    else:
        shape = f"m16n8k{k}"
    if gpu == "H100" and fp8 and result == "f32":
        return f"wgmma.m64n8k32.f32.{given}.{given}", False
    return f"mma.{shape}.{result}.{given}.{given}.{result}", True


def public(folder, writer, _):
    """Published single dot products: one row each."""
    for path in sorted(folder.glob("*.safetensors")):
        entries, meta = header(path)
        given = {"fp16": "f16"}.get(meta["input"], meta["input"])
        tensors, ops = {key: writer.stored(path, key) for key in entries}, []
        for result, short in (("d_fp32", "f32"), ("d_fp16", "f16")):
            if result not in entries:
                continue
            instruction, takes_c = public_instruction(meta["gpu"], given, entries["a"]["shape"][1], short)
            inputs = {"a": "a", "b": "b", **({"c": "c"} if takes_c else {})}
            ops.append({"id": result, "op": "dot", "in": inputs, "params": {"instruction": instruction},
                        "expect": {"tensor": result}})
        writer.write(path.stem, meta["gpu"].lower(), tensors, ops, {"source": meta["source"]})


def instructions(folder, writer, _):
    """Tiles of one instruction, one op per input class."""
    for path in sorted(folder.glob("*.safetensors")):
        entries, meta = header(path)
        ops = [{"id": key[:-2], "op": "mma", "in": {part: f"{key[:-2]}.{part}" for part in "abc"},
                "params": {"instruction": meta["instruction"]}, "expect": {"tensor": key}}
               for key in entries if key.endswith(".d")]
        writer.write(path.stem, "h200", {key: writer.stored(path, key) for key in entries}, ops)


def gemm(folder, writer, options):
    """Matrix products of torch: sampled outputs, or the hash of the whole."""
    with open(options.algorithms) as f:
        splits = {c["case"]: c["split_k"] for c in json.load(f)}
    with open(folder / "gemm.json") as f:
        cases = json.load(f)
    tensors, ops = {}, []
    for c in cases:
        name = c["case"]
        for operand, rows in (("x", c["M"]), ("w", c["N"])):
            tensors[f"{name}.{operand}"] = synthetic(
                c[operand]["seed"], c[operand]["exp2"], c["in_dtype"], [rows, c["K"]])
        op = {"id": name, "op": "linear", "in": {"x": name + ".x", "w": name + ".w"}, "out_dtype": c["out_dtype"],
              "kernel_names": [k["name"] for k in c["kernels"]], "params": {"split_k": splits[name]}}
        if c["op"].startswith("torch._scaled_mm"):
            op["op"] = "scaled_linear"
            op["params"]["fast_accum"] = int("use_fast_accum=True" in c["op"])
            for scale in ("x_scale", "w_scale"):  # both 1.0: a zero-width distribution plus 1
                tensors["one"] = synthetic(0, -100, "fp32", [1], plus=1.0)
                op["in"][scale] = "one"
        if c["M"] < options.full_below:
            op["expect"] = {"sha256": c["sha256_full_output"]}
        else:
            tensors[name] = writer.stored(folder / "gemm.safetensors", name)
            op["expect"] = {"tensor": name, "rows": c["rows"], "cols": c["cols"]}
        ops.append(op)
    writer.write("gemm", "h200", tensors, ops, {"torch": "2.11.0+cu130", "cuda": "13.0"})


def product_captures(folder):
    """Files of capture_gemm.py in this folder: lists of matrix products, each beside its safetensors."""
    for path in sorted(folder.glob("*.json")):
        if path.with_suffix(".safetensors").exists():
            with open(path) as f:
                cases = json.load(f)
            if isinstance(cases, list) and cases and {"key", "ltlog", "xseed"} <= cases[0].keys():
                yield path, cases


def captured_products(folder, writer, _):
    """Matrix products with cuBLASLt's log beside the kernel names: sampled outputs, or the hash of the whole."""
    for path, cases in product_captures(folder):
        values = {}

        def note(name, *what, file=path.stem + ".values.safetensors", values=values):
            values[name] = what
            return {"file": file, "key": name}

        tensors, ops = products(cases, lambda key, path=path: writer.stored(path.with_suffix(".safetensors"), key), note)
        if values:
            write_values(writer.out / (path.stem + ".values.safetensors"), values)
        writer.write(path.stem, "h200", tensors, ops, {"torch": "2.11.0+cu130", "cublasLt": "13.1"})


def layer(folder, writer, _):
    """Every stage of a decoder layer whose products were all unsplit."""
    for path in sorted(folder.glob("block_*.json")):
        with open(path) as f:
            capture = json.load(f)
        stored = path.with_suffix(".safetensors")
        names = [k[0] for k in capture["kernels"]]
        products = [i for i, name in enumerate(names) if name.startswith("nvjet")]
        if any("splitK" in name for name in names):
            sys.exit(f"{path}: a split product, of which the number of parts was not recorded")
        stages = ["q", "k", "v", "o", "gate", "up", "down"]
        if capture["impl"] == "eager":
            scores, context = products[3:5]
            attention = names[scores:context + 1]
            del products[3:5]
        else:
            attention = [name for name in names if "pytorch_flash" in name]
        if len(products) != len(stages):
            sys.exit(f"{path}: {len(products)} products besides the attention's")
        kernels = {stage: {"kernel_names": [names[i]]} for stage, i in zip(stages, products)}
        kernels["attn"] = {"kernel_names": attention}
        config = {"hidden_size": capture["H"], "num_attention_heads": capture["nh"], "num_key_value_heads": capture["nkv"],
                  "head_dim": capture["hd"], "intermediate_size": capture["ffn"], "rms_norm_eps": capture["eps"]}
        tensors = {"hidden": synthetic(capture["x"]["seed"], capture["x"]["exp2"], "bf16", [capture["M"], capture["H"]]),
                   "inv_freq": writer.stored(stored, "inv_freq")}
        for name, w in capture["weights"].items():
            more = {"plus": 1.0} if w["kind"] == "norm" else {}
            tensors["layer." + name] = synthetic(w["seed"], w["exp2"], "bf16", w["shape"], **more)
        outputs = [s for s in capture["stages"] if s not in ("inv_freq", "cos", "sin", "hidden_in")]
        tensors.update({"gpu." + stage: writer.stored(stored, stage) for stage in outputs})
        writer.write(path.stem, "h200", tensors, [{
            "id": "layer", "op": "decoder_layer", "in": {"hidden": "hidden", "weights": "layer.", "inv_freq": "inv_freq"},
            "out_dtype": "bf16", "params": {"model": "qwen3", "config": config, "kernels": kernels},
            "expect": {stage: {"tensor": "gpu." + stage} for stage in outputs}}], {"transformers": "5.17"})


def kinds_in(folder):
    """Kinds of captures in this folder, by the files they consist of."""
    if any(folder.glob("*_fp16.safetensors")) and (folder / "LICENCE").exists():
        yield public
    if any(folder.glob("mma.*.safetensors")):
        yield instructions
    if (folder / "gemm.json").exists():
        yield gemm
    if any(product_captures(folder)):
        yield captured_products
    if any(folder.glob("block_*.json")):
        yield layer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--full-below", type=int, default=0, metavar="M")
    parser.add_argument("--algorithms", type=Path, default=ALGORITHMS)
    options = parser.parse_args()
    if not options.captures.is_dir():
        sys.exit(f"{options.captures}: not a folder")
    writer = Writer(options.out)
    for folder, _, files in sorted(os.walk(options.captures)):
        if not any(name.endswith(".safetensors") for name in files):
            continue
        known = list(kinds_in(Path(folder)))
        for kind in known:
            kind(Path(folder), writer, options)
        if not known:
            print(f"{folder}: no manifests for this kind of capture", file=sys.stderr)
    if writer.count == 0:
        sys.exit(f"{options.captures}: no captures found")
    print(f"{writer.count} manifests")


if __name__ == "__main__":
    main()
