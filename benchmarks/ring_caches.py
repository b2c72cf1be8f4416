"""What rings in the place of whole caches save: memory, bytes that a token reads, and cycles.

    python benchmarks/ring_caches.py [--targets bm1684x,edge-8t] [--write]

A random checkpoint like Gemma 3's smallest, of 6 layers of 640 over one key head of 256, 4,096 tokens: five
layers have a window of 64, the sixth has none. Programs of one token and of 32 tokens a run for a context of
1,024, to the commands; weights have 4 bits in groups of 32. `ring`: cycles of a run as programs are made,
with rings of 96 rows; `whole`: with whole caches and masks, as before there were rings. The clock has
no cycles of the host here. `reads`: bytes of all loads of a run. A ring is read whole in every run, so that
the first positions cost more than with caches of which a run reads as much as holds tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import study

ROOT = Path(__file__).resolve().parent.parent
CONTEXT, WINDOW, CHUNK, POSITIONS = 1024, 64, 32, (0, 256, 512, 992)
LAYERS, WIDTH, FEED, HEADS, KEYS, SIZE, TOKENS = 6, 640, 2048, 4, 1, 256, 4096
NUMBERS = {"edge-8t": "activations.bits = 16", "bm1684x": 'mode = "bf16"'}
RECIPE = """target = "{target}"
[model]
path = "source"
dims = {{ context = {context} }}
shapes = [{{ chunk = 1 }}, {{ chunk = {chunk} }}]
[data]
source = "calib.npz"
[quantize]
{numbers}
weights = {{ bits = 4, group = 32 }}
[round]
method = "nearest"
[sequences]
samples = 16
[unify]
scales = "off"
[correct]
bias = "off"
[precision]
strategy = "none"
[simulate]
samples = 1
"""


def checkpoint(folder: Path) -> None:
    """A folder with random weights."""
    from safetensors.numpy import save_file

    rng, held = np.random.default_rng(0), dict[str, Any]()

    def matrix(name: str, rows: int, columns: int) -> None:
        held[name] = (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    matrix("model.embed_tokens.weight", TOKENS, WIDTH)
    held["model.norm.weight"] = np.zeros(WIDTH, np.float32)
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    for k in range(LAYERS):
        own = f"model.layers.{k}."
        held |= {f"{own}{norm}_layernorm.weight": np.zeros(WIDTH, np.float32) for norm in norms}
        held |= {f"{own}self_attn.{name}_norm.weight": np.zeros(SIZE, np.float32) for name in "qk"}
        for name, rows in (("q", HEADS), ("k", KEYS), ("v", KEYS)):
            matrix(f"{own}self_attn.{name}_proj.weight", rows * SIZE, WIDTH)
        matrix(f"{own}self_attn.o_proj.weight", WIDTH, HEADS * SIZE)
        matrix(f"{own}mlp.gate_proj.weight", FEED, WIDTH)
        matrix(f"{own}mlp.up_proj.weight", FEED, WIDTH)
        matrix(f"{own}mlp.down_proj.weight", WIDTH, FEED)
    folder.mkdir()
    save_file(held, folder / "model.safetensors")
    config = {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": WIDTH,
        "intermediate_size": FEED, "num_hidden_layers": LAYERS, "head_dim": SIZE,
        "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": TOKENS,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "sliding_window": WINDOW,
        "sliding_window_pattern": 6, "query_pre_attn_scalar": SIZE, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
    (folder / "config.json").write_text(json.dumps(config))


def programs(folder: Path, target: str, rings: bool) -> dict[int, Any]:
    """By tokens of a run."""
    from npuflow.frontends.checkpoint import ring
    from npuflow.testing.stage import built

    most, ring.MOST = ring.MOST, ring.MOST if rings else 0          # of no elements: tables that rings need
    try:
        done = built(folder / "net.toml", folder / f"cache-{target}-{rings}", "package")
    finally:
        ring.MOST = most
    (package,) = done.products("package").values()
    networks = package.package.networks                             # type: ignore[attr-defined]
    found = {int(name.partition("=")[2]): program for name, program in networks.items()}
    assert all(bool(program.meta.get("rings")) is rings for program in found.values())
    return found


def caches(program: Any) -> int:
    """Bytes of all keys and values, which have 16 bits in external memory."""
    entries = [one for one in program.meta["inputs"] if one["name"].startswith("cache.")]
    return 2 * sum(prod(one["shape"]) for one in entries)


def figures(program: Any, position: int) -> tuple[float, int]:
    """Cycles of a run and bytes that it loads."""
    from npuflow.hw.encode import decode_all
    from npuflow.program.order import order_of
    from npuflow.sim.clock import timeline_of

    part = program.at({"position": position})
    loads = [c for words in part.commands for c in decode_all(words) if c.opcode == "LOAD"]
    read = sum(c.number("element") * prod(c.vector("dims")) for c in loads)
    return timeline_of(part, order_of(part)).cycles, read


def rows(target: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="npuflow-rings-") as place:
        folder = Path(place)
        checkpoint(folder / "source")
        tokens = np.random.default_rng(1).integers(3, TOKENS, (2, 8, 1, 1))
        np.savez(folder / "calib.npz", tokens=tokens)
        numbers = NUMBERS[target]
        text = RECIPE.format(target=target, context=CONTEXT, chunk=CHUNK, numbers=numbers)
        (folder / "net.toml").write_text(text)
        both = [programs(folder, target, rings) for rings in (False, True)]
    for chunk in both[0]:
        for position in POSITIONS:
            (whole, before), (ring, after) = (figures(one[chunk], position) for one in both)
            yield (
                f"| {target} | {chunk} | {position} | {whole:,.0f} | {ring:,.0f} | {ring / whole - 1:+.1%} | "
                f"{before:,} | {after:,} |"
            )
    sizes = [caches(one[1]) for one in both]
    yield f"caches on {target}: {sizes[0]:,} bytes whole, {sizes[1]:,} with rings"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default="bm1684x,edge-8t")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    columns = ("target", "chunk", "position", "whole", "ring", "change", "whole reads", "ring reads")
    table = [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * 7]
    said = list[str]()
    for target in chosen.targets.split(","):
        *found, last = rows(target)
        table += found
        said.append(last)
        print("\n".join([*found, last]), flush=True)
    if chosen.write:
        title, *rest = (__doc__ or "").strip().split("\n\n")
        study.write(__file__, "\n\n".join([f"# {title[:-1]}", *rest[1:], "\n".join(table), *said]) + "\n")


if __name__ == "__main__":
    main()
