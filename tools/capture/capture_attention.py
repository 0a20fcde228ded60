"""Captures cuDNN's scaled dot product attention, the kernel PyTorch chooses by itself on Hopper.

    python3 capture_attention.py OUT_DIR NAME

q, k, v are bf16 or fp16 synthetic tensors (synthetic.py) with exp2 0 and seeds 500, 501, 502, of the shapes (1,h,Sq,d),
(1,hk,Sk,d), (1,hk,Sk,d), unless `probe` says otherwise: "eye" v[j, j - first] = 1, else 0 (the output is then the normalised
probability of key j); "zero" q = 0 (every probability is 1: the sum and its logarithm are bare). Writes NAME.json and
NAME.safetensors with the output CASE.o (large ones: o[heads][rows] only) and the log-sum-exp CASE.lse. The call without log-sum-exp is
run too; `same` says whether it returned the same output.
"""
import argparse
import os

from gpu_trace import Recorder, environment
import torch
from synthetic import DTYPES, save, save_entries, self_check, sha256, spread, synthetic

LARGEST_WHOLE = 26000  # elements of an output that is stored whole


def cases():
    def case(Sq, Sk, h, hk, d, causal, dtype="bf16", **more):
        return dict(Sq=Sq, Sk=Sk, h=h, hk=hk, d=d, causal=causal, dtype=dtype, **more)

    out = []
    for S in (2, 8, 16, 17, 64, 65, 100, 127, 128, 129, 192, 200, 256, 257, 300, 384, 385):
        for causal in (True, False):
            out.append(case(S, S, 1, 1, 128, causal))
    for S in (17, 100, 128, 200, 300):
        out.append(case(S, S, 1, 1, 128, True, "fp16"))
        out.append(case(S, S, 1, 1, 64, True))
        out.append(case(S, S, 1, 1, 64, False, "fp16"))
        out.append(case(S, S, 4, 1, 128, True))
    for S in (500, 1000, 2048):
        out.append(case(S, S, 32, 8, 128, True))
        out.append(case(S, S, 2, 2, 128, False))
    out += [case(100, 100, 2, 2, 96, True), case(100, 100, 2, 1, 256, True), case(64, 200, 1, 1, 128, False),
            case(17, 1000, 2, 2, 128, False)]
    for Sk in (1, 2, 16, 17, 100, 127, 128, 129, 200, 500, 1000, 1001, 4000):
        out.append(case(1, Sk, 8, 2, 128, False))
    for Sk in (17, 1000, 4000):
        out.append(case(1, Sk, 32, 8, 128, False))
        out.append(case(1, Sk, 28, 4, 128, False))
        out.append(case(1, Sk, 4, 4, 64, False, "fp16"))
    # Few keys and many rows: the log-sum-exp shows the exponential function and the order of the row sum.
    out += [case(256, Sk, 1, 1, 128, False) for Sk in (2, 3, 4, 8, 9, 16, 24, 32, 64)]
    out += [case(1, Sk, 64, 64, 128, False) for Sk in (2, 3, 4, 8, 16, 32, 64, 100, 128, 200, 500, 1000, 1001)]
    for Sk in (201, 256, 257, 300, 384, 400, 512, 513, 600, 768, 1024, 1025, 1536, 2000, 3000, 6000, 8000):
        out.append(case(1, Sk, 32, 8, 128, False))  # which kernel, how many parts
    for Sk in (600, 1000, 1537, 2000, 3000, 4000, 8000):
        out += [case(1, Sk, h, h, 128, False, "fp16") for h in (8, 64)]
    for dtype in ("bf16", "fp16"):
        for Sk in (64, 128, 256):
            for first in range(0, Sk, 128):
                out.append(case(128, Sk, 1, 1, 128, False, dtype, probe="eye", first=first))
        out.append(case(128, 128, 1, 1, 128, True, dtype, probe="eye", first=0))
        out.append(case(300, 300, 1, 1, 128, True, dtype, probe="zero"))
        out.append(case(1, 200, 1, 1, 128, False, dtype, probe="eye", first=0))
        out.append(case(1, 200, 1, 1, 128, False, dtype, probe="zero"))
    return out


def name_of(c):
    name = "_".join(str(x) for x in (c["Sq"], c["Sk"], c["h"], c["hk"], c["d"], int(c["causal"]), c["dtype"]))
    return name + (f"_{c['probe']}{c.get('first', '')}" if "probe" in c else "")


def operands(c):
    dtype = DTYPES[c["dtype"]]
    q = synthetic(500, (1, c["h"], c["Sq"], c["d"]), 0, dtype)
    k = synthetic(501, (1, c["hk"], c["Sk"], c["d"]), 0, dtype)
    v = synthetic(502, (1, c["hk"], c["Sk"], c["d"]), 0, dtype)
    if c.get("probe") == "zero":
        q = torch.zeros_like(q)
    if c.get("probe") == "eye":
        v = torch.zeros_like(v)
        count = min(c["d"], c["Sk"] - c["first"])
        index = torch.arange(count, device=v.device)
        v[0, :, c["first"] + index, index] = 1
    return q, k, v


def attend(c, q, k, v, lse):
    if c["hk"] != c["h"] and lse:
        k, v = (t.repeat_interleave(c["h"] // c["hk"], dim=1) for t in (k, v))
    if lse:
        return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, c["causal"])[:2]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=c["causal"],
                                                                enable_gqa=c["hk"] != c["h"]), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("name")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    self_check()
    entries, tensors = [], {}
    recorder = Recorder()
    with recorder, torch.no_grad():
        for c in cases():
            name = name_of(c)
            entry = dict(name=name, **c)
            entries.append(entry)
            q, k, v = operands(c)
            try:
                with recorder.mark(name):
                    o, _ = attend(c, q, k, v, lse=False)
            except RuntimeError as error:
                entry["error"] = str(error).splitlines()[0][:200]
                continue
            entry["sha256"] = sha256(o)
            try:
                with recorder.mark(name + ".lse"):
                    o2, lse = attend(c, q, k, v, lse=True)
                entry["same"] = bool(torch.equal(o.view(torch.int16), o2.contiguous().view(torch.int16)))
                lse = lse.reshape(1, c["h"], c["Sq"])
                entry["lse_sha256"] = sha256(lse)
            except RuntimeError as error:
                entry["lse_error"] = str(error).splitlines()[0][:200]
                lse = None
            if o.numel() > LARGEST_WHOLE:
                entry["heads"], entry["rows"] = spread(c["h"], 2), spread(c["Sq"], 24)
                o = o[:, entry["heads"]][:, :, entry["rows"]]
            tensors[name + ".o"] = o.contiguous()
            if lse is not None:
                tensors[name + ".lse"] = lse.contiguous()
    kernels = recorder.by_mark()
    for entry in entries:
        for key, mark in (("kernels", entry["name"]), ("lse_kernels", entry["name"] + ".lse")):
            entry[key] = kernels.get(mark, [])
    metadata = dict(environment(), cudnn=torch.backends.cudnn.version())
    save(os.path.join(args.out, args.name + ".safetensors"), tensors, metadata)
    save_entries(os.path.join(args.out, args.name + ".json"), entries)
    for e in entries:
        print(e["name"], e.get("same"), e.get("error"), e.get("lse_error"), [k[0][:90] for k in e["kernels"]])


if __name__ == "__main__":
    main()
