"""Which output tiles a kernel with segments shares, how each sum is cut, and which parts meet first.

    python3 probe_segments.py OUT.json [--seconds 45] [--seed 1]

All products are the same small number but two of each sum: +B at the beginning of one tile of k and −B at that of another.
While one of them is in a partial sum nothing else shows; the result counts what is added after the two have met. First and
last tile of k tell the shared output tiles; neighbouring tiles, each pair in turn, tell cuts (the count jumps) and tree.
Configurations: what the library's heuristic picks, then algorithm 43 (TF32) and 39 (FP16 accumulation) with tiles, clusters and
shapes at random.
"""
import argparse
import random
import time

import gpu_trace  # first: chooses the cuBLASLt log file
import torch
from capture_gemm import LLM_SHAPES, TOKENS
from cublaslt import Problem, describe, get, names
from synthetic import save_entries

KINDS = {"tf32": (torch.float32, "TF32", 43, 1.0, 2.0**60), "f16acc": (torch.float16, "16F", 39, 2.0**-14, 2.0**15)}
CLUSTERS_TRIED = ["1x1x1", "1x2x1", "1x3x1", "1x4x1", "1x8x1", "2x1x1", "2x2x1", "2x4x1", "4x1x1", "4x2x1", "6x1x1", "7x1x1", "8x1x1"]
LARGEST = 1 << 25


def number_of(setting, name):
    return next(number for number, known in names(setting).items() if known == name)


class Probe:
    def __init__(self, kind, M, N, K, nn):
        dtype, compute, self.number, self.small, self.big = KINDS[kind]
        self.kind, self.shape, self.nn = kind, (M, N, K), nn
        self.w = torch.full((K, N) if nn else (N, K), self.small, dtype=dtype, device="cuda")
        self.problem = Problem(torch.ones(M, K, dtype=dtype, device="cuda"), self.w, torch.zeros(M, N, dtype=dtype, device="cuda"),
                               compute=compute, trans_w=not nn)

    def count(self, algo, plus, minus, step):
        """What is added after products `plus` and `minus` have met, one output per tile."""
        for k, value in ((plus, self.big), (minus, -self.big)):
            (self.w[k] if self.nn else self.w[:, k]).fill_(value)
        self.problem.run(algo)
        out = (self.problem.out[::step[0], ::step[1]].float() / self.small).clone()
        for k in (plus, minus):
            (self.w[k] if self.nn else self.w[:, k]).fill_(self.small)
        return out

    def record(self, algo, source):
        d, asked = describe(algo), self.problem.workspace_of(algo)
        if asked is None or asked < 2000:  # no partial sums
            return None
        tile_n, tile_m = map(int, d["tile"].split("x"))
        tile_k = int(d["stages"].split("x")[0])
        M, N, K = self.shape
        tiles = -(-K // tile_k)
        far = self.count(algo, 0, (tiles - 1) * tile_k, (tile_m, tile_n))
        pairs = torch.stack([self.count(algo, t * tile_k, (t + 1) * tile_k, (tile_m, tile_n)) for t in range(tiles - 1)], -1)
        kinds, which = torch.unique(pairs.reshape(-1, tiles - 1).cpu(), dim=0, return_inverse=True)
        return dict(kind=self.kind, source=source, nn=self.nn, M=M, N=N, K=K, workspace=asked, **d,
                    shared=["".join("1" if v == 0 else "0" for v in row) for row in far.cpu().tolist()],
                    counts=kinds.tolist(), counts_of=which.reshape(far.shape).tolist())


def drawn(rng):
    kind, nn = rng.choice(["tf32", "tf32", "f16acc"]), rng.random() < 0.5
    N, K = rng.choice(LLM_SHAPES) if rng.random() < 0.6 else (8 * rng.randrange(8, 1200), 8 * rng.randrange(16, 1600))
    return kind, rng.choice(TOKENS + [rng.randrange(1, 2049)]), N, K, nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, start, found, algorithms = random.Random(args.seed), time.time(), [], []

    def keep(probe, algo, source):
        record = probe.record(algo, source) if algo is not None else None
        if record is not None:
            found.append(record)
            algorithms.append(algo)

    while time.time() - start < args.seconds / 2:
        kind, M, N, K, nn = drawn(rng)
        if max(M * K, N * K, M * N) <= LARGEST:
            probe = Probe(kind, M, N, K, nn)
            algo = probe.problem.heuristic()
            keep(probe, algo if algo is not None and get(algo, "split") == -1 else None, "heuristic")
    while time.time() - start < args.seconds:
        kind, tile = rng.choice(list(KINDS)), rng.choice(["64x64", "128x64", "64x128", "128x128", "256x128"])
        tile_n, tile_m = map(int, tile.split("x"))
        M, N = rng.randrange(1, 25) * tile_m - rng.choice([0, 0, 3]), rng.randrange(1, 73) * tile_n - rng.choice([0, 0, 16])
        K = 32 * rng.choice([16, 24, 32, 33, 48, 64, 96]) - rng.choice([0, 0, 8])
        if max(M * K, N * K, M * N) <= LARGEST:
            probe = Probe(kind, M, N, K, False)
            keep(probe, probe.problem.choose(probe.number, tile=number_of("tile", tile), stages=number_of("stages", "32xAUTO"), split=-1, scheme=2,
                                             swizzle=int(rng.random() < 0.3), cluster=number_of("cluster", rng.choice(CLUSTERS_TRIED))), "forced")
    recorder = gpu_trace.Recorder()
    with recorder:
        for i, (record, algo) in enumerate(zip(found, algorithms)):
            probe = Probe(record["kind"], record["M"], record["N"], record["K"], record["nn"])
            with recorder.mark(str(i)):
                probe.problem.run(algo)
    for mark, kernels in recorder.by_mark().items():
        found[int(mark)]["kernels"] = [k[:2] for k in kernels]
    save_entries(args.out, found)
    print(len(found), "configurations")


if __name__ == "__main__":
    main()
