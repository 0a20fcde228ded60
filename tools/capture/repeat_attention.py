"""Whether cuDNN's attention of one query over many keys always returns the same bits.

    python3 repeat_attention.py OUT.json [--times 1000]

Runs every call that many times on the same operands (those of capture_attention.py) and writes, per call, the distinct
SHA-256 of the output and of the log-sum-exp with how often each came. More than one: the kernel adds in an order that
changes from run to run, and no model can reproduce it. One: the order is fixed, and the log-sum-exps of many such
calls (`--times 1` is then enough) can tell it.
"""
import argparse
import collections
import json

from gpu_trace import environment
import torch
from capture_attention import attend, name_of, operands
from synthetic import self_check, sha256


def cases():
    def case(Sk, h, hk, dtype):
        return dict(Sq=1, Sk=Sk, h=h, hk=hk, d=128, causal=False, dtype=dtype)

    # 257 to 512 keys: one part per head; beyond: parts, and lean_reduction_kernel. 200 keys: a kernel with a fixed order.
    out = [case(Sk, 64, 64, dtype) for Sk in (200, 257, 384, 512, 513, 1000, 4000, 8000) for dtype in ("bf16", "fp16")]
    return out + [case(4000, 8, 8, "fp16"), case(1000, 32, 8, "bf16"), case(4000, 32, 8, "bf16")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--times", type=int, default=1000)
    args = parser.parse_args()
    self_check()
    calls = []
    with torch.no_grad():
        for c in cases():
            tensors = operands(c)
            counts = {"o": collections.Counter(), "o_with_lse": collections.Counter(), "lse": collections.Counter()}
            for _ in range(args.times):
                counts["o"][sha256(attend(c, *tensors, lse=False)[0])] += 1
                o, lse = attend(c, *tensors, lse=True)
                counts["o_with_lse"][sha256(o.contiguous())] += 1
                counts["lse"][sha256(lse.contiguous())] += 1
            calls.append(dict(name=name_of(c), **c, **{k: dict(v) for k, v in counts.items()}))
            print(calls[-1]["name"], {k: len(v) for k, v in counts.items()})
    with open(args.out, "w") as f:
        json.dump(dict(environment(), cudnn=torch.backends.cudnn.version(), times=args.times, calls=calls), f, indent=1)


if __name__ == "__main__":
    main()
