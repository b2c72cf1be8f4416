"""Language models on targets of several cores, whose borders are parts of what follows the position."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.simulate import Simulation
from npuflow.testing.stage import built

WIDTH, LAYERS, HEADS, KEYS, SIZE, TOKENS = 256, 2, 9, 3, 64, 128
RECIPE = """target = "xdna2"
[model]
path = "net"
dims = { chunk = 1, context = 256 }
[data]
source = "calib.npz"
[quantize]
mode = "bf16"
[simulate]
samples = 1
"""


def checkpoint(folder: Path) -> None:
    """Random weights of Llama's family: more heads than cores."""
    from safetensors.numpy import save_file

    rng, tensors = np.random.default_rng(0), {"model.norm.weight": np.ones(WIDTH, np.float32)}
    sizes = {
        "self_attn.q_proj": (HEADS * SIZE, WIDTH), "self_attn.k_proj": (KEYS * SIZE, WIDTH),
        "self_attn.v_proj": (KEYS * SIZE, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * SIZE),
        "mlp.gate_proj": (WIDTH, WIDTH), "mlp.up_proj": (WIDTH, WIDTH), "mlp.down_proj": (WIDTH, WIDTH),
    }
    matrices = {f"model.layers.{k}.{name}": size for k in range(LAYERS) for name, size in sizes.items()}
    matrices["model.embed_tokens"] = (TOKENS, WIDTH)
    for name, size in matrices.items():
        tensors[f"{name}.weight"] = (rng.normal(size=size) / np.sqrt(size[1])).astype(np.float32)
    for k in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{k}.{name}.weight"] = np.ones(WIDTH, np.float32)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH,
        "intermediate_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS, "head_dim": SIZE, "vocab_size": TOKENS, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
    }))


def test_cores_hand_on_parts_of_a_cache(tmp_path: Path) -> None:
    """It is smaller at a small index, and lies in the bytes of what a core hands on of a full one."""
    checkpoint(tmp_path / "net")
    np.savez(tmp_path / "calib.npz", tokens=np.random.default_rng(0).integers(3, TOKENS, (4, 4, 1, 1)))
    (tmp_path / "net.toml").write_text(RECIPE)
    done = built(tmp_path / "net.toml", tmp_path / "cache", "simulate", ())
    (made,), (found,) = (done.products(name).values() for name in ("codegen", "simulate"))
    assert isinstance(made, CompiledProgram) and isinstance(found, Simulation)
    assert made.program.meta["indices"] and not found.totals["hazards"]
    assert not any(check.different or check.executor for check in found.checks)
