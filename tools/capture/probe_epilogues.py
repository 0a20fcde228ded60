"""Bias, GELU, RELU, alpha and beta of every algorithm that the library can run, on sums that are known exactly.

    python3 probe_epilogues.py OUT_DIR [--seconds 70]

Writes epilogues.json (one entry per run: types, epilogue, configuration, kernels, `key` of its output or `same_as` that of an
earlier run with the same bits) and epilogues.safetensors (outputs, and the inputs TYPES.x, .w, .c, .bias). A sum has three
products, at k = 0, 3 and K - 5, so that it can be computed by hand for any split; with alpha and beta half of c cancels it, which
shows every rounding.
"""
import argparse
import os
import time

import gpu_trace  # first: chooses the cuBLASLt log file
import torch
from cublaslt import Problem, capability, describe
from safetensors.torch import save_file
from synthetic import save_entries

M, N, K = 32, 128, 256
ALPHA, BETA = 1.3, 0.7
TYPES = {"bf16": (torch.bfloat16, torch.bfloat16, "32F"), "fp16": (torch.float16, torch.float16, "32F"),
         "bf16_fp32": (torch.bfloat16, torch.float32, "32F"), "fp16_fp32": (torch.float16, torch.float32, "32F"),
         "tf32": (torch.float32, torch.float32, "TF32"), "fp32": (torch.float32, torch.float32, "32F"),
         "f16acc": (torch.float16, torch.float16, "16F"), "fp64": (torch.float64, torch.float64, "64F")}
SPLITS = [(2, 2), (2, 4), (2, 1), (3, 2), (3, 4), (-1, 2)]  # parts, reduction scheme


def inputs(generator, dtype, out):
    def uniform(*shape):
        return torch.rand(*shape, generator=generator, device="cuda", dtype=torch.float64) * 2 - 1

    x, w = (torch.zeros(rows, K, dtype=torch.float64, device="cuda") for rows in (M, N))
    x[:, 0], w[:, 0] = uniform(M) * 3, uniform(N) * 2
    x[:, 3], w[:, 3] = uniform(M) * 2.0**-8, uniform(N)
    x[:, K - 5], w[:, K - 5] = uniform(M), uniform(N) * 2.0**-3
    x, w = x.to(dtype), w.to(dtype)
    c = (-ALPHA / BETA * (x.double() @ w.double().t())).to(out)
    c[:, ::2] = uniform(M, N // 2).to(out)
    bias = (uniform(N) / 2).to(out)
    bias[::4] = 0
    return {"x": x, "w": w, "c": c, "bias": bias}


def configurations(problem, number):
    """Every tile and stages in one pass, the first few splits."""
    algo = problem.start(number)
    splits = 0
    for tile in capability(algo, "tile") or [None]:
        for stages in capability(algo, "stages") or [None]:
            for split, scheme in [(None, None), *(SPLITS if splits < 4 else [])]:
                chosen = problem.choose(number, tile=tile, stages=stages, split=split, scheme=scheme)
                if chosen is not None:
                    splits += split is not None
                    yield chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=70)
    args = parser.parse_args()
    start, runs, tensors = time.time(), [], {}
    generator = torch.Generator(device="cuda").manual_seed(5)
    recorder = gpu_trace.Recorder()
    with recorder:
        for name, (dtype, out_dtype, compute) in TYPES.items():
            given = inputs(generator, dtype, out_dtype)
            tensors.update({f"{name}.{key}": value.cpu() for key, value in given.items()})
            out = torch.zeros(M, N, dtype=out_dtype, device="cuda")
            for epilogue in ("default", "bias", "gelu_bias", "relu_bias"):
                more = {"c": given["c"]} if epilogue == "default" else {"bias": given["bias"], "epilogue": epilogue}
                problem = Problem(given["x"], given["w"], out, compute=compute, **more)
                for number in problem.algorithms():
                    for algo in configurations(problem, number):
                        if time.time() - start > args.seconds:
                            break
                        key = f"r{len(runs)}"
                        with recorder.mark(key):
                            ran = problem.run(algo, *((ALPHA, BETA) if epilogue == "default" else ()))
                        if ran is not None:
                            runs.append({"key": key, "types": name, "epilogue": epilogue, **describe(algo)})
                            tensors[key] = out.cpu().clone()
    kernels, first = recorder.by_mark(), {}
    for run in runs:
        run["kernels"] = [k[:2] for k in kernels.get(run["key"], [])]
        bits = (run["types"], run["epilogue"], tensors[run["key"]].view(torch.uint8).numpy().tobytes())
        if first.setdefault(bits, run["key"]) != run["key"]:
            run["same_as"] = first[bits]
            del tensors[run["key"]]
    save_file({key: value.contiguous() for key, value in tensors.items()}, os.path.join(args.out, "epilogues.safetensors"))
    save_entries(os.path.join(args.out, "epilogues.json"), runs)
    print(len(runs), "runs,", len(first), "different outputs")


if __name__ == "__main__":
    main()
