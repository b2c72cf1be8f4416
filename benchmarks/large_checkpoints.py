"""Checkpoints of larger language models' shapes, with random weights: plan and code, time and memory.

    python benchmarks/large_checkpoints.py FOLDER [--shape qwen3-0.6b,llama-3.2-1b] [--target bm1684x]
        [--set KEY=VALUE]... [--write]

A Hugging Face folder a shape (config.json, safetensors in bf16 with normal weights of standard deviation .02,
no tokenizer), written tensor by tensor into FOLDER and left there. The recipe: bf16, weights of 4 bits in
groups of 32 with zero points, rounded to the nearest; a random sample, as floats beside such weights have no
ranges, and no searches. `npuflow build --until codegen`: plan and code, one token a run, a cache of 2,048.
`clock` and `processor` are seconds of the build with all its processes, with a new cache; `largest MB` is the
most anonymous memory of one process (RssAnon, so without pages of mapped files; 10^6 bytes), `during` the
last step that had ended then.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import study
from checkpoint_build import built

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "max_position_embeddings": 40960, "tie_word_embeddings": True,
        "hidden_act": "silu", "attention_bias": False, "torch_dtype": "bfloat16",
    },
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "max_position_embeddings": 131072, "tie_word_embeddings": True,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "torch_dtype": "bfloat16",
    },
}
RECIPE = """target = "{target}"
[model]
path = "{path}"
dims = {{ chunk = 1, context = 2048 }}
[data]
source = "random"
count = 1
[quantize]
mode = "bf16"
weights = {{ bits = 4, group = 32, symmetric = false }}
[round]
method = "nearest"
[precision]
strategy = "none"
[correct]
bias = "off"
"""


def tensors(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the family's tensors; the output layer is the embedding."""
    width, wide, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,),
    }
    for k in range(config["num_hidden_layers"]):
        own = {
            "input_layernorm": (width,), "post_attention_layernorm": (width,),
            "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries),
            "mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width), "mlp.down_proj": (width, wide),
        }
        if config["model_type"] == "qwen3":
            own |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
        found |= {f"model.layers.{k}.{name}.weight": shape for name, shape in own.items()}
    return found


def write_checkpoint(folder: Path, config: dict[str, Any]) -> int:
    """How many weights it has. A file that is there already is left as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes, header, at = tensors(config), dict[str, Any](), 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    path = folder / "model.safetensors"
    if not path.exists():
        text, rng = json.dumps(header).encode(), np.random.default_rng(0)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for shape in shapes.values():
                rows, inner = shape[0], int(np.prod(shape[1:]))
                for first in range(0, rows, 4096):
                    size = (min(4096, rows - first), inner)
                    some = np.ones(size, np.float32)
                    if len(shape) > 1:
                        some = rng.standard_normal(size, np.float32) * np.float32(0.02)
                    file.write((some.view(np.uint32) >> 16).astype(np.uint16).tobytes())
        Path(file.name).rename(path)
    return at // 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default=",".join(SHAPES))
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    columns = ("shape", "weights", "target", "clock", "processor", "largest MB", "during")
    first = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    second = ["| shape | step | clock | processor |", "| --- | --- | --- | --- |"]
    for name in chosen.shape.split(","):
        checkpoint = chosen.folder / name
        count = write_checkpoint(checkpoint, SHAPES[name])
        with tempfile.TemporaryDirectory(prefix="npuflow-large-", dir=chosen.folder) as place:
            recipe = Path(place) / "net.toml"
            recipe.write_text(RECIPE.format(target=chosen.target, path=checkpoint.resolve()))
            found = built(recipe, chosen.sets, ["--until", "codegen"])
        watch = found["watch"]
        row = [
            name, f"{count:,}", chosen.target, f"{found['clock']:,.0f}", f"{found['processor']:,.0f}",
            f"{watch.largest / 1e6:,.0f}", watch.during,
        ]
        first.append(f"| {' | '.join(row)} |")
        stages = sorted(found["profile"]["stages"], key=lambda one: -one["processor"])
        steps = [f"| {name} | {s['stage']} | {s['seconds']:.0f} | {s['processor']:.0f} |" for s in stages[:8]]
        print("\n".join([first[-1], *steps]), flush=True)
        second += steps
    if chosen.write:
        title, *rest = (__doc__ or "").strip().split("\n\n")
        tables = ["\n".join(first), "\n".join(second)]
        study.write(__file__, "\n\n".join([f"# {title}", *rest[1:], *tables]) + "\n")


if __name__ == "__main__":
    main()
