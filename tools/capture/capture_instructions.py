"""Captures single tensor-core instructions on tiles of hard inputs.

    nvcc -O2 -shared -Xcompiler -fPIC -gencode=arch=compute_90a,code=sm_90a instructions.cu -o instructions.so
    python3 capture_instructions.py instructions.so OUT_DIR [--tiles 8] [--dry]

One safetensors file per instruction: CLASS.a [tile,m,k], CLASS.b [tile,n,k], CLASS.c and CLASS.d [tile,m,n].
Classes: normal (exponents near 1), any_normal (every normal exponent), raw_bits (any pattern), moderate (a quarter
zeros), tiny (subnormals), narrow (near cancellation), and for FP64 special (single NaNs with payloads, infinities,
zeros among ordinary values). Before an instruction is captured, small integers prove the fragment layout: their
products are exact in any order. Needs only the standard library (and the GPU); --dry stops before the GPU.
"""
import argparse
import ctypes
import json
import os
import struct
from collections import namedtuple

MASK = (1 << 64) - 1
Format = namedtuple("Format", "name exponent_bits fraction_bits bias top safetensors")  # top: largest normal exponent field
FORMATS = {
    "e4m3": Format("e4m3", 4, 3, 7, 15, "F8_E4M3"),
    "e5m2": Format("e5m2", 5, 2, 15, 30, "F8_E5M2"),
    "f16": Format("f16", 5, 10, 15, 30, "F16"),
    "f32": Format("f32", 8, 23, 127, 254, "F32"),
    "f64": Format("f64", 11, 52, 1023, 2046, "F64"),
}
CLASSES = ["normal", "any_normal", "raw_bits", "moderate", "tiny", "narrow"]
FP8_PAIRS = [("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3")]


class Random:
    def __init__(self, seed):
        self.state = seed & MASK

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def below(self, n):
        return self.bits() % n


def size(f):
    return (1 + f.exponent_bits + f.fraction_bits) // 8


def encode(f, sign, exponent, fraction):
    return (sign << f.exponent_bits | exponent) << f.fraction_bits | fraction


def integer(f, value):
    """A small integer in format f."""
    if value == 0:
        return 0
    magnitude = abs(value)
    exponent = magnitude.bit_length() - 1
    fraction = (magnitude << f.fraction_bits >> exponent) - (1 << f.fraction_bits)
    return encode(f, int(value < 0), f.bias + exponent, fraction)


def number(f, kind, rng):
    sign, fraction = rng.below(2), rng.bits() & ((1 << f.fraction_bits) - 1)
    if kind == "raw_bits":
        return rng.bits() & ((1 << (1 + f.exponent_bits + f.fraction_bits)) - 1)
    if kind == "any_normal":
        value = encode(f, sign, 1 + rng.below(f.top), fraction)
        return value - 1 if f.name == "e4m3" and value & 0x7F == 0x7F else value  # that pattern is NaN
    if kind == "moderate" and rng.below(4) == 0:
        return encode(f, sign, 0, 0)
    if kind == "tiny":
        return encode(f, sign, rng.below(2) if f.name != "f64" else rng.below(3), fraction)
    return encode(f, sign, f.bias - 2 + rng.below(5), fraction)


def special(f, rng):
    quiet = 1 << (f.fraction_bits - 1)
    top = f.top + 1
    payload = rng.bits() & (quiet - 1) | 1
    choice = rng.below(10)
    sign = rng.below(2)
    if choice < 3:
        return encode(f, sign, top, quiet | payload)
    if choice < 5:
        return encode(f, sign, top, payload)  # signalling
    if choice < 8:
        return encode(f, sign, top, 0)
    if choice == 8:
        return encode(f, sign, f.top, (1 << f.fraction_bits) - 1)
    return encode(f, sign, 0, 0)


def tiles(kind, formats, shape, count, rng):
    (fa, fb, fc), (m, n, k) = formats, shape
    a = [[number(fa, kind, rng) for _ in range(m * k)] for _ in range(count)]
    b = [[number(fb, kind, rng) for _ in range(n * k)] for _ in range(count)]
    c = [[number(fc, kind, rng) for _ in range(m * n)] for _ in range(count)]
    if kind == "tiny" and fa.name == "f64":
        # One subnormal times one ordinary factor: the product is subnormal again.
        b = [[number(fb, "normal", rng) for _ in range(n * k)] for _ in range(count)]
    if kind == "narrow":
        # Products come in pairs of opposite sign that differ in the last bits of a; c is small or zero.
        for t in range(count):
            for row in range(n):
                for i in range(0, k - 1, 2):
                    b[t][row * k + i + 1] = b[t][row * k + i]
            for row in range(m):
                for i in range(0, k - 1, 2):
                    other = a[t][row * k + i] ^ 1 << (fa.exponent_bits + fa.fraction_bits)
                    a[t][row * k + i + 1] = other ^ rng.below(4 if fa.fraction_bits > 4 else 2)
            for i in range(m * n):
                c[t][i] = encode(fc, rng.below(2), max(1, fc.bias - 4 - rng.below(fc.fraction_bits + 4)),
                                 rng.bits() & ((1 << fc.fraction_bits) - 1)) if rng.below(3) else 0
    if kind == "special":
        a, b, c = tiles("normal", formats, shape, count, rng)
        for t in range(count):
            for _ in range(3 + 4 * (t % 5)):
                matrix, f = ((a, fa), (b, fb), (c, fc))[rng.below(3)]
                matrix[t][rng.below(len(matrix[t]))] = special(f, rng)
    return a, b, c


def to_bytes(f, matrices):
    return b"".join(v.to_bytes(size(f), "little") for matrix in matrices for v in matrix)


def instructions():
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)):
        yield f"mma.m{m}n8k{k}.f64.f64.f64.f64", (m, 8, k), ("f64", "f64", "f64")
    yield "mma.m16n8k32.f32.e5m2.e4m3.f32", (16, 8, 32), ("e5m2", "e4m3", "f32")
    for x, y in FP8_PAIRS[2:]:
        yield f"mma.m16n8k32.f16.{x}.{y}.f16", (16, 8, 32), (x, y, "f16")
    for x, y in FP8_PAIRS[1:]:
        yield f"mma.m16n8k16.f32.{x}.{y}.f32", (16, 8, 16), (x, y, "f32")
    for x, y in FP8_PAIRS:
        yield f"mma.m16n8k16.f16.{x}.{y}.f16", (16, 8, 16), (x, y, "f16")
    yield "wgmma.m64n8k32.f32.e5m2.e4m3", (64, 8, 32), ("e5m2", "e4m3", "f32")
    for x, y in FP8_PAIRS[2:]:
        yield f"wgmma.m64n8k32.f16.{x}.{y}", (64, 8, 32), (x, y, "f16")


def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))


def call(lib, name, count, a, b, c):
    d = ctypes.create_string_buffer(len(c))
    code = lib.capture_run(name.encode(), count, a, b, c, d)
    if code != 0:
        raise RuntimeError(f"{name}: error {code}")
    return d.raw


def prove_layout(lib, name, shape, formats):
    m, n, k = shape
    fa, fb, fc = formats
    rng = Random(7)
    small = lambda count: [rng.below(7) - 3 for _ in range(count)]
    a, b, c = small(m * k), small(n * k), small(m * n)
    want = [integer(fc, c[i * n + j] + sum(a[i * k + x] * b[j * k + x] for x in range(k)))
            for i in range(m) for j in range(n)]
    encoded = [to_bytes(f, [[integer(f, v) for v in values]]) for f, values in zip(formats, (a, b, c))]
    got = call(lib, name, 1, *encoded)
    if got != to_bytes(fc, [want]):
        raise RuntimeError(f"{name}: fragment layout is wrong")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--gpu", default="NVIDIA H200")
    parser.add_argument("--date", default="")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    lib = None if args.dry else ctypes.CDLL(os.path.abspath(args.library))
    for index, (name, shape, names) in enumerate(instructions()):
        formats = [FORMATS[x] for x in names]
        m, n, k = shape
        if lib:
            prove_layout(lib, name, shape, formats)
        tensors = []
        differing = total = 0
        for kind in CLASSES + (["special"] if names[0] == "f64" else []):
            count = args.tiles if m < 64 else max(2, args.tiles // 4)
            if kind == "special":
                count = 3 * args.tiles
            rng = Random(1000 * index + len(kind))
            a, b, c = (to_bytes(f, t) for f, t in zip(formats, tiles(kind, formats, shape, count, rng)))
            d = call(lib, name, count, a, b, c) if lib else bytes(len(c))
            if lib and names[0] == "f64":
                chain = call(lib, f"fma_chain.m{m}n8k{k}", count, a, b, c)
                total += count * m * n
                differing += sum(chain[i:i + 8] != d[i:i + 8] for i in range(0, len(d), 8))
            for part, f, dims, data in (("a", formats[0], [count, m, k], a), ("b", formats[1], [count, n, k], b),
                                        ("c", formats[2], [count, m, n], c), ("d", formats[2], [count, m, n], d)):
                tensors.append((f"{kind}.{part}", f.safetensors, dims, data))
        layout = "a[tile,m,k] row-major; b[tile,n,k] (column n of B contiguous in k); d = a*b^T + c per tile"
        metadata = {"gpu": args.gpu, "arch": "hopper", "sm": "90", "instruction": name, "layout": layout,
                    "source": f"captured for this project {args.date}".strip()}
        write_safetensors(os.path.join(args.out, name + ".safetensors"), tensors, metadata)
        print(name, f"differs from a scalar FMA chain in {differing} of {total}" if total else "", flush=True)


if __name__ == "__main__":
    main()
