"""Sliding windows by layer, as configurations state them."""

from __future__ import annotations

from collections.abc import Callable

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
        config.wrong("layer_types", list(kinds), f"each of {layers} layers has {' or '.join(KINDS)}")
    own = [kind == KINDS[1] for kind in kinds] if kinds else [slides(layer) for layer in range(layers)]
    return tuple(window if slide else 0 for slide in own)


def switched(config: CheckpointConfig) -> tuple[int, ...]:
    """Layers from `max_window_layers` on have windows, where the configuration switches them on."""
    if not config.truth("use_sliding_window", False):
        return (0,) * config.whole("num_hidden_layers", most=1_000)
    first = config.whole("max_window_layers", 28, least=0)
    return windows(config, lambda layer: layer >= first)
