"""Gemma 2: Gemma with norms before sums, every other layer with a window, capped scores and logits."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar

from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._plain import decoder
from npuflow.frontends.checkpoint.families._roles import END_NORMS, FOLDER, GGUF, GGUF_END_NORMS
from npuflow.frontends.checkpoint.families._windows import windows

LARGEST = 46                              # layers of Gemma 2 27B, whose queries have a scale of their own


@FAMILIES.entry
class Gemma2:
    """Folders store scales of norms less 1; GGUF files store them whole, and no scale of queries."""

    models: ClassVar[tuple[str, ...]] = ("gemma2",)
    architectures: ClassVar[tuple[str, ...]] = ("gemma2",)
    folder: ClassVar[Mapping[str, str]] = {**FOLDER, **END_NORMS}
    gguf: ClassVar[Mapping[str, str]] = {**GGUF, **GGUF_END_NORMS}

    def decoder(self, checkpoint: Checkpoint, context: int) -> Decoder:
        config, plain = checkpoint.config, checkpoint.form == "folder"
        width = config.whole("hidden_size")
        usual = 256.0
        if not plain:
            heads = config.whole("num_attention_heads")
            own = config.whole("head_dim", width // heads)
            usual = width / heads if config.whole("num_hidden_layers") == LARGEST else own
        return decoder(
            checkpoint, context, activation="gelu_tanh", shift=float(plain), embedding_scale=sqrt(width),
            windows=windows(config, lambda layer: layer % 2 == 0),
            scale=config.real("query_pre_attn_scalar", usual) ** -0.5,
            cap=config.real("attn_logit_softcapping", 0.0),
            final_cap=config.real("final_logit_softcapping", 0.0),
        )
