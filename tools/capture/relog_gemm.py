"""Runs the matrix products of an older capture again and records which algorithm cuBLASLt chose.

    python3 relog_gemm.py GEMM.json OUT.json

GEMM.json: a list of {case, op, M, N, K, in_dtype, out_dtype, x, w, sha256_full_output}; plain synthetic inputs. OUT.json:
{case, split_k, kernels, ltlog, same}, `same` saying whether the output has the recorded SHA-256.
"""
import json
import sys

from gpu_trace import Recorder, split_k
import torch
from synthetic import DTYPES, save_entries, self_check, sha256, synthetic


def main():
    with open(sys.argv[1]) as f:
        cases = json.load(f)
    self_check()
    one = torch.ones((), device="cuda")
    recorder = Recorder()
    entries = []
    with recorder, torch.no_grad():
        for c in cases:
            dtype = DTYPES[c["in_dtype"]]
            out_dtype = getattr(torch, c["out_dtype"])
            x = synthetic(c["x"]["seed"], (c["M"], c["K"]), c["x"]["exp2"], dtype)
            w = synthetic(c["w"]["seed"], (c["N"], c["K"]), c["w"]["exp2"], dtype)
            with recorder.mark(c["case"]):
                if "_scaled_mm" in c["op"]:
                    out = torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=out_dtype,
                                           use_fast_accum="use_fast_accum=True" in c["op"])
                elif "out_dtype" in c["op"]:
                    out = torch.mm(x, w.t(), out_dtype=out_dtype)
                else:
                    out = torch.nn.functional.linear(x, w)
                torch.cuda.synchronize()
            entries.append({"case": c["case"], "same": sha256(out) == c["sha256_full_output"]})
    kernels = recorder.by_mark()
    for entry in entries:
        log = recorder.log.get(entry["case"], [])
        entry["split_k"] = split_k(log)
        entry["kernels"] = [k[:3] for k in kernels.get(entry["case"], [])]
        entry["ltlog"] = log
    save_entries(sys.argv[2], entries)
    print(sum(e["same"] for e in entries), "of", len(entries), "have the recorded output")
    print({e["case"]: e["split_k"] for e in entries if e["split_k"] != 1})


if __name__ == "__main__":
    main()
