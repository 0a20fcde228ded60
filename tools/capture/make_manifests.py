"""Turns captures into replay manifests. Standard library only; nothing is computed, only rewritten.

    python3 make_manifests.py layers CAPTURE_DIR OUT_DIR       decoder_layer manifests, one or two per capture
    python3 make_manifests.py attention CASES.json OUT.json    one manifest with an op per call of a kernel that has a model
    python3 make_manifests.py gemm CASES.json OUT.json [--without REPORT]  one manifest with an op per matrix product
    python3 make_manifests.py instructions DIR OUT.json        one manifest with an op per instruction and input class

Layers: NAME.json expects the SHA-256 of every stage (whole tensors) and needs no other file; NAME.sampled.json expects the
sampled rows and columns kept in NAME.safetensors beside it, and takes the recorded rotary table from there.
"""
import argparse
import json
import os
import re
import struct

from cublaslt_log import log_line
from gemm_cases import products, synthetic

PAST = ("k_cache", "v_cache")  # post-rotary keys and values [kv heads, cached, head dim] that precede the new tokens


def write(path, manifest):
    with open(path, "w") as f:
        json.dump(manifest, f, separators=(",", ":"))
        f.write("\n")


def gpu_name(title):
    """The manifest's name of a GPU as the driver prints it: "NVIDIA A100-SXM4-80GB" is a100."""
    words = re.sub(r"NVIDIA |GeForce |Tesla ", "", title or "H200").lower().replace("rtx ", "rtx")
    return re.split(r"[ -]", words)[0]


def gemm_kernel(names, entry):
    """What was recorded of one matrix product."""
    return {"kernel_names": names, **({"cublaslt": log_line(entry)} if entry else {})}


def layer_stage(linear):
    kernel = {"kernel": "cublas.nvjet", "params": {"split_k": linear["split_k"]}}
    found = re.match(r"nvjet_sm90_[a-z]+_\d+x\d+_(\d+)x", linear["kernels"][0])
    if not found:
        return gemm_kernel(linear["kernels"], linear["ltlog"][-1] if linear["ltlog"] else None)
    kernel["params"]["tile_k"] = int(found.group(1))
    return kernel


def layer_manifests(capture, payload):
    software = {k: v for k, v in capture["software"].items() if k != "gpu"}
    tensors = {"hidden": capture["hidden"] if "hidden" in capture else
               synthetic(capture["x"]["seed"], capture["x"]["exp2"], "bf16", [capture["M"], capture["H"]])}
    for name, w in capture["weights"].items():
        if "file" in w:
            tensors["layer." + name] = w
            continue
        more = {"plus": 1.0} if w["kind"] == "norm" else {}
        tensors["layer." + name] = synthetic(w["seed"], w["exp2"], "bf16", w["shape"], **more)
    inputs = {"hidden": "hidden", "weights": "layer."}
    params = {
        "model": capture["model"],
        "config": {
            "hidden_size": capture["H"], "num_attention_heads": capture["nh"], "num_key_value_heads": capture["nkv"],
            "head_dim": capture["hd"], "intermediate_size": capture["ffn"], "rms_norm_eps": capture["eps"],
            **({"rope_parameters": capture["rope_parameters"]} if "rope_parameters" in capture else {}),
        },
        "positions": list(range(capture["first_position"], capture["first_position"] + capture["M"])),
        "kernels": {stage: layer_stage(linear) for stage, linear in capture["linears"].items()},
    }
    attention = [k[0] for k in capture["kernels"] if k[3] == "attention"]
    if capture["impl"] == "flash":
        params["attention"] = "torch.flash2"
    elif capture["impl"] == "eager":
        params["attention"] = "eager"
        log = capture["attention_ltlog"]
        products = [k for k in attention if re.search("gemm|gemv|nvjet|dot_kernel|reduce_1Block|splitKreduce", k)]
        for stage, entry, names in zip(("scores", "context"), log, split_products(products)):
            params["kernels"][stage] = gemm_kernel(names, entry)
    else:  # what PyTorch chose by itself
        params["kernels"]["attn"] = {"kernel_names": attention}
    if capture["cached"]:
        for name, key in zip(PAST, ("k", "v")):
            cache = capture["cache"][key]
            tensors[name] = synthetic(cache["seed"], cache["exp2"], "bf16", cache["shape"])
            inputs[name] = name
    stages = {k: v for k, v in capture["stages"].items() if k not in ("inv_freq", "cos", "sin", "hidden_in")}
    out = {}
    for variant in ("full", "sampled"):
        more, expect = {}, {}
        # Whole stages need no payload if their rotary table can be computed from the config.
        if variant == "sampled" or "rope_parameters" not in capture:
            more["inv_freq"] = {"file": payload, "key": "inv_freq"}
        for stage, info in stages.items():
            if variant == "full":
                expect[stage] = {"sha256": info["sha256"]}
            else:
                more["expected." + stage] = {"file": payload, "key": stage}
                expect[stage] = {"tensor": "expected." + stage}
                if "rows" in info:
                    expect[stage].update(rows=info["rows"], cols=info["cols"])
        op = {"id": "layer", "op": "decoder_layer", "in": {**inputs, **{name: name for name in more if name == "inv_freq"}},
              "out": {s: s for s in stages}, "out_dtype": capture.get("dtype", "bf16"),
              "params": params, "expect": expect}
        out[variant] = {"bitreplay": 1, "gpu": gpu_name(capture["software"].get("gpu")), "software": software,
                        "tensors": {**tensors, **more}, "ops": [op]}
    return out


def attention(args):
    with open(args.source) as f:
        cases = json.load(f)
    tensors, ops = {}, []
    for c in cases:
        names = [k[0] for k in c["kernels"]]
        if "probe" in c or not names or not re.search("_knob_(7|2|3)_", names[0]):
            continue  # inputs that no generator makes; kernels without a model
        shape = {"q": [1, c["h"], c["Sq"], c["d"]], "k": [1, c["hk"], c["Sk"], c["d"]]}
        inputs = {}
        for seed, name in ((500, "q"), (501, "k"), (502, "v")):
            extents = shape["q" if name == "q" else "k"]
            inputs[name] = "_".join([name, c["dtype"], *map(str, extents[1:])])
            tensors[inputs[name]] = synthetic(seed, 0, c["dtype"], extents)
        ops.append({"id": c["name"], "op": "attention", "in": inputs, "kernel_names": names, "params": {"causal": c["causal"]},
                    "expect": {"o": {"sha256": c["sha256"]}, "lse": {"sha256": c["lse_sha256"]}}})
    write(args.out, {"bitreplay": 1, "gpu": "h200", "software": {"torch": "2.11.0+cu130"}, "tensors": tensors, "ops": ops})
    print(len(ops), "of", len(cases), "cases")


def layer_manifest(capture, payload, variant):
    return layer_manifests(capture, payload)[variant]


def split_products(names):
    """Groups kernel names into matrix products: a product's reduction follows it."""
    groups = []
    for name in names:
        if groups and ("splitKreduce" in name or "reduce_1Block" in name):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def layers(args):
    os.makedirs(args.out, exist_ok=True)
    for file in sorted(os.listdir(args.source)):
        if not file.endswith(".json"):
            continue
        with open(os.path.join(args.source, file)) as f:
            capture = json.load(f)
        name = capture["tag"]
        manifests = layer_manifests(capture, name + ".safetensors")
        write(os.path.join(args.out, name + ".json"), manifests["full"])
        write(os.path.join(args.out, name + ".sampled.json"), manifests["sampled"])


def gemm(args):
    with open(args.source) as f:
        cases = json.load(f)
    payload = os.path.basename(args.source).replace(".json", ".safetensors")
    left_out = set()
    if args.without:
        with open(args.without) as f:
            left_out = {op["id"] for op in json.load(f)["not_modelled"]}
    tensors, ops = products(cases, lambda key: {"file": payload, "key": key}, skip=left_out,
                           full_below=args.full_below)
    write(args.out, {"bitreplay": 1, "gpu": "h200", "software": {"torch": "2.11.0+cu130", "cublasLt": "13.1"},
                     "tensors": tensors, "ops": ops})
    print(len(ops), "of", len(cases), "cases")


def instructions(args):
    tensors, ops = {}, []
    for file in sorted(os.listdir(args.source)):
        if not file.endswith(".safetensors"):
            continue
        with open(os.path.join(args.source, file), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        instruction = header["__metadata__"]["instruction"]
        relative = os.path.relpath(os.path.join(args.source, file), os.path.dirname(args.out) or ".")
        for key in header:
            if not key.endswith(".d"):
                continue
            kind = key[:-2]
            names = {part: f"{instruction}.{kind}.{part}" for part in "abcd"}
            tensors.update({name: {"file": relative, "key": f"{kind}.{part}"} for part, name in names.items()})
            ops.append({"id": f"{instruction}.{kind}", "op": "mma", "in": {part: names[part] for part in "abc"},
                        "out": f"{instruction}.{kind}.out", "params": {"instruction": instruction},
                        "expect": {"tensor": names["d"]}})
    write(args.out, {"bitreplay": 1, "gpu": "h200", "tensors": tensors, "ops": ops})
    print(len(ops), "instruction captures")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["layers", "attention", "gemm", "instructions"])
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--without", help="report of `bitreplay replay --json`: leave out what it names as not modelled")
    parser.add_argument("--full-below", type=float, default=0, metavar="N",
                        help="matrix products of fewer than N multiplications expect the hash of the whole output")
    args = parser.parse_args()
    {"layers": layers, "attention": attention, "gemm": gemm, "instructions": instructions}[args.what](args)


if __name__ == "__main__":
    main()
