"""Sliding windows by layer, as configurations state them."""

from __future__ import annotations

from collections.abc import Callable

from npuflow.base.errors import ModelError
from npuflow.checkpoints.config import CheckpointConfig

KINDS = ("full_attention", "sliding_attention")


def windows(
    config: CheckpointConfig, slides: Callable[[int], bool] = lambda layer: True
) -> tuple[int, ...]:
    """Of every layer the window, 0: none. `slides`: of a layer by its number, where the configuration has no
    `layer_types`."""
    layers = config.whole("num_hidden_layers", most=1_000)
    window = config.whole("sliding_window", 0, least=0)
    kinds = config.texts("layer_types")
    if kinds and (len(kinds) != layers or not set(kinds) <= set(KINDS)):
        raise ModelError(
            f"the checkpoint states the attention of {len(kinds)} layers: {', '.join(sorted(set(kinds)))}",
            because=f"there are {layers}, and known are {', '.join(KINDS)}", code="NF-MODEL-453",
        ).at(file=config.file)
    own = [kind == KINDS[1] for kind in kinds] if kinds else [slides(layer) for layer in range(layers)]
    return tuple(window if slide else 0 for slide in own)


def switched(config: CheckpointConfig) -> tuple[int, ...]:
    """Layers from `max_window_layers` on have windows, where the configuration switches them on."""
    if not config.truth("use_sliding_window", False):
        return (0,) * config.whole("num_hidden_layers", most=1_000)
    first = config.whole("max_window_layers", 28, least=0)
    return windows(config, lambda layer: layer >= first)
