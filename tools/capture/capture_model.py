"""Captures decoder layers of a real Hugging Face model, stage by stage, with a manifest that bitreplay replays.

    python3 capture_model.py MODEL OUT_DIR [--layers 0 17] [--tokens 100 | --text "..."] [--dtype bf16]
        [--attention flash|sdpa|eager] [--rows 4 --cols 48 | --whole | --hashes]

MODEL: a folder (or hub name) with config.json and safetensors weights of a Qwen3, Qwen2 or Llama model. The whole model runs
once on the prompt (token ids 1000, 1001, ... unless --text is given); every chosen layer then runs again alone on the
hidden states it received, profiled and with hooks, and must give the same bits. One sequence, no cache.

Writes per layer NAME.safetensors (the layer's input, inv_freq, what is kept of every stage) and NAME.json, the manifest: the
weights stay where they are and are named by file, relative to OUT_DIR, and key. --rows and --cols: how many of each stage are
kept, spread evenly.
"""
import argparse
import contextlib
import json
import os

from gpu_trace import environment  # first: chooses the cuBLASLt log file
import torch
import transformers
from capture_layer import STAGES, attention, family, launches, record
from make_manifests import layer_manifest, write
from synthetic import DTYPES, save, sha256, spread

FAMILIES = {"qwen3": "qwen3", "qwen2": "qwen2", "llama": "llama"}


class ModelLayer:
    """What capture_layer's taps and record() need to know of a layer, for one layer of a loaded model."""

    def __init__(self, model, index):
        self.family = FAMILIES[model.config.model_type]
        self.config = model.config
        _, self.module, _, _ = family(self.family)
        self.layer = model.model.layers[index]
        self.rotary = model.model.rotary_emb
        self.head_dim = getattr(self.config, "head_dim", None) or (
            self.config.hidden_size // self.config.num_attention_heads)
        self.hidden = self.kwargs = self.out = None

    @contextlib.contextmanager
    def listen(self):
        """Keeps what the layer receives and returns while the model runs."""
        def before(_, args, kwargs):
            self.hidden = args[0] if args else kwargs["hidden_states"]
            self.kwargs = {k: v for k, v in kwargs.items() if k not in ("hidden_states", "past_key_values", "use_cache")}

        def after(_, args, kwargs, out):
            self.out = out[0] if isinstance(out, tuple) else out

        hooks = [self.layer.register_forward_pre_hook(before, with_kwargs=True),
                 self.layer.register_forward_hook(after, with_kwargs=True)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def forward(self, tokens, cached, impl, mark):
        with mark("rope_table"):
            cos, sin = self.rotary(self.hidden, self.kwargs["position_ids"])
        with mark("layer"), attention(impl):
            out = self.layer(self.hidden, **self.kwargs)
        return self.hidden, cos, sin, out[0] if isinstance(out, tuple) else out


def weight_places(folder, index, out):
    """Where the parameters of a layer are: name below the layer -> (file as a manifest in `out` names it, key)."""
    prefix = f"model.layers.{index}."
    path = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(path):
        with open(path) as f:
            files = json.load(f)["weight_map"]
    else:
        from safetensors import safe_open
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as f:
            files = {key: "model.safetensors" for key in f.keys()}
    beside = os.path.relpath(os.path.realpath(folder), os.path.realpath(out))
    return {key[len(prefix):]: (os.path.join(beside, file), key) for key, file in files.items() if key.startswith(prefix)}


def describe(layer, args, recorder, tokens, places, payload):
    """The entry of capture_layer.describe() that make_manifests reads, for real weights."""
    config = layer.config
    return {
        "model": layer.family, "dtype": args.dtype, "H": config.hidden_size, "nh": config.num_attention_heads,
        "nkv": config.num_key_value_heads, "hd": layer.head_dim, "ffn": config.intermediate_size, "M": tokens,
        "cached": 0, "first_position": 0, "impl": args.attention, "eps": config.rms_norm_eps,
        "theta": config.rope_parameters["rope_theta"] if hasattr(config, "rope_parameters") else config.rope_theta,
        "software": dict(environment(), transformers=transformers.__version__),
        "hidden": {"file": payload, "key": "hidden_in"},
        "weights": {name: {"file": file, "key": key} for name, (file, key) in places.items()},
        **launches(recorder),
    }


def kept_stages(args, stages):
    """What of the stages goes into the file, and how the manifest speaks of it."""
    tensors, info = {}, {}
    for stage in STAGES:
        if stage not in stages:
            continue
        t = stages[stage]
        info[stage] = {"sha256": sha256(t)}
        if stage in ("inv_freq", "hidden_in"):
            tensors[stage] = t
        elif args.whole:
            tensors[stage] = t
        elif not args.hashes:
            info[stage].update(rows=spread(t.shape[0], args.rows), cols=spread(t.shape[-1], args.cols))
            tensors[stage] = t[info[stage]["rows"]][..., info[stage]["cols"]]
    return tensors, info


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, nargs="+", default=[0])
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--text")
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--attention", choices=["flash", "sdpa", "eager"], default="flash")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--cols", type=int, default=48)
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--whole", action="store_true", help="keep every stage whole")
    kept.add_argument("--hashes", action="store_true", help="keep only the SHA-256 of every stage")
    args = parser.parse_args()
    folder = args.model
    if not os.path.isdir(folder):
        from huggingface_hub import snapshot_download
        folder = snapshot_download(args.model, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"])
    os.makedirs(args.out, exist_ok=True)
    with torch.no_grad():
        implementation = "eager" if args.attention == "eager" else "sdpa"
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[args.dtype], attn_implementation=implementation).to("cuda").eval()
        if model.config.model_type not in FAMILIES:
            raise SystemExit(f"{model.config.model_type}: no block of this model in bitreplay (known: {', '.join(FAMILIES)})")
        if args.text:
            ids = transformers.AutoTokenizer.from_pretrained(folder)(args.text, return_tensors="pt").input_ids.to("cuda")
        else:
            ids = torch.arange(1000, 1000 + args.tokens, device="cuda")[None]
        layers = {index: ModelLayer(model, index) for index in args.layers}
        with contextlib.ExitStack() as stack:
            for layer in layers.values():
                stack.enter_context(layer.listen())
            stack.enter_context(attention(args.attention))
            model.model(ids, use_cache=False)
        for index, layer in layers.items():
            tokens = layer.hidden.shape[1]
            recorder, stages, _ = record(layer, args.attention, tokens, 0)
            if sha256(stages["out"]) != sha256(layer.out):
                raise SystemExit(f"layer {index}: alone it gives other bits than within the model")
            name = f"layer{index}_{args.attention}_m{tokens}"
            payload = name + ".safetensors"
            entry = describe(layer, args, recorder, tokens, weight_places(folder, index, args.out), payload)
            tensors, entry["stages"] = kept_stages(args, stages)
            save(os.path.join(args.out, payload), tensors, {"capture": name, **entry["software"]})
            write(os.path.join(args.out, name + ".json"), layer_manifest(entry, payload, "full" if args.hashes else "sampled"))
            print(name, "split_k", {s: l["split_k"] for s, l in entry["linears"].items()}, flush=True)


if __name__ == "__main__":
    main()
