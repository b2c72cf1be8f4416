"""Folders of Llama's family with random weights, in shapes of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_llama(folder: Path, shape: dict[str, int], context: int) -> Path:
    """A folder as Hugging Face writes it. `shape`: width, feed, layers, heads, keys, size of a head, and
    tokens."""
    from safetensors.numpy import save_file

    rng, held = np.random.default_rng(0), dict[str, Any]()

    def matrix(name: str, rows: int, columns: int) -> None:
        held[name] = (rng.standard_normal((rows, columns)) * 2 / np.sqrt(columns)).astype(np.float32)

    width, feed, size = shape["width"], shape["feed"], shape["size"]
    matrix("model.embed_tokens.weight", shape["tokens"], width)
    held["model.norm.weight"] = np.ones(width, np.float32)
    for k in range(shape["layers"]):
        own = f"model.layers.{k}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            held[f"{own}{norm}.weight"] = np.ones(width, np.float32)
        for name, rows in (("q", shape["heads"]), ("k", shape["keys"]), ("v", shape["keys"])):
            matrix(f"{own}self_attn.{name}_proj.weight", rows * size, width)
        matrix(f"{own}self_attn.o_proj.weight", width, shape["heads"] * size)
        for name in ("gate", "up"):
            matrix(f"{own}mlp.{name}_proj.weight", feed, width)
        matrix(f"{own}mlp.down_proj.weight", width, feed)
    folder.mkdir()
    save_file(held, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
        "intermediate_size": feed, "num_hidden_layers": shape["layers"], "head_dim": size,
        "num_attention_heads": shape["heads"], "num_key_value_heads": shape["keys"],
        "vocab_size": shape["tokens"], "max_position_embeddings": context, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
