"""A tiny checkpoint in which one token reaches values that no other does, as first tokens of real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests.checkpoints.gguf_files import stored, write
from tests.checkpoints.running import FAMILIES

FIRST = 3                                 # the token; texts begin with it
MARK, MASSIVE = 31, 7                     # the channel that tells it, and the one that it fills
REACH = 10_000.0


def planted(folder: Path, path: Path) -> Path:
    """The tiny Llama as GGUF in Q4_1: its first feed-forward sees the mark in the token's embedding, and
    writes `REACH` or so into one channel, from where nothing takes it away."""
    from safetensors.numpy import save_file

    shutil.copytree(FAMILIES / "llama", folder)
    held = stored(folder)
    table = held["model.embed_tokens.weight"]
    table[:, MARK] = 0.0
    table[FIRST, MARK] = 8.0
    layer = "model.layers.0."
    held[f"{layer}self_attn.o_proj.weight"][MARK] = 0.0
    for name in ("gate", "up"):
        rows = held[f"{layer}mlp.{name}_proj.weight"]
        rows[0] = 0.0
        rows[0, MARK] = 3.0
    down = held[f"{layer}mlp.down_proj.weight"]
    down[:, 0] *= 0.1
    down[MASSIVE] = 0.0
    down[MASSIVE, 0] = REACH / 100.0
    whole = {name: np.ascontiguousarray(array) for name, array in held.items()}
    save_file(whole, folder / "model.safetensors")
    return write(folder, path, "Q4_1")
