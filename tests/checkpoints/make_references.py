"""Makes tiny random checkpoints of every family, and the logits that transformers computes of them.

    python -m tests.checkpoints.make_references        # needs torch and transformers
    python -m tests.checkpoints.make_references long   # a longer text for those with windows

Weights are random numbers of a seed, stored in bfloat16; logits are computed in float32. Each checkpoint is a
folder of `tests/checkpoints/families` with `expected.npz`: tokens [1, length], logits [length, tokens], and
where it has windows `long.npz`, the same of a text that is several times as long as a ring.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "families"
LENGTH, LONG_LENGTH = 24, 96
COMMON: dict[str, Any] = {
    "vocab_size": 80, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}
LONG = {
    "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-biased": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True, "head_dim": 8}),
    "llama3": ("LlamaConfig", {"rope_theta": 500.0, "rope_scaling": LLAMA3, "tie_word_embeddings": True}),
    "llama-yarn": ("LlamaConfig", {"rope_scaling": YARN}),
    "llama-linear": ("LlamaConfig", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "mistral": ("MistralConfig", {"sliding_window": 7}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen2-window": (
        "Qwen2Config", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    ),
    "qwen3": ("Qwen3Config", {}),
    "gemma": ("GemmaConfig", {"tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2Config", {"sliding_window": 6, "query_pre_attn_scalar": 16, "tie_word_embeddings": True,
                         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5},
    ),
    "gemma3": (
        "Gemma3TextConfig", {"sliding_window": 6, "query_pre_attn_scalar": 24, "num_hidden_layers": 3,
                             "sliding_window_pattern": 3, "tie_word_embeddings": True},
    ),
    "gemma3-six": (
        "Gemma3TextConfig", {"sliding_window": 6, "query_pre_attn_scalar": 16, "num_hidden_layers": 6,
                             "tie_word_embeddings": True},
    ),
    "phi3": ("Phi3Config", {"sliding_window": 9, "hidden_size": 64}),
    "phi3-long": (
        "Phi3Config", {"rope_scaling": LONG, "original_max_position_embeddings": 32,
                       "partial_rotary_factor": 0.75, "sliding_window": None, "hidden_size": 64,
                       "num_key_value_heads": 4},
    ),
    "gpt2": (
        "GPT2Config", {"vocab_size": 80, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128,
                       "bos_token_id": 1, "eos_token_id": 2},
    ),
}


def made(name: str) -> Any:
    """The model of a case, its weights random: norms near 1, all else wide enough that heads differ."""
    import torch
    import transformers

    kind, changes = CASES[name]
    given = changes if kind == "GPT2Config" else {**COMMON, **changes}
    config = getattr(transformers, kind)(**given, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    random = np.random.default_rng([len(name), *name.encode()])
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            centre = 1.0 if weight.ndim == 1 and float(weight.mean()) > 0.5 else 0.0
            spread = 0.3 if weight.ndim == 1 else 2.0 / np.sqrt(weight.shape[-1])
            values = centre + spread * random.standard_normal(tuple(weight.shape))
            weight.copy_(torch.tensor(values.astype(np.float32)).bfloat16().float())
    return model


def write(name: str, shards: bool = False) -> Path:
    import torch

    model, folder = made(name), FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    tokens = np.random.default_rng(len(name)).integers(3, 80, (1, LENGTH))
    with torch.no_grad():
        logits = model(torch.tensor(tokens)).logits[0].numpy()
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="20KB" if shards else "1GB")
    config = json.loads((folder / "config.json").read_text())
    config.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    np.savez(folder / "expected.npz", tokens=tokens.astype(np.int64), logits=logits.astype(np.float32))
    lengthened(name)
    return folder


def lengthened(name: str) -> Path:
    """The logits of a longer text, where layers have windows."""
    import torch
    import transformers

    folder = FOLDER / name
    if not json.loads((folder / "config.json").read_text()).get("sliding_window"):
        return folder
    loading = transformers.AutoModelForCausalLM.from_pretrained
    model = loading(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = np.random.default_rng([1, len(name)]).integers(3, 80, (1, LONG_LENGTH))
    with torch.no_grad():
        logits = model(torch.tensor(tokens)).logits[0].numpy()
    np.savez_compressed(folder / "long.npz", tokens=tokens.astype(np.int64), logits=logits)
    return folder


if __name__ == "__main__":
    for case in CASES if sys.argv[1:] == ["long"] else ():
        print(lengthened(case))
    for case in () if sys.argv[1:] == ["long"] else sys.argv[1:] or CASES:
        print(write(case, shards=case == "qwen3"))
