"""Captures products of cuBLASLt's CUDA-core algorithms, each algorithm and option forced instead of chosen by the library.

    python3 capture_forced.py OUT_DIR NAME [--each N] [--seed S] [--fp64]
    python3 make_manifests.py gemm OUT_DIR/NAME.json OUT_DIR/NAME.manifest.json

Inputs, tags and entries are those of capture_gemm.py (`forced_nn`: w transposed in memory, `forced_at`: x), with the hash of
every whole output and no samples; some inputs are not mirrored (`plain`), some so small that products underflow. `dot`: torch.dot,
which leaves no line in the log. A case that the library refuses is left out.
"""
import argparse
import os
import random

from gpu_trace import Recorder  # first: chooses the cuBLASLt log file
import torch
from capture_gemm import bias, case, operands
from cublaslt import SCHEMES, Problem
from synthetic import DTYPES, save_entries, self_check, sha256, synthetic

DOT, GEMM_SN, OUTER, GEMV, MAGMA = 14, 11, 12, 13, 16
TYPES = [("bf16", "bf16"), ("bf16", "fp32"), ("fp16", "fp16"), ("fp16", "fp32"), ("fp32", "fp32")]
LARGEST = 3 << 20  # elements of the matrix
WORKSPACE = 256 << 20  # bytes
BLOCKED, FIRST_GEMVX = 10, 24  # options of algorithm 13: whose block depends on the shape; from here on one kernel


def extent(rng, largest):
    most = rng.choice([40, 700, 5000, 30000])
    return rng.randrange(1, max(2, min(most, largest) + 1))


def vector_case(rng, blocked):
    k = max(2, extent(rng, 5000)) if not blocked else rng.randrange(2, rng.choice([60, 140, 400, 2500]))
    p = max(2, extent(rng, min(LARGEST // k, 40000 if blocked else 8000)))
    B = rng.choice([0, 0, 0, rng.randrange(2, 6)]) if p * k < LARGEST // 5 else 0
    shape = (1, p, k) if rng.random() < 0.6 else (p, 1, k)
    return shape, B


def forced(rng, types, algorithm, option, shape, B, split):
    kind, out = rng.choice(types)
    M, N, K = shape
    across = rng.random() < 0.5
    tag = "forced" if not across else "forced_at" if N == 1 else "forced_nn"
    c = case(tag, M, N, K, kind, B=B, outdtype=out, algorithm=algorithm, option=option)
    c["wseed"] += 13 * M + option
    if split:
        c["split_k"] = rng.choice([rng.randrange(2, 13), rng.randrange(2, 265)])
    if kind == "fp64":
        c.update(xexp=0, wexp=0, u53=1)
    elif K == 1 or rng.random() < 0.3:
        c["plain"] = 1
    if kind not in ("fp16", "fp64") and rng.random() < 0.2:  # subnormal products; products that round to zeros of their sign
        c["xexp"], c["wexp"] = rng.choice([(-70, -73), (-76, -76)])
    more = rng.random()
    if more < 0.4 if algorithm == OUTER or option < FIRST_GEMVX else more < 0.2:
        c.update(cmat=[6000 + N, -10], cdt=out)
        c["alpha"], c["beta"] = rng.choice([(1.3, 0.7), (1.3, 0.7), (1, 0.5), (2, 1), (0.3, 1), (1, 1)])
    elif more < 0.45 and kind == out and not B:
        c = bias(c)
        if more > 0.4:
            c["gelu"] = 1
    return c


def cases(each, seed, fp64):
    rng = random.Random(seed)
    types = [("fp64", "fp64")] if fp64 else TYPES
    out = []
    for option in range(116):
        for _ in range(each * (12 if option == BLOCKED else 2 if option < FIRST_GEMVX else 1)):
            out.append(forced(rng, types, GEMV, option, *vector_case(rng, option == BLOCKED), rng.random() < 0.2))
    for _ in range(each * 8):
        out.append(forced(rng, types, DOT, 0, *vector_case(rng, False), True))
        out.append(forced(rng, types, GEMM_SN, rng.randrange(2), (rng.randrange(2, 17), rng.randrange(1, 500), rng.randrange(2, 3000)), 0, False))
        out.append(forced(rng, types, MAGMA, 0, (rng.randrange(1, 70), rng.randrange(1, 70), rng.randrange(2, 2000)), 0, False))
    for _ in range(each * 6):
        out.append(forced(rng, types, OUTER, rng.randrange(2), (rng.randrange(1, 200), rng.randrange(1, 200), 1), 0, False))
    for _ in range(each * 8):
        kind = rng.choice(sorted({kind for kind, _ in types}))
        more = dict(xexp=0, wexp=0, u53=1) if fp64 else {}
        out.append(dict(case("dot", 1, 1, max(2, extent(rng, 30000)) * rng.choice([1, 1, 40]), kind, outdtype=kind), **more))
    return out


def call(c):
    """What runs the case, with everything prepared: returns the output, or None if the library refuses. None if it does so before."""
    lead = (c["B"],) if c["B"] else ()
    across_x = c["tag"].endswith("_at")
    x, w, more = operands(dict(c, tag=c["tag"].removesuffix("_at")))
    if "plain" in c:
        x, w = (synthetic(c[side + "seed"], lead + (c[rows], c["K"]), c[side + "exp"], DTYPES[c["indtype"]])
                for side, rows in (("x", "M"), ("w", "N")))
        w = w.transpose(-1, -2) if c["tag"].endswith("_nn") else w
    if c["tag"] == "dot":
        return lambda: torch.dot(x[0], w[0]).reshape(1, 1)
    if across_x:
        x = x.transpose(-1, -2)
    x, w = x.contiguous(), w.contiguous()
    config = {"option": c["option"]} if c["algorithm"] in (GEMV, GEMM_SN, OUTER) else {}
    if "split_k" in c:
        config.update(split=c["split_k"], scheme=SCHEMES["COMPUTE_TYPE"])
    out = torch.empty(lead + (c["M"], c["N"]), dtype=DTYPES[c["outdtype"]], device="cuda")
    epilogue = ("gelu_bias" if "gelu" in c else "bias") if "bias" in c else "default"
    problem = Problem(x, w, out, c=more.get("c"), compute="64F" if c["indtype"] == "fp64" else "32F", epilogue=epilogue,
                      bias=more.get("bias"), trans_w=not c["tag"].endswith("_nn"), trans_x=across_x, workspace=WORKSPACE)
    algorithm = problem.choose(c["algorithm"], **config)
    scales = {"alpha": c["alpha"], "beta": c["beta"]} if "cmat" in c else {}
    return None if algorithm is None else lambda: problem.run(algorithm, **scales)


def capture(todo):
    recorder, entries = Recorder(), []
    with recorder, torch.no_grad():
        for i, c in enumerate(todo):
            run = call(c)
            if run is None:
                continue
            torch.cuda.synchronize()
            with recorder.mark(str(i)):
                out = run()
                torch.cuda.synchronize()
            if out is None:
                continue
            entry = dict(c, mark=str(i), dtype=str(out.dtype).removeprefix("torch."), full=1, sha256_full=sha256(out))
            entry["same"] = sha256(run()) == entry["sha256_full"]
            entries.append(entry)
    kernels = recorder.by_mark()
    for entry in entries:
        mark = entry.pop("mark")
        entry["kernels"], entry["ltlog"] = kernels.get(mark, []), recorder.log.get(mark, [])
    return entries


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("name")
    parser.add_argument("--each", type=int, default=5, help="cases of an option")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fp64", action="store_true", help="FP64 instead of all other types, inputs of 53 random bits")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    self_check()
    todo, entries = cases(args.each, args.seed, args.fp64), []
    for first in range(0, len(todo), 200):
        entries += capture(todo[first:first + 200])
        print(args.name, len(entries), "ran of", first + 200, flush=True)
    for i, entry in enumerate(entries):
        entry["id"], entry["key"] = i, f"c{i}"
    save_entries(os.path.join(args.out, args.name + ".json"), entries)
    print(sum(not e["same"] for e in entries), "changed from run to run;", sum(not e["kernels"] for e in entries), "without kernels")


if __name__ == "__main__":
    main()
