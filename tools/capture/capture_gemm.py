"""Captures matrix products of PyTorch on mirrored synthetic inputs: outputs are pure rounding.

    python3 capture_gemm.py OUT_DIR NAME {ktail,sweep,blind,epilogues,gemv} [--count N] [--seed S]
    python3 capture_gemm.py OUT_DIR NAME shapes --shape M N K [--shape M N K ...] [--dtype bf16] [--bias]
    python3 make_manifests.py gemm OUT_DIR/NAME.json OUT_DIR/NAME.manifest.json

Writes NAME.json (one entry per case: shape, dtypes, seeds, sampled rows and columns, kernels with grid, block and
shared memory, what cuBLASLt logged, SHA-256 of the whole output) and NAME.safetensors (the samples).
The case list is a fixed pseudo-random sequence, or the shapes that are named. Inputs: x[M,K] even, w[N,K] odd mirrored (synthetic.py); `*_nn` tags
multiply by the transposed copy of w; B > 0: batched, x[B,M,K], w[B,N,K]. scaled_mm scales are one float32 or, row-wise,
vectors [M] and [N], all synthetic with exp2 -3 plus 1.0 (seeds sa, sb). `n1_at`: x is a transposed view. `f32out`, `*_f32`: FP32
outputs of 16-bit operands. `f16acc`: allow_fp16_accumulation; `noreduced`: no reduced-precision reductions; `gelu`, `relu`:
_addmm_activation. `u53`: FP64 inputs of 53 random bits, not mirrored.
"""
import argparse
import os
import random
import warnings

from gpu_trace import Recorder, environment  # first: chooses the cuBLASLt log file
import torch
import torch.nn.functional as F
from synthetic import DTYPES, mirrored, save, save_entries, self_check, sha256, spread, synthetic, uniform53

# (N, K) of the linear layers of current language models
LLM_SHAPES = [(4096, 2560), (1024, 2560), (2560, 4096), (9728, 2560), (2560, 9728), (4096, 4096), (1024, 4096),
              (14336, 4096), (4096, 14336), (3584, 3584), (512, 3584), (18944, 3584), (3584, 18944), (2048, 1024),
              (1024, 2048), (3072, 1024), (1024, 3072), (896, 896), (128, 896), (4864, 896), (896, 4864), (5120, 5120),
              (13824, 5120), (5120, 13824), (2048, 2048), (8192, 2048), (2048, 8192), (3072, 3072), (8192, 3072),
              (6144, 4096), (2304, 768), (768, 768), (3072, 768), (768, 3072), (1536, 1536), (8960, 1536),
              (1536, 8960), (2880, 4096), (2688, 2304), (9216, 2304)]
TOKENS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 100, 127, 128, 129, 160, 200, 255, 256, 257,
          300, 384, 500, 512, 640, 777, 1000, 1024, 1536, 2000, 2048]
LARGEST_OUTPUT = 24 << 20


def case(tag, M, N, K, indtype, B=0, **more):
    x, w = {"e4m3": (2, 1), "e5m2": (2, 1)}.get(indtype, (4, 3))
    return dict(tag=tag, M=M, N=N, K=K, B=B, indtype=indtype, xseed=2000 + K, wseed=1000 + 7 * N + K, xexp=x, wexp=w,
                **more)


def bias(c):
    return dict(c, bias=[5000 + c["N"], -10])


def scaled(rng, M, N, K):
    # scaled_mm wants multiples of 16
    K, N = K // 16 * 16, N // 16 * 16
    c = case("scaled", M, N, K, rng.choice(["e4m3", "e4m3", "e4m3", "e5m2"]), wdtype="e4m3",
             outdtype=rng.choice(["bf16", "bf16", "fp16", "fp32"]), fast=rng.random() < 0.5,
             rowwise=rng.random() < 0.3, sa=7000 + M, sb=7100 + N)
    if c["rowwise"]:
        c["outdtype"] = "bf16"
    return c


def ktail_cases():
    """bf16 nvjet with K a multiple of 8 but not of 64."""
    out = []
    ks = [8, 24, 40, 56, 72, 88, 104, 120, 136, 200, 328, 520, 776, 1000, 1352, 2056, 2568, 3080, 4104, 5128, 7688,
          9736, 11528, 14344]
    rng = random.Random(1)
    for K in ks:
        for M in rng.sample([1, 2, 5, 8, 16, 17, 33, 64, 100, 128, 200, 256, 300], 5):
            out.append(case("ktail", M, rng.choice([128, 256, 512, 1024, 1536, 2048, 2560, 4096]), K, "bf16"))
    for M, N, K in [(16, 2560, 11528), (1, 2560, 11528), (64, 2560, 11528), (100, 256, 11528), (300, 128, 11528),
                    (33, 4096, 2568), (100, 512, 2568), (8, 128, 14344), (16, 128, 14344), (64, 256, 9736)]:
        out.append(case("ktail", M, N, K, "bf16"))
    for M, N, K in [(16, 2560, 11528), (64, 512, 2568), (100, 128, 5128), (8, 1024, 7688)]:
        out.append(case("ktail", M, N, K, "fp16"))
    return out


def sweep_cases(count):
    rng = random.Random(20261129)

    def llm():
        while True:
            M = rng.choice(TOKENS)
            N, K = rng.choice(LLM_SHAPES)
            if M * N <= LARGEST_OUTPUT:
                return M, N, K

    def odd():
        while True:
            M = rng.choice(TOKENS + [rng.randrange(1, 700)])
            N = rng.choice([1, 2, 3, rng.randrange(4, 80), rng.randrange(80, 3000), 4 * rng.randrange(5, 900),
                            2 * rng.randrange(5, 1500)])
            K = rng.choice([rng.randrange(2, 70), rng.randrange(70, 5000), 2 * rng.randrange(10, 2500),
                            4 * rng.randrange(10, 2500)])
            return M, N, K

    def batched():
        return (rng.choice([1, 2, 5, 16, 17, 33, 64, 100, 128, 200, 257]), rng.choice([16, 33, 64, 65, 80, 128, 200, 256]),
                rng.choice([8, 31, 33, 64, 72, 96, 128, 192, 256, 500, 1000]))

    half = ("bf16", "bf16", "fp16")
    makers = [
        (24, lambda: case("linear", *llm(), rng.choice(half))),
        (14, lambda: case("odd", *odd(), rng.choice(half))),
        (7, lambda: case("linear_nn", *llm(), rng.choice(half))),
        (5, lambda: case("odd_nn", *odd(), rng.choice(half))),
        (6, lambda: bias(case("bias", *llm(), rng.choice(half)))),
        (5, lambda: bias(case("odd_bias", *odd(), rng.choice(half)))),
        (5, lambda: case("fp32_tn", *rng.choice([llm, odd])(), "fp32")),
        (3, lambda: case("fp32_nn", *rng.choice([llm, odd])(), "fp32")),
        (2, lambda: bias(case("fp32_bias", *rng.choice([llm, odd])(), "fp32"))),
        (4, lambda: case("tf32_tn", *rng.choice([llm, odd])(), "fp32")),
        (3, lambda: case("tf32_nn", *rng.choice([llm, odd])(), "fp32")),
        (4, lambda: case("bmm", *batched(), rng.choice(half + ("fp32",)), B=rng.choice([2, 4, 8, 32]))),
        (3, lambda: case("bmm_nn", *batched(), rng.choice(half + ("fp32",)), B=rng.choice([2, 4, 8, 32]))),
        (3, lambda: cmat(case("baddbmm", *batched(), rng.choice(half), B=rng.choice([2, 4, 8])))),
        (4, lambda: cmat(case("addmm_c", *rng.choice([llm, odd])(), rng.choice(half)))),
        (8, lambda: scaled(rng, *llm())),
        (2, lambda: case("fp64_tn", *batched(), "fp64")),
        (1, lambda: case("fp64_nn", *odd(), "fp64")),
    ]

    def cmat(c):
        alpha, beta = rng.choice([(1, 1), (1.3, 0.7), (1, 0.5), (2, 1), (0.3, 1)])
        return dict(c, cmat=[6000 + c["N"], -10], alpha=alpha, beta=beta)

    total = sum(weight for weight, _ in makers)
    out = []
    for weight, make in makers:
        out += [make() for _ in range(max(1, round(count * weight / total)))]
    return out


def blind_cases(count, seed):
    """Calls of every kind that PyTorch can make, shapes at random: to try rules on what they were not found on."""
    rng = random.Random(seed)
    half = ("bf16", "bf16", "fp16")

    def llm():
        while True:
            M = rng.choice(TOKENS + [rng.randrange(1, 1200)])
            N, K = rng.choice(LLM_SHAPES)
            if M * N <= LARGEST_OUTPUT // 4:
                return M, N, K

    def odd():
        M = rng.choice(TOKENS[:-4] + [rng.randrange(1, 700)])
        N = rng.choice([2, 3, rng.randrange(4, 80), rng.randrange(80, 3000), 4 * rng.randrange(5, 900), 2 * rng.randrange(5, 1500)])
        K = rng.choice([rng.randrange(2, 70), rng.randrange(70, 5000), 2 * rng.randrange(10, 2500), 4 * rng.randrange(10, 2500),
                        2 * rng.randrange(2500, 6000)])
        return M, N, K

    def any_shape():
        return rng.choice([llm, odd, odd])()

    def long_vector():
        return rng.choice([rng.randrange(2, 100), rng.randrange(100, 3000), 8 * rng.randrange(10, 1500), 2560, 4096, 9728, rng.randrange(3000, 12000)])

    def batched():
        return (rng.choice([1, 2, 5, 16, 17, 33, 64, 100, 128, 200, 257]), rng.choice([1, 16, 33, 64, 65, 80, 128, 200, 256]),
                rng.choice([8, 31, 33, 64, 72, 96, 128, 192, 256, 500, 1000, 2047]))

    def cmat(c, one=False, **more):
        alpha, beta = (1, 1) if one else rng.choice([(1.3, 0.7), (1, 0.5), (2, 1), (0.3, 1), (1, 1)])
        return dict(c, cmat=[6000 + c["N"], -10], alpha=alpha, beta=beta, **more)

    fp = lambda: rng.choice(half + ("fp32",))
    kinds = [
        (12, lambda: case("blind", *odd(), rng.choice(half))),
        (12, lambda: case("blind_nn", *odd(), rng.choice(half))),
        (8, lambda: bias(case("bias", *any_shape(), rng.choice(half)))),
        (8, lambda: case("gv_tn", 1, long_vector(), long_vector(), fp())),
        (8, lambda: case("gv_nn", 1, long_vector(), long_vector(), fp())),
        (6, lambda: case("n1_tn", rng.choice(TOKENS), 1, long_vector(), fp())),
        (6, lambda: case("n1_at", rng.choice(TOKENS), 1, long_vector(), fp())),
        (6, lambda: case("f32out", *any_shape(), rng.choice(half))),
        (6, lambda: cmat(case("addmm_c", *any_shape(), rng.choice(half)))),
        (4, lambda: cmat(case("addmm_c1", *any_shape(), rng.choice(half)), one=True)),
        (4, lambda: cmat(case("addmm_f32", *any_shape(), rng.choice(half)), cdt="fp32")),
        (6, lambda: case("fp32_tn", *any_shape(), "fp32")),
        (5, lambda: case("fp32_nn", *any_shape(), "fp32")),
        (4, lambda: bias(case("fp32_bias", *any_shape(), "fp32"))),
        (3, lambda: cmat(case("addmm_c", *any_shape(), "fp32"))),
        (6, lambda: case("tf32_tn", *any_shape(), "fp32")),
        (5, lambda: case("tf32_nn", *any_shape(), "fp32")),
        (4, lambda: bias(case("tf32_bias", *any_shape(), "fp32"))),
        (5, lambda: case("bmm", *batched(), fp(), B=rng.choice([2, 4, 8, 32]))),
        (5, lambda: case("bmm_nn", *batched(), fp(), B=rng.choice([2, 4, 8, 32]))),
        (4, lambda: cmat(case("baddbmm", *batched(), fp(), B=rng.choice([2, 4, 8])))),
        (2, lambda: cmat(case("baddbmm_f32", *batched(), rng.choice(half), B=rng.choice([2, 4, 8])), cdt="fp32")),
        (5, lambda: scaled(rng, *llm())),
        (6, lambda: case("f16acc", *any_shape(), "fp16", acc16=1)),
        (4, lambda: case("noreduced", *any_shape(), rng.choice(half), noreduced=1)),
        (4, lambda: bias(case("gelu", *any_shape(), rng.choice(half)))),
    ]
    total = sum(weight for weight, _ in kinds)
    return [make() for weight, make in kinds for _ in range(max(1, round(count * weight / total)))]


def epilogue_cases(count, seed):
    """What blind_cases has not: activations, alpha and beta in all arithmetics, bias in FP16, FP64, more of TF32."""
    rng = random.Random(seed)
    half = ("bf16", "fp16")

    def shape():
        N, K = rng.choice(LLM_SHAPES) if rng.random() < 0.4 else (rng.randrange(2, 3000), rng.randrange(2, 5000))
        M = rng.choice(TOKENS + [rng.randrange(1, 1500)])
        return (M, N, K) if M * N <= LARGEST_OUTPUT // 6 else shape()

    def cmat(c):
        alpha, beta = rng.choice([(1.3, 0.7), (1, 0.5), (2, 1), (0.3, 1), (1, 1), (0.7, -1.1)])
        return dict(c, cmat=[6000 + c["N"], -10], alpha=alpha, beta=beta)

    def fp64(tag):
        B = rng.choice([2, 3, 8]) if "bmm" in tag else 0
        M, N = (rng.choice([rng.randrange(2, 40), rng.randrange(2, 300), 64, 128, 256]) for _ in range(2))
        K = rng.choice([rng.randrange(2, 100), rng.randrange(100, 3000), 8 * rng.randrange(4, 500), 1024, 4096])
        c = dict(case(tag, M, N, K, "fp64", B=B), xexp=0, wexp=0, u53=1)
        return c if max(B, 1) * M * N * K < 1e7 else fp64(tag)

    kinds = [
        (6, lambda: bias(case("gelu", *shape(), rng.choice(half)))),
        (2, lambda: bias(case("gelu", *shape(), "fp32"))),
        (4, lambda: bias(case("tf32_gelu", *shape(), "fp32"))),
        (5, lambda: bias(case("relu", *shape(), rng.choice(half + ("fp32",))))),
        (5, lambda: cmat(case("tf32_addmm", *shape(), "fp32"))),
        (5, lambda: cmat(case("addmm_c", *shape(), rng.choice(half)))),
        (4, lambda: cmat(case("addmm_f32", *shape(), rng.choice(half), cdt="fp32"))),
        (4, lambda: bias(case("f16acc_bias", *shape(), "fp16", acc16=1))),
        (4, lambda: cmat(case("f16acc_addmm", *shape(), "fp16", acc16=1))),
        (3, lambda: case("f16acc", *shape(), "fp16", acc16=1)),
        (6, lambda: case("tf32_tn", *shape(), "fp32")),
        (3, lambda: case("tf32_nn", *shape(), "fp32")),
        (4, lambda: bias(case("tf32_bias", *shape(), "fp32"))),
        (3, lambda: fp64("fp64_tn")),
        (2, lambda: fp64("fp64_nn")),
        (2, lambda: fp64("fp64_bmm")),
        (2, lambda: dict(fp64("fp64_bias"), bias=[5000, 0])),
        (3, lambda: dict(cmat(fp64("fp64_addmm")), cmat=[6000, 2])),
        (2, lambda: dict(cmat(fp64("fp64_baddbmm")), cmat=[6000, 2])),
    ]
    total = sum(weight for weight, _ in kinds)
    return [make() for weight, make in kinds for _ in range(max(1, round(count * weight / total)))]


def gemv_cases(count, seed):
    """Matrix-vector products of all layouts and types: one case per custom option and more are needed to tell an order."""
    rng = random.Random(seed)

    def length():
        return rng.choice([rng.randrange(2, 100), rng.randrange(100, 3000), 8 * rng.randrange(10, 1500), 2560, 4096, 9728,
                           rng.randrange(3000, 12000), 2 * rng.randrange(1000, 6000)])

    def kind():
        dtype = rng.choice(["bf16", "fp16", "fp32"])
        tag = rng.choice(["gv_tn", "gv_nn", "gv_nn", "gv_nn", "n1_tn", "n1_at", "n1_at", "bmm", "bmm_nn", "f32out"])
        if tag.startswith("bmm"):
            small = rng.choice([rng.randrange(2, 64), rng.randrange(64, 1100)])
            M, N = rng.choice([(1, small), (small, 1)])
            return case(tag, M, N, rng.choice([rng.randrange(2, 300), rng.randrange(300, 3000)]), dtype, B=rng.choice([2, 4, 8, 32]))
        if tag == "f32out":
            return case(tag, 1, length(), length(), rng.choice(["bf16", "fp16"]))
        return case(tag, *((1, length()) if tag.startswith("gv") else (length(), 1)), length(), dtype)

    return [kind() for _ in range(count)]


def dtype_of(c, name):
    return () if c.get("u53") else (DTYPES[name],)


def operands(c):
    lead = (c["B"],) if c["B"] else ()
    if c.get("u53"):
        make, x, w = uniform53, *(uniform53(c[k], (*lead, c[n], c["K"]), 0) for k, n in (("xseed", "M"), ("wseed", "N")))
    else:
        make = synthetic
        x = mirrored(synthetic(c["xseed"], (*lead, c["M"], c["K"]), c["xexp"], DTYPES[c["indtype"]]), odd=False)
        w = mirrored(synthetic(c["wseed"], (*lead, c["N"], c["K"]), c["wexp"], DTYPES[c.get("wdtype", c["indtype"])]), odd=True)
    more = {}
    if c["tag"].endswith("_at"):
        x = x.t().contiguous().t()
    if c["tag"].endswith("_nn"):
        w = w.transpose(-1, -2).contiguous()
    if "bias" in c:
        more["bias"] = make(c["bias"][0], (c["N"],), c["bias"][1], *dtype_of(c, c["indtype"]))
    if "cmat" in c:
        more["c"] = make(c["cmat"][0], (*lead, c["M"], c["N"]), c["cmat"][1], *dtype_of(c, c.get("cdt", c["indtype"])))
    if "sa" in c:
        shapes = ((c["M"], 1), (1, c["N"])) if c["rowwise"] else ((1,), (1,))
        more["scales"] = [synthetic(seed, shape, -3, torch.float32, plus=1.0)
                          for seed, shape in zip((c["sa"], c["sb"]), shapes)]
        if not c["rowwise"]:
            more["scales"] = [s.reshape(()) for s in more["scales"]]
    return x, w, more


def run(c, x, w, more):
    tag = c["tag"]
    torch.backends.cuda.matmul.allow_tf32 = tag.startswith("tf32")
    torch.backends.cuda.matmul.allow_fp16_accumulation = bool(c.get("acc16"))
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not c.get("noreduced")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = not c.get("noreduced")
    if tag in ("gelu", "tf32_gelu", "relu"):
        return torch._addmm_activation(more["bias"], x, w.t(), use_gelu=tag != "relu")
    if tag == "f32out":
        return torch.mm(x, w.t(), out_dtype=torch.float32)
    if tag == "addmm_f32":
        return torch.addmm(more["c"], x, w.t(), alpha=c["alpha"], beta=c["beta"], out_dtype=torch.float32)
    if tag == "baddbmm_f32":
        return torch.baddbmm(more["c"], x, w.transpose(1, 2), alpha=c["alpha"], beta=c["beta"], out_dtype=torch.float32)
    if tag == "addmm_c1":
        return torch.addmm(more["c"], x, w.t())
    if tag == "scaled":
        return torch._scaled_mm(x, w.t(), scale_a=more["scales"][0], scale_b=more["scales"][1],
                                out_dtype=DTYPES[c["outdtype"]], use_fast_accum=c["fast"])
    if tag.endswith("baddbmm"):
        return torch.baddbmm(more["c"], x, w.transpose(1, 2), alpha=c["alpha"], beta=c["beta"])
    if tag == "addmm_c" or tag.endswith("_addmm"):
        return torch.addmm(more["c"], x, w.t(), alpha=c["alpha"], beta=c["beta"])
    if tag == "bmm" or tag == "fp64_bmm":
        return torch.bmm(x, w.transpose(1, 2))
    if tag.endswith("_nn"):
        return torch.matmul(x, w)
    return F.linear(x, w, more.get("bias"))


def capture(cases, first_id):
    """Runs the cases under one profiler; returns entries and samples."""
    entries, samples = [], {}
    recorder = Recorder()
    with recorder, torch.no_grad():
        for i, c in enumerate(cases):
            entry = dict(id=first_id + i, **c)
            try:
                inputs = operands(c)
                torch.cuda.synchronize()
                with recorder.mark(str(i)):
                    out = run(c, *inputs)
                    torch.cuda.synchronize()
                entry["same"] = bool(torch.equal(out.view(torch.uint8), run(c, *inputs).view(torch.uint8)))
            except (RuntimeError, TypeError) as error:  # a shape the library refuses is a result too
                entry["error"] = str(error).splitlines()[0][:200]
                entries.append(entry)
                continue
            entry["dtype"] = str(out.dtype).removeprefix("torch.")
            out3 = out if c["B"] else out[None]
            entry["bs"] = spread(out3.shape[0], 3)
            entry["rows"] = spread(c["M"], 4 if c["B"] else 8)
            entry["cols"] = spread(c["N"], 40)
            entry["sha256_full"] = sha256(out)
            entry["key"] = f"c{entry['id']}"
            samples[entry["key"]] = out3[entry["bs"]][:, entry["rows"]][:, :, entry["cols"]].clone()
            entries.append(entry)
    kernels = recorder.by_mark()
    for i, entry in enumerate(entries):
        entry["kernels"] = kernels.get(str(i), [])
        entry["ltlog"] = recorder.log.get(str(i), [])
    return entries, samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("name")
    parser.add_argument("which", choices=["ktail", "sweep", "blind", "epilogues", "gemv", "shapes"])
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1, help="of the case list of blind, epilogues and gemv")
    parser.add_argument("--only", type=int)
    parser.add_argument("--shape", type=int, nargs=3, action="append", default=[], metavar=("M", "N", "K"))
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16", help="of the products named by --shape")
    parser.add_argument("--bias", action="store_true", help="with a bias")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.makedirs(args.out, exist_ok=True)
    self_check()
    if args.which == "shapes":
        cases = [case("bias" if args.bias else "linear", M, N, K, args.dtype) for M, N, K in args.shape]
        if args.bias:
            cases = [bias(c) for c in cases]
    else:
        lists = {"ktail": ktail_cases, "sweep": lambda: sweep_cases(args.count), "blind": lambda: blind_cases(args.count, args.seed),
                 "epilogues": lambda: epilogue_cases(args.count, args.seed),
                 "gemv": lambda: gemv_cases(args.count, args.seed)}
        cases = lists[args.which]()[:args.only]
    entries, samples = [], {}
    for first in range(0, len(cases), 100):
        part, tensors = capture(cases[first:first + 100], first)
        entries += part
        samples.update(tensors)
        print(args.name, len(entries), "of", len(cases), flush=True)
    save(os.path.join(args.out, args.name + ".safetensors"), samples, environment())
    save_entries(os.path.join(args.out, args.name + ".json"), entries)
    for e in entries:
        if "error" in e or not e["kernels"] or not e.get("same", True):
            print("look:", e["id"], e["tag"], e["M"], e["N"], e["K"], e["indtype"], e.get("error"), e.get("same"))


if __name__ == "__main__":
    main()
