"""Rotary positions: the angle of every pair of features, and its stretching for longer texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.ir.types import Array

LIKE = ("linear", "llama3", "yarn", "longrope")
MOST_ANGLES = 1 << 27


@dataclass(frozen=True, eq=False)
class Rope:
    """`frequencies` [rotated / 2]: radians a position of every pair; `scale`: of cosines and sines."""

    frequencies: Array
    scale: float = 1.0

    def tables(self, context: int) -> tuple[Array, Array]:
        """Cosines and sines [context, rotated / 2]; angles are rounded to float32, as the families' own code
        has it."""
        angles = np.arange(context, dtype=np.float32)[:, None] * self.frequencies.astype(np.float32)
        wide = angles.astype(np.float64)
        return tuple((f(wide) * self.scale).astype(np.float32) for f in (np.cos, np.sin))  # type: ignore


def plain(size: int, base: float) -> Rope:
    """base^(-2i / size) radians for pair i (Su et al., RoFormer, 2021)."""
    return Rope(1.0 / base ** (np.arange(0, size, 2) / size))


def stated(
    config: CheckpointConfig, size: int, base: float, context: int, factors: Array | None = None
) -> Rope:
    """As the configuration states it, for a cache of `context` tokens. `factors`: of every pair, by which its
    frequency is divided, where a tensor of the file holds them."""
    table = config.table("rope_parameters" if "rope_parameters" in config else "rope_scaling")
    return scaled(table, config, plain(size, base), context, factors)


def scaled(
    table: CheckpointConfig, config: CheckpointConfig, rope: Rope, context: int, factors: Array | None = None
) -> Rope:
    """The same with a table of `rope_scaling`."""
    kind = table.text("rope_type", table.values.get("type", "default"))
    own = rope.frequencies
    if factors is not None:
        return Rope(own / factors, table.real("attention_factor", 1.0))
    if kind in ("default", "none", "mrope"):
        return rope
    if kind == "dynamic":
        if context <= config.whole("max_position_embeddings"):
            return rope                   # it changes nothing within these
    elif kind == "linear":
        return Rope(own / table.real("factor"))
    elif kind == "llama3":
        return _llama3(table, own)
    elif kind == "yarn":
        return _yarn(table, config, own)
    elif kind in ("longrope", "su"):
        return _long(table, config, own, context)
    raise ModelError(
        f'rotary positions of the kind "{kind}" are not read',
        because=f"known are {', '.join(LIKE)}"
        + ("; dynamic ones within the length that the model was trained for" if kind == "dynamic" else ""),
        hint="a smaller context" if kind == "dynamic" else "export the model to ONNX", code="NF-MODEL-452",
    ).at(file=config.file)


def _llama3(table: CheckpointConfig, own: Array) -> Rope:
    """Llama 3.1: long waves are stretched, short ones kept, those between blended."""
    factor, low, high = (table.real(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = 2 * math.pi / own
    turns = table.whole("original_max_position_embeddings") / waves
    blend = (turns - low) / (high - low)
    between = (1 - blend) * own / factor + blend * own
    return Rope(np.where(turns < low, own / factor, np.where(turns > high, own, between)))


def _yarn(table: CheckpointConfig, config: CheckpointConfig, own: Array) -> Rope:
    """Peng et al., YaRN, 2023: pairs with few turns are stretched, those with many kept."""
    factor = table.real("factor")
    size = 2 * len(own)
    longest = table.whole(
        "original_max_position_embeddings", config.values.get("max_position_embeddings")
    )
    base = float(own[1] ** (-size / 2)) if len(own) > 1 else 1e4

    def pair(turns: float) -> float:
        return size * math.log(longest / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(table.real("beta_fast", 32.0)), pair(table.real("beta_slow", 1.0))
    if table.truth("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(own)) - low) / max(high - low, 0.001), 0, 1)
    return Rope(own / factor * ramp + own * (1 - ramp), _yarn_scale(table, factor))


def _yarn_scale(table: CheckpointConfig, factor: float) -> float:
    if "attention_factor" in table:
        return table.real("attention_factor")

    def of(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if "mscale" in table and "mscale_all_dim" in table:
        return of(table.real("mscale")) / of(table.real("mscale_all_dim"))
    return of(1.0)


def _long(table: CheckpointConfig, config: CheckpointConfig, own: Array, context: int) -> Rope:
    """LongRoPE: a factor of every pair, from one list up to the length of the first training, from another
    above."""
    longest = config.whole("max_position_embeddings")
    first = table.whole(
        "original_max_position_embeddings", config.values.get("original_max_position_embeddings", longest)
    )
    key = "short_factor" if context <= first else "long_factor"
    factors = np.asarray(table.reals(key))
    if factors.shape != own.shape or not (factors > 0).all():
        table.wrong(key, factors.tolist(), f"{len(own)} numbers above 0 are needed")
    return Rope(own / factors, long_scale(table, longest, first))


def long_scale(table: CheckpointConfig, longest: int, first: int) -> float:
    """What LongRoPE multiplies cosines and sines with."""
    if "attention_factor" in table:
        return table.real("attention_factor")
    ratio = table.real("factor", longest / first)
    return math.sqrt(1 + math.log(ratio) / math.log(first)) if ratio > 1 else 1.0
