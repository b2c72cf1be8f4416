"""Metadata of GGUF files in the words of Hugging Face's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuflow.checkpoints.config import CheckpointConfig

KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "value_dim": "attention.value_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rotated": "rope.dimension_count",
    "max_position_embeddings": "context_length",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count",
}
"""Hugging Face's name, and GGUF's behind the name of the architecture."""
SCALING = {
    "rope_type": "type", "factor": "factor", "attention_factor": "attn_factor",
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow",
}
"""The same of `rope_scaling`, behind `ARCHITECTURE.rope.scaling`."""


def config(metadata: Mapping[str, Any], file: str) -> CheckpointConfig:
    """What the file states of its network; what is the same for every layer as one number."""
    family = str(metadata.get("general.architecture", ""))
    called = {name: f"{family}.{key}" for name, key in KEYS.items()}
    values = {name: _one(metadata[key]) for name, key in called.items() if key in metadata}
    prefix = f"{family}.rope.scaling."
    scaling = {name: metadata[prefix + key] for name, key in SCALING.items() if prefix + key in metadata}
    if scaling.get("rope_type", "none") != "none":
        values["rope_scaling"] = scaling
    values["model_type"] = family
    return CheckpointConfig(values, file, {**called, "model_type": "general.architecture"})


def _one(value: Any) -> Any:
    """Of a number for every layer the one that all have."""
    same = isinstance(value, list) and value and all(one == value[0] for one in value)
    return value[0] if same else value
