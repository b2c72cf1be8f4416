"""Writes a tiny checkpoint's folder as a GGUF file, by the library `gguf`: its names, its keys, its types."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.ir.types import Array

gguf = pytest.importorskip("gguf")

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "gpt2": "gpt2",
}
"""What llama.cpp's converter calls a family of transformers."""
EXACT = {"F32", "F16", "BF16"}


def stored(folder: Path) -> dict[str, Array]:
    """All tensors of a folder as float32."""
    from npuflow.checkpoints.folder import tensors

    return {name: tensor.floats() for name, tensor in tensors(folder).items()}


def rounded(array: Array, kind: str) -> Array:
    """A matrix as the library rounds it to a type."""
    number = getattr(gguf.GGMLQuantizationType, kind)
    return gguf.dequantize(gguf.quantize(array, number), number).reshape(array.shape)


def paired(rows: Array, heads: int) -> Array:
    """Rows of queries or keys as llama.cpp's converter of Llama permutes them."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def turned(name: str) -> bool:
    """Matrices that GPT-2 stores as [inputs, outputs]."""
    return name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))


def changed(name: str, array: Array, config: Mapping[str, Any]) -> Array:
    """A tensor as the converter of its family changes it."""
    kind = config["model_type"]
    if kind == "gpt2":
        return np.ascontiguousarray(array.T) if turned(name) else array
    if kind in ("llama", "mistral"):
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        for part, count in heads.items():
            if f".{part}." in name:
                return paired(array, count)
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return array + 1
    return array


def write(
    folder: Path, path: Path, kind: str = "F32", more: Callable[[Any], None] = lambda writer: None
) -> Path:
    """`kind`: of all matrices; norms and biases stay F32."""
    config = json.loads((folder / "config.json").read_text())
    name = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, name)
    keys(writer, config)
    more(writer)
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == name)
    names = gguf.get_tensor_name_map(number, config.get("num_hidden_layers", config.get("n_layer")))
    for own, array in stored(folder).items():
        known = names.get_name(own, try_suffixes=(".weight", ".bias"))
        assert known, own
        values = changed(own, array, config)
        as_kind = getattr(gguf.GGMLQuantizationType, kind if values.ndim > 1 else "F32")
        if kind in ("F32",) or values.ndim == 1:
            writer.add_tensor(known, values.astype(np.float32))
        else:
            writer.add_tensor(known, gguf.quantize(values, as_kind), raw_dtype=as_kind)
    for tensor, values in factors(config).items():
        writer.add_tensor(tensor, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def keys(writer: Any, config: Mapping[str, Any]) -> None:
    def of(*names: str, default: Any = None) -> Any:
        return next((config[n] for n in names if config.get(n) is not None), default)

    writer.add_block_count(of("num_hidden_layers", "n_layer"))
    writer.add_context_length(of("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(of("hidden_size", "n_embd"))
    width = of("hidden_size", "n_embd")
    writer.add_feed_forward_length(of("intermediate_size", "n_inner", default=4 * width))
    writer.add_head_count(of("num_attention_heads", "n_head"))
    if config["model_type"] == "gpt2":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    size = of("head_dim", default=config["hidden_size"] // config["num_attention_heads"])
    writer.add_key_length(size)
    writer.add_value_length(size)
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1.0)))
    if of("sliding_window") and config.get("use_sliding_window", True):
        writer.add_sliding_window(config["sliding_window"])
    if of("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if of("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    scaling(writer, rope, config)


def scaling(writer: Any, rope: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope and kind != "llama3":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def factors(config: Mapping[str, Any]) -> dict[str, Array]:
    """Factors of rotary frequencies, which the converter writes as tensors: Llama 3's, and LongRoPE's."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{part}.weight": np.asarray(rope[f"{part}_factor"], np.float32)
            for part in ("long", "short")
        }
    if rope.get("rope_type") != "llama3":
        return {}
    half = config["head_dim"] // 2
    own = 1.0 / rope["rope_theta"] ** (np.arange(half) / half)
    first, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high, made = rope["low_freq_factor"], rope["high_freq_factor"], []
    for turns in first / (2 * np.pi / own):
        smooth = (turns - low) / (high - low)
        between = 1 / ((1 - smooth) / factor + smooth)
        made.append(1.0 if turns > high else factor if turns < low else between)
    return {"rope_freqs.weight": np.asarray(made, np.float32)}
