"""A captured matrix product (an entry of capture_gemm.py's JSON) as tensors and one op of a replay manifest.

Standard library only; nothing is computed, only rewritten.
"""
import math
import struct

from cublaslt_log import log_line


def synthetic(seed, exp2, dtype, shape, **more):
    return {"synthetic": more.pop("generator", "splitmix64-ih4"), "seed": seed, "exp2": exp2, "dtype": dtype, "shape": shape, **more}


UNDESCRIBED = ("gelu_acc",)  # no capture says what its inputs are


def kernel_params(c, kernels):
    """What only the launch tells: the CTAs of a grid whose last round of tiles is shared; the threads of a block along k; the
    blocks of torch.dot, which cuBLASLt does not log; operands that are not contiguous."""
    for name, grid, block, *_ in kernels:
        if "_segment_k_on_" in name:
            return {"ctas": grid[0] * grid[1] * grid[2]}
        if "gemvNSP_kernel<" in name:
            return {"threads_k": block[1]}
        if "dot_kernel<" in name:
            strided = (c["tag"].endswith("_at") and c["M"] > 1) or (c["tag"].endswith("_nn") and c["N"] > 1)
            return {"strided": int(strided), **({} if c["ltlog"] else {"split_k": grid[0]})}
    return {}


def normal(seed, i):
    """Element i of the generator of captures/README, before the power of two."""
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    fields = [z >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    return sum(field - 0x10000 if field & 0x8000 else field for field in fields)


def scale(seed, count, plain):
    """Manifest tensor of the scales of an fp8 operand, or the list of its values where a manifest cannot generate them."""
    if seed is None:  # 1.0: a distribution of width 2^-115 plus 1
        return synthetic(0, -100, "fp32", [1], plus=1.0)
    if not plain:
        return synthetic(seed, -3, "fp32", [count], plus=1.0)
    # exact in float32
    return "F32", [count], struct.pack(f"<{count}f", *(abs(normal(seed, i)) * 2.0**-17 + 0.25 for i in range(count)))


def e4m3(x):
    """Code of a number below 464, rounded to nearest even."""
    sign, x = (0x80, -x) if x < 0 else (0, x)
    exponent = max(math.frexp(x)[1] - 1, -6) if x else -6
    return sign | (exponent + 6) * 8 + round(math.ldexp(x, 3 - exponent))  # round() goes to even; subnormals fit in


def wide(seed, exp2, rows, k, power):
    """Rows of a plain synthetic e4m3 matrix with each block of 128 along k scaled by its own power of two."""
    codes = bytearray()
    for row in rows:
        codes += bytes(e4m3(math.ldexp(normal(seed, row * k + i), exp2 - 15 + power(i // 128))) for i in range(k))
    return "F8_E4M3", [len(rows), k], bytes(codes)


def product(c, stored, values, full_below):
    """(tensors by name, op) of one entry; `stored(key)` names a tensor of the capture's safetensors file, `values(name, dtype,
    shape, bytes)` one that the caller writes to a file, because a manifest cannot generate it. Below `full_below` products the
    hash of the whole output is expected, where it was recorded, else the samples."""
    name, m, n, k = c["key"], c["M"], c["N"], c["K"]
    lead = [c["B"]] if c["B"] else []
    full = {"generator": "splitmix64-u53"} if c.get("u53") else {}
    mirror = {"x": full, "w": full} if c.get("plain") or full else {"x": {"mirror": "even"}, "w": {"mirror": "odd"}}
    # `_nn` and `_at` cases multiply by a transposed copy: the same sums.
    tensors = {
        name + ".x": synthetic(c["xseed"], c["xexp"], c["indtype"], [*lead, m, k], **mirror["x"]),
        name + ".w": synthetic(c["wseed"], c["wexp"], c.get("wdtype", c["indtype"]), [*lead, n, k], **mirror["w"]),
    }
    kernels = [kernel for kernel in c["kernels"] if not kernel[0].startswith("void at::native")]  # torch expands a bias
    op = {"id": f"{name}_{c['tag']}_{m}x{n}x{k}", "op": "linear", "in": {"x": name + ".x", "w": name + ".w"},
          "out": name + ".out", "out_dtype": c["dtype"], "kernel_names": [kernel[0] for kernel in kernels],
          "params": kernel_params(c, kernels)}
    if c["ltlog"]:
        op["cublaslt"] = log_line(c["ltlog"][-1])
    if "bias" in c:
        tensors[name + ".b"] = synthetic(*c["bias"], c["indtype"], [n], **full)
        op["in"]["bias"] = name + ".b"
    if "cmat" in c:
        tensors[name + ".c"] = synthetic(*c["cmat"], c.get("cdt", c["indtype"]), [*lead, m, n], **full)
        op["in"]["c"] = name + ".c"
        op["params"].update(alpha=c["alpha"], beta=c["beta"])
    if c["indtype"] in ("e4m3", "e5m2"):
        op["op"] = "scaled_linear"
        for key, seed, extent in (("x_scale", c.get("sa"), m), ("w_scale", c.get("sb"), n)):
            one = scale(seed, extent if c.get("rowwise") else 1, c.get("plain"))
            tensors[f"{name}.{key}"] = one if isinstance(one, dict) else values(f"{name}.{key}", *one)
            op["in"][key] = f"{name}.{key}"
    shares_tiles = any("_segment_k_on_" in kernel[0] for kernel in kernels)  # few of them: samples may meet none
    if "sha256_full" in c and (c.get("full") or shares_tiles or max(c["B"], 1) * m * n * k < full_below):
        op["expect"] = {"sha256": c["sha256_full"]}
    else:
        tensors[name + ".y"] = stored(name)
        op["expect"] = {"tensor": name + ".y"}
        if c["tag"] == "wide":  # only what was sampled
            tensors[name + ".x"] = values(name + ".x", *wide(c["xseed"], c["xexp"], c["rows"], k, lambda block: block * 5 % 11 - 7))
            tensors[name + ".w"] = values(name + ".w", *wide(c["wseed"], c["wexp"], c["cols"], k, lambda block: block * 3 % 11 - 6))
        elif not c.get("full"):
            op["expect"].update({"batch": c["bs"]} if lead else {}, rows=c["rows"], cols=c["cols"])
    return tensors, op


def products(cases, stored, values=None, skip=(), full_below=0):
    """Tensors and ops of all entries but those whose inputs nobody describes or whose op id is in `skip`."""
    tensors, ops = {}, []
    for c in cases:
        if "error" in c or c["tag"] in UNDESCRIBED:
            continue
        more, op = product(c, stored, values, full_below)
        if op["id"] not in skip:
            tensors.update(more)
            ops.append(op)
    return tensors, ops
