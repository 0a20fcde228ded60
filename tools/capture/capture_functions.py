"""Captures functions of one or two numbers: special-function forms, CUDA intrinsics, PyTorch's functions and pow.

    nvcc -O2 -shared -Xcompiler -fPIC -gencode=arch=compute_90a,code=sm_90a functions.cu -o functions.so
    python3 capture_functions.py functions.so OUT_DIR NAME

Pseudo-random bits: z(seed, i) = splitmix64 of seed + (i+1)*0x9E3779B97F4A7C15, as in synthetic.py; "raw(seed)" is the low
32 bits of it. NAME.safetensors:
  <16-bit PTX form>      [65536], all inputs in order
  bf16_<fn>, fp16_<fn>   torch.<fn> of all 65536 patterns (the functions in WHOLE)
  sample of each sweep   every 2048-th output of the intrinsic sweeps, every 4096-th of the pow sweeps
NAME.json: one entry per sweep. Intrinsics: first input 0, step 512, 2^23 inputs (second argument of __fdividef and
__powf: raw(3)), SHA-256 of the outputs as little-endian 32-bit words. pow: 2^24 inputs, 256 hashes of 2^16 consecutive
outputs each: h = sum of z mod 2^64 over z = i*0x9E3779B97F4A7C15 + output bits, z ^= z>>32, z *= 0xD6E8FEB86659FD93,
z ^= z>>29, with i the index in the sweep. 16-bit functions: the same, 256 hashes of 256 outputs each. Packed PTX forms:
inputs (low i, high 65535-i); `equals_scalar` says whether both halves are the outputs of the 16-bit form.
"""
import argparse
import ctypes
import os

import torch
import torch.nn.functional as F
from gpu_trace import environment
from synthetic import _shift_right, _signed, _splitmix64, save, save_entries, self_check, sha256, synthetic

FORMS16 = ["ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"]
FORMS32 = ["ex2.approx.f16x2", "ex2.approx.ftz.bf16x2", "tanh.approx.f16x2", "tanh.approx.bf16x2"]
INTRINSICS = ["__expf", "__exp10f", "__logf", "__log2f", "__log10f", "__sinf", "__cosf", "__tanf", "__fdividef", "__powf"]
TORCH_FUNCTIONS = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "sin": torch.sin,
    "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus,
}
WHOLE = {"bf16_expm1", "bf16_log2"} | {"fp16_" + f for f in ("expm1", "log2", "silu", "gelu", "gelu_tanh", "exp", "tanh",
                                                              "sigmoid")}


def low32(z):
    """Low 32 bits of int64 values as int32."""
    return z.view(torch.int32)[..., ::2].contiguous()


def raw(seed, count):
    return low32(_splitmix64(seed, 0, count, "cuda"))


def positive(seed, count):
    """Exponents -8 ... 7, any fraction: bits (119 + (z>>40) mod 16) << 23 | z mod 2^23."""
    z = _splitmix64(seed, 0, count, "cuda")
    bits = (119 + (_shift_right(z, 40) & 15) << 23) | (z & 0x7FFFFF)
    return bits.to(torch.int32).view(torch.float32)


def chunk_hashes(out):
    """256 hashes of consecutive outputs (32-bit or 16-bit)."""
    wide = out.element_size() == 4
    bits = out.view(torch.int32 if wide else torch.int16).to(torch.int64) & (0xFFFFFFFF if wide else 0xFFFF)
    z = torch.arange(bits.numel(), dtype=torch.int64, device="cuda") * _signed(0x9E3779B97F4A7C15) + bits
    z = z ^ _shift_right(z, 32)
    z = z * _signed(0xD6E8FEB86659FD93)
    z = z ^ _shift_right(z, 29)
    return [f"{h & (1 << 64) - 1:016x}" for h in z.view(256, -1).sum(dim=1).tolist()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("name")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    self_check()
    lib = ctypes.CDLL(os.path.abspath(args.library))
    lib.capture_map.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 3 + [ctypes.c_int64]

    def call(name, x, y=None):
        out = torch.empty_like(x)
        torch.cuda.synchronize()
        code = lib.capture_map(name.encode(), x.data_ptr(), y.data_ptr() if y is not None else None, out.data_ptr(),
                               x.numel())
        if code != 0:
            raise RuntimeError(f"{name}: error {code}")
        return out

    tensors, entries = {}, []
    codes = torch.arange(65536, dtype=torch.int32, device="cuda")
    for name in FORMS16:
        tensors[name] = call(name, codes.to(torch.int16)).view(torch.uint16)
    for name, scalar in zip(FORMS32, FORMS16):
        out = call(name, codes | (65535 - codes) << 16)
        single = tensors[scalar].view(torch.int16).to(torch.int32) & 0xFFFF
        entries.append({"name": name, "count": 65536, "hashes": chunk_hashes(out),
                        "equals_scalar": bool(torch.equal(out, single | single.flip(0) << 16))})
    for prefix, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        x = codes.to(torch.int16).view(dtype)
        for name, function in TORCH_FUNCTIONS.items():
            out = function(x)
            entries.append({"name": f"{prefix}_{name}", "count": 65536, "hashes": chunk_hashes(out), "sha256": sha256(out)})
            if f"{prefix}_{name}" in WHOLE:
                tensors[f"{prefix}_{name}"] = out
    u = (torch.arange(1 << 23, dtype=torch.int64, device="cuda") * 512).view(torch.int32)[::2].contiguous()
    y = raw(3, 1 << 23)
    for name in INTRINSICS:
        out = call(name, u, y)
        entries.append({"name": name, "first_input_bits": "0x00000000", "step": 512, "count": 1 << 23,
                        "sha256_of_outputs_le_u32": sha256(out), "samples": "every 2048-th"})
        if name in ("__fdividef", "__powf"):
            entries[-1]["y"] = "raw(3)"
        tensors[name] = out[::2048].view(torch.uint32)
    n = 1 << 24
    t = torch.arange(n, dtype=torch.float32, device="cuda") / float(n)
    sweeps = [("pow_raw", "torch.pow(x, y), x = raw(1), y = raw(2)",
               lambda: torch.pow(raw(1, n).view(torch.float32), raw(2, n).view(torch.float32))),
              ("pow_ordinary", "torch.pow(p, y), p = positive(5): bits (119 + (z>>40) mod 16) << 23 | z mod 2^23, "
                               "y = synthetic float32, seed 6, exp2 1",
               lambda: torch.pow(positive(5, n), synthetic(6, (n,), 1, torch.float32)))]
    for base in (10000.0, 500000.0, 1000000.0, 5000000.0):
        sweeps.append((f"pow_base_{int(base)}", f"torch.pow({base}, t), t = i/2^24 float32", lambda b=base: torch.pow(b, t)))
    for exponent in (3.0, 0.75, -1.5):
        sweeps.append((f"pow_exponent_{exponent}", f"torch.pow(x, {exponent}), x = raw(1)",
                       lambda e=exponent: torch.pow(raw(1, n).view(torch.float32), e)))
    for name, what, function in sweeps:
        out = function()
        entries.append({"name": name, "what": what, "count": n, "hashes": chunk_hashes(out), "samples": "every 4096-th"})
        tensors[name] = out[::4096].clone()
    save(os.path.join(args.out, args.name + ".safetensors"), tensors, environment())
    save_entries(os.path.join(args.out, args.name + ".json"), entries)
    print(len(tensors), "tensors,", len(entries), "sweeps")


if __name__ == "__main__":
    main()
