"""Synthetic tensors, sampling and file output shared by the capture scripts.

A capture stores outputs only. Inputs come from a counter-based generator that any replay can run again:
element i (row-major) of the tensor with seed s is z = s + (i+1)*0x9E3779B97F4A7C15 mod 2^64, passed through the
splitmix64 finaliser; n is the sum of the four signed 16-bit fields of z; the value is n * 2^(exp2-15), exact in
float32, plus an optional constant added in float32, rounded to the dtype (nearest even).
"""
import hashlib
import json
import math

import torch
from safetensors.torch import save_file

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}

CHUNK = 1 << 26  # elements generated at a time: bounds the int64 temporaries to a few GiB


def _signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift_right(z, bits):
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix64(seed, first, count, device):
    i = torch.arange(first + 1, first + 1 + count, dtype=torch.int64, device=device)
    z = i * _signed(0x9E3779B97F4A7C15) + _signed(seed % (1 << 64))
    z = (z ^ _shift_right(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift_right(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift_right(z, 31)


def _chunk(seed, first, count, device):
    z = _splitmix64(seed, first, count, device)
    n = (z >> 48) + (z << 16 >> 48) + (z << 32 >> 48) + (z << 48 >> 48)
    return n.to(torch.float32)


def synthetic(seed, shape, exp2, dtype=torch.bfloat16, plus=0.0, device="cuda"):
    count = 1
    for extent in shape:
        count *= extent
    out = torch.empty(count, dtype=dtype, device=device)
    for first in range(0, count, CHUNK):
        n = min(CHUNK, count - first)
        value = _chunk(seed, first, n, device) * 2.0 ** (exp2 - 15)
        if plus:
            value = value + plus
        out[first:first + n] = value.to(dtype)
    return out.view(shape)


def uniform53(seed, shape, exp2, device="cuda"):
    """FP64 inputs of full length ("splitmix64-u53"): the upper 53 bits of z, signed, times 2^(exp2-52)."""
    z = _splitmix64(seed, 0, math.prod(shape), device)
    return ((z >> 11).to(torch.float64) * 2.0 ** (exp2 - 52)).view(shape)


def mirrored(tensor, odd):
    """t[..., k] = s * t[..., min(k, K-1-k)]; s = 1, or for odd 1, 0, -1 as k <, =, > K-1-k. The dot product of an
    even and an odd row is then exactly 0 and what a GPU returns is rounding alone."""
    size = tensor.shape[-1]
    k = torch.arange(size, device=tensor.device)
    t = tensor.to(torch.float64)[..., torch.minimum(k, size - 1 - k)]
    if odd:
        t = t * torch.sign(size - 1 - 2 * k).to(torch.float64)
    return t.to(tensor.dtype)


def raw_bytes(tensor):
    return tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()


def sha256(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).cpu().numpy()).hexdigest()


def spread(extent, count):
    """Up to `count` indices of range(extent), first and last included."""
    if extent <= count:
        return list(range(extent))
    return sorted({round(i * (extent - 1) / (count - 1)) for i in range(count)})


def save(path, tensors, metadata):
    tensors = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    save_file(tensors, path, metadata={k: str(v) for k, v in metadata.items()})


def save_entries(path, entries):
    """A JSON list with one entry a line."""
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries) + "\n]\n")


def self_check():
    """The generator against hashes recorded by an earlier, independent capture."""
    w = synthetic(10000, (1024, 1024), -5)
    assert sha256(w) == "75036ffd54ab51fec4a7eaa51b71f4d5af4ec7871302d52dbe9c4611c9dd824d"
    norm = synthetic(10004, (128,), -3, plus=1.0)
    assert sha256(norm) == "9ceab06dd39f154fc69c193430b9eca9622f9919b6e6e85954437c74a202c38c"
