#!/usr/bin/env python3
"""Makes the manifests of testdata/h200/story out of two captured matrix products. Standard library only.

    python3 make_story.py testdata/h200/linear/capture testdata/h200/gemm/relog.json testdata/h200/story

The products are Qwen3-4B's down projection (N=2560, K=9728, fp16) for one prompt of 16 tokens and for eight, 128 rows; the
inputs of the first 16 rows are the same. BATCH1.json and BATCH8.json say what ran. The claim passes rows of the batch of
eight off as the run of one prompt. Bytes are copied, never computed.
"""
import argparse
import json
import os
import struct
from pathlib import Path

ONE, EIGHT, TOKENS = "case_115", "case_116", 16


def tensor(path, key):
    blob = path.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    entry = json.loads(blob[8:8 + size])[key]
    begin, end = entry["data_offsets"]
    return entry["dtype"], entry["shape"], blob[8 + size + begin:8 + size + end]


def write_rows(path, name, dtype, rows, metadata):
    data = b"".join(rows)
    text = json.dumps({name: {"dtype": dtype, "shape": [len(rows), len(rows[0]) // 2], "data_offsets": [0, len(data)]},
                       "__metadata__": metadata}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def manifest(case, log, tokens, recorded, rows):
    synthetic = {"synthetic": "splitmix64-ih4", "exp2": 0, "dtype": "fp16"}
    return {
        "bitreplay": 1, "gpu": "h200", "software": {"torch": "2.11.0+cu130", "cuda": "13.0"},
        "tensors": {
            "hidden": {**synthetic, "seed": case["x"]["seed"], "exp2": case["x"]["exp2"], "shape": [tokens, case["K"]]},
            "weight": {**synthetic, "seed": case["w"]["seed"], "exp2": case["w"]["exp2"], "shape": [case["N"], case["K"]]},
            "recorded": recorded},
        "ops": [{
            "id": "down_proj", "op": "linear", "in": {"x": "hidden", "w": "weight"}, "out": "down", "out_dtype": "fp16",
            "kernel_names": [k["name"] for k in case["kernels"]], "params": {"split_k": log["split_k"]},
            "expect": {"tensor": "recorded", "rows": rows, "cols": case["cols"]}}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path)
    parser.add_argument("relog", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    cases = {c["case"]: c for c in json.loads((options.captures / "gemm.json").read_text())}
    logs = {c["case"]: c for c in json.loads(options.relog.read_text())}
    options.out.mkdir(parents=True, exist_ok=True)
    payload = options.captures / "gemm.safetensors"
    relative = os.path.relpath(payload, options.out)
    one, eight = cases[ONE], cases[EIGHT]
    for name, key, case in (("batch1", ONE, one), ("batch8", EIGHT, eight)):
        recorded = {"file": relative, "key": key}
        (options.out / f"{name}.json").write_text(
            json.dumps(manifest(case, logs[key], case["M"], recorded, case["rows"]), indent=1) + "\n")

    dtype, shape, data = tensor(payload, EIGHT)
    stride = len(data) // shape[0]
    first = [i for i, row in enumerate(eight["rows"]) if row < TOKENS]
    write_rows(options.out / "claim.safetensors", "down", dtype, [data[i * stride:(i + 1) * stride] for i in first],
               {"what": f"rows of {EIGHT} of the H200 capture in linear/capture that belong to the first prompt"})
    claim = manifest({**one, "cols": eight["cols"]}, logs[ONE], TOKENS, {"file": "claim.safetensors", "key": "down"},
                     [eight["rows"][i] for i in first])
    (options.out / "batch8_as_batch1.claim.json").write_text(json.dumps(claim, indent=1) + "\n")


if __name__ == "__main__":
    main()
