"""Captures every stage of one unmodified Hugging Face decoder layer with synthetic weights.

    python3 capture_layer.py OUT_DIR [--models qwen3_4b llama31_8b qwen25_7b] [--full-log FILE]

Every case runs twice: once under the profiler with named spans around the modules (kernels, cuBLASLt algorithms), once
with hooks that copy the stage tensors out; both must produce the same bits. For each case it writes NAME.json (seeds,
shapes, SHA-256 of weights and stages, kernels in launch order and by stage, split-K of every linear) and
NAME.safetensors (inv_freq; sampled rows and columns of the stages, or the whole stages where rows are not named).
"""
import argparse
import contextlib
import json
import os

from gpu_trace import Recorder, environment, split_k  # first: chooses the cuBLASLt log file
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from synthetic import save, self_check, sha256, spread, synthetic

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

MODELS = {
    "qwen3_4b": dict(family="qwen3", seed=10000, hidden_size=2560, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, intermediate_size=9728, rms_norm_eps=1e-6, max_position_embeddings=40960,
                     rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "llama31_8b": dict(family="llama", seed=20000, hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                       head_dim=128, intermediate_size=14336, rms_norm_eps=1e-5, max_position_embeddings=131072,
                       rope_parameters=LLAMA3_ROPE),
    "qwen25_7b": dict(family="qwen2", seed=30000, hidden_size=3584, num_attention_heads=28, num_key_value_heads=4,
                      intermediate_size=18944, rms_norm_eps=1e-6, max_position_embeddings=32768,
                      rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
}

MODULES = {"input_layernorm": "ln1", "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
           "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm", "self_attn.o_proj": "o",
           "post_attention_layernorm": "ln2", "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.act_fn": "act",
           "mlp.down_proj": "down"}
LINEARS = ["q", "k", "v", "o", "gate", "up", "down"]
STAGES = ["inv_freq", "cos", "sin", "hidden_in", "ln1", "q", "q_norm", "k", "k_norm", "v", "q_rope", "k_rope", "attn",
          "o", "resid_mid", "ln2", "gate", "act", "up", "prod", "down", "out"]

# (attention, new tokens, cached keys). "flash" is SDPA restricted to PyTorch's FlashAttention-2; "sdpa" is SDPA as
# PyTorch chooses by itself, which is cuDNN on this GPU for more than one token.
CASES = [("flash", m, 0) for m in (1, 2, 8, 17, 33, 64, 100, 128, 256, 500, 1000, 2048)]
CASES += [("flash", 1, cached) for cached in (17, 100, 1000, 4000)]
CASES += [("sdpa", m, 0) for m in (1, 17, 100, 1000)] + [("sdpa", 1, 1000)]
WHOLE = {("flash", 1, 0), ("flash", 1, 1000)}  # cases whose stage tensors are stored whole
EAGER_CASES = [("eager", m, 0) for m in (1, 17, 100, 256, 1000)] + [("eager", 1, 1000)]


def family(name):
    if name == "qwen3":
        from transformers import Qwen3Config
        from transformers.models.qwen3 import modeling_qwen3 as module
        return Qwen3Config, module, module.Qwen3DecoderLayer, module.Qwen3RotaryEmbedding
    if name == "qwen2":
        from transformers import Qwen2Config
        from transformers.models.qwen2 import modeling_qwen2 as module
        return Qwen2Config, module, module.Qwen2DecoderLayer, module.Qwen2RotaryEmbedding
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as module
    return LlamaConfig, module, module.LlamaDecoderLayer, module.LlamaRotaryEmbedding


def attention(impl):
    """What restricts PyTorch's choice to this implementation."""
    return sdpa_kernel(SDPBackend.FLASH_ATTENTION) if impl == "flash" else contextlib.nullcontext()


class Layer:
    def __init__(self, name):
        self.name = name
        self.spec = dict(MODELS[name])
        self.family = self.spec.pop("family")
        self.seed = self.spec.pop("seed")
        config_class, self.module, layer_class, rotary_class = family(self.family)
        self.config = config_class(**self.spec, num_hidden_layers=1)
        self.config._attn_implementation = "sdpa"
        self.head_dim = getattr(self.config, "head_dim", None) or (
            self.config.hidden_size // self.config.num_attention_heads)
        # On the CPU, as from_pretrained does: inv_freq is a CPU computation.
        self.rotary = rotary_class(self.config).to("cuda")
        self.layer = layer_class(self.config, 0).to("cuda", torch.bfloat16).eval()
        self.weights = {}
        for i, (key, parameter) in enumerate(self.layer.named_parameters()):
            if key.endswith("bias"):
                kind, exp2, plus = "bias", -2, 0.0
            elif parameter.dim() == 1:
                kind, exp2, plus = "norm", -3, 1.0
            else:
                kind, exp2, plus = "matrix", -5, 0.0
            value = synthetic(self.seed + i, tuple(parameter.shape), exp2, plus=plus)
            parameter.data.copy_(value)
            self.weights[key] = {"seed": self.seed + i, "shape": list(parameter.shape), "kind": kind, "exp2": exp2,
                                 "sha256": sha256(parameter)}

    def inputs(self, tokens, cached, impl):
        hidden = synthetic(self.seed + 100, (1, tokens, self.config.hidden_size), 2)
        positions = torch.arange(cached, cached + tokens, device="cuda")[None]
        cache = None
        if cached:
            from transformers import DynamicCache
            cache = DynamicCache()
            shape = (1, self.config.num_key_value_heads, cached, self.head_dim)
            k = synthetic(self.seed + 200, shape, 0)
            v = synthetic(self.seed + 201, shape, 0)
            cache.update(k, v, 0)
        mask = None
        if impl == "eager":
            row = torch.arange(tokens, device="cuda")[:, None] + cached
            column = torch.arange(cached + tokens, device="cuda")[None]
            mask = torch.zeros(tokens, cached + tokens, dtype=torch.bfloat16, device="cuda")
            mask = mask.masked_fill(column > row, torch.finfo(torch.bfloat16).min)[None, None]
        return hidden, positions, cache, mask

    def forward(self, tokens, cached, impl, mark):
        self.config._attn_implementation = "eager" if impl == "eager" else "sdpa"
        hidden, positions, cache, mask = self.inputs(tokens, cached, impl)
        with mark("rope_table"):
            cos, sin = self.rotary(hidden, positions)
        kwargs = dict(attention_mask=mask, position_ids=positions, position_embeddings=(cos, sin))
        if cache is not None:
            kwargs.update(past_key_values=cache, use_cache=True, cache_position=positions[0])
        with mark("layer"), attention(impl):
            out = self.layer(hidden, **kwargs)
        out = out[0] if isinstance(out, tuple) else out
        return hidden, cos, sin, out


class Taps:
    """Temporary wrappers: spans for the profiler, or copies of the stage tensors."""

    def __init__(self, layer, mark=None, stages=None):
        self.layer, self.mark, self.stages = layer, mark, stages
        self.undo = []

    def __enter__(self):
        named = dict(self.layer.layer.named_modules())
        for path, stage in MODULES.items():
            if path in named:
                self._tap(named[path], stage)
        for path in ("self_attn", "mlp"):
            self._tap(named[path], path)
        if self.stages is not None:
            named["post_attention_layernorm"].register_forward_pre_hook(self._input("resid_mid"))
            self.undo.append(named["post_attention_layernorm"]._forward_pre_hooks.clear)
            for path, stage in (("self_attn.o_proj", "attn"), ("mlp.down_proj", "prod")):
                named[path].register_forward_pre_hook(self._input(stage))
                self.undo.append(named[path]._forward_pre_hooks.clear)
        module = self.layer.module
        self._replace(module, "apply_rotary_pos_emb", self._rope(module.apply_rotary_pos_emb))
        self._replace(module, "eager_attention_forward", self._attention(module.eager_attention_forward))
        functions = module.ALL_ATTENTION_FUNCTIONS
        sdpa = functions["sdpa"]
        functions["sdpa"] = self._attention(sdpa)
        self.undo.append(lambda: functions.__setitem__("sdpa", sdpa))
        return self

    def __exit__(self, *_):
        for f in reversed(self.undo):
            f()

    def _replace(self, owner, name, value):
        old = getattr(owner, name)
        setattr(owner, name, value)
        self.undo.append(lambda: setattr(owner, name, old))

    def _tap(self, module, stage):
        original = module.forward

        def forward(*args, **kwargs):
            if self.mark is not None:
                with self.mark(stage):
                    return original(*args, **kwargs)
            out = original(*args, **kwargs)
            if stage in STAGES:
                self.stages[stage] = out.clone()
            return out

        module.forward = forward
        self.undo.append(lambda: module.__dict__.pop("forward"))

    def _input(self, stage):
        def hook(_, args):
            self.stages[stage] = args[0].clone()
        return hook

    def _rope(self, original):
        def rope(*args, **kwargs):
            if self.mark is None:
                return original(*args, **kwargs)
            with self.mark("rope"):
                return original(*args, **kwargs)
        return rope

    def _attention(self, original):
        def attention(module, query, key, value, *args, **kwargs):
            if self.mark is None:
                tokens = query.shape[2]
                self.stages["q_rope"] = query[0].transpose(0, 1).clone()
                self.stages["k_rope"] = key[0, :, -tokens:].transpose(0, 1).clone()
                out = original(module, query, key, value, *args, **kwargs)
                if out[1] is not None:
                    self.stages["attn_probs"] = out[1].clone()
                return out
            with self.mark("attention"):
                return original(module, query, key, value, *args, **kwargs)
        return attention


def squeeze(tensor):
    return tensor[0] if tensor.dim() > 1 and tensor.shape[0] == 1 and tensor.dim() in (3, 4) else tensor


def label(marks):
    """Stage a kernel belongs to, from the spans around its launch."""
    inner = marks[-1]
    return {"layer": "residual", "mlp": "prod", "self_attn": "self_attn_other"}.get(inner, inner)


def record(layer, impl, tokens, cached):
    def no_mark(_):
        return torch.autograd.profiler.record_function("warm")

    layer.forward(tokens, cached, impl, no_mark)  # warm-up: module loading, heuristics caches
    recorder = Recorder()
    with recorder:
        with Taps(layer, mark=recorder.mark):
            profiled = layer.forward(tokens, cached, impl, recorder.mark)[3]
    stages = {}
    with Taps(layer, stages=stages):
        hidden, cos, sin, out = layer.forward(tokens, cached, impl, no_mark)
    stages.update(inv_freq=layer.rotary.inv_freq, cos=cos, sin=sin, hidden_in=hidden, out=out)
    assert sha256(profiled) == sha256(out), "the profiled run and the hooked run differ"
    stages = {name: t if name == "inv_freq" else squeeze(t) for name, t in stages.items()}
    for name in ("q_norm", "k_norm", "q_rope", "k_rope"):
        if name in stages:
            stages[name] = stages[name].reshape(tokens, -1, layer.head_dim)
    probabilities = stages.pop("attn_probs", None)
    missing = [s for s in STAGES if s not in stages and not (s.endswith("_norm") and layer.family != "qwen3")]
    assert not missing, missing
    return recorder, stages, probabilities


def launches(recorder):
    """The part of an entry that the profiled run tells."""
    kernels, log = recorder.by_mark(), recorder.log
    out = {"linears": {stage: {"kernels": [k[0] for k in kernels.get(stage, [])], "split_k": split_k(log.get(stage, [])),
                               "ltlog": log.get(stage, [])} for stage in LINEARS}}
    if log.get("attention"):
        out["attention_ltlog"] = log["attention"]
    out["kernels"] = [[k[0], k[1], k[2], label(k[4])] for k in recorder.kernels if k[4]]
    return out


def describe(layer, name, impl, tokens, cached, recorder, stages, probabilities):
    config = layer.config
    entry = {
        "tag": name, "model": layer.family, "H": config.hidden_size, "nh": config.num_attention_heads,
        "nkv": config.num_key_value_heads, "hd": layer.head_dim, "ffn": config.intermediate_size, "M": tokens,
        "cached": cached, "first_position": cached,
        "impl": impl, "eps": config.rms_norm_eps, "theta": layer.spec["rope_parameters"]["rope_theta"],
        "rope_parameters": layer.spec["rope_parameters"],
        "software": dict(environment(), transformers=transformers.__version__),
        "weights": layer.weights, "x": {"seed": layer.seed + 100, "exp2": 2},
    }
    if cached:
        shape = [config.num_key_value_heads, cached, layer.head_dim]
        entry["cache"] = {"k": {"seed": layer.seed + 200, "exp2": 0, "shape": shape},
                          "v": {"seed": layer.seed + 201, "exp2": 0, "shape": shape}}
    entry.update(launches(recorder))
    tensors = {"inv_freq": stages["inv_freq"]}
    entry["inv_freq_bits"] = [f"{v & 0xFFFFFFFF:08x}" for v in stages["inv_freq"].view(torch.int32).tolist()]
    entry["stages"] = {}
    for stage in STAGES:
        if stage not in stages:
            continue
        t = stages[stage]
        info = {"shape": list(t.shape), "dtype": str(t.dtype), "sha256": sha256(t)}
        if stage not in ("inv_freq", "hidden_in"):
            if (impl, tokens, cached) in WHOLE:
                tensors[stage] = t
            else:
                info["rows"] = spread(t.shape[0], 4)
                info["cols"] = spread(t.shape[-1], 48 if t.dim() == 2 else 8)
                tensors[stage] = t[info["rows"]][..., info["cols"]]
        entry["stages"][stage] = info
    if probabilities is not None:
        entry["attn_probs"] = {"shape": list(probabilities.shape), "dtype": str(probabilities.dtype),
                               "sha256": sha256(probabilities)}
    return entry, tensors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--eager", nargs="*", default=["qwen3_4b"])
    parser.add_argument("--only", type=int, help="first N cases only")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    self_check()
    with torch.no_grad():
        for model in args.models:
            layer = Layer(model)
            cases = CASES + (EAGER_CASES if model in args.eager else [])
            for impl, tokens, cached in cases[:args.only]:
                name = f"{model}_{impl}_m{tokens}" + (f"_kv{cached}" if cached else "")
                result = record(layer, impl, tokens, cached)
                entry, tensors = describe(layer, name, impl, tokens, cached, *result)
                save(os.path.join(args.out, name + ".safetensors"), tensors, {"capture": name, **entry["software"]})
                with open(os.path.join(args.out, name + ".json"), "w") as f:
                    json.dump(entry, f, separators=(",", ":"))
                print(name, "kernels", len(entry["kernels"]),
                      "split_k", {k: v["split_k"] for k, v in entry["linears"].items()}, flush=True)
            del layer
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
