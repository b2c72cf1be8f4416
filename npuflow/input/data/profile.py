"""Describes a set of model inputs: range, colours, neighbours.
That is enough to tell a wrong preprocessing from a right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from npuflow.base.digest import digest_array
from npuflow.ir.types import Array

MOST = 64                                 # samples that are looked at,
FEWEST = 8                                # fewer of large ones:
NUMBERS = 1 << 26                         # of all of them, which are held at once in float64
CHANNELS = 4                              # at most so many channels are colours


@dataclass(frozen=True)
class InputProfile:
    """One model input over a set of samples.

    `colours`: mean of each channel, where there are 1 to 4. `tilt`: first minus third of three channels (red
    minus blue, or the reverse), as mean over samples and its standard error. `roughness`: mean difference of
    neighbours along the last axis that is no channel axis, over the standard deviation; 1.13 for white noise.
    `strides`: the same for elements 3 and 4 apart. `constant`: samples of one value; `different`: how many
    differ from all before them. `lows`, `highs`: extrema of each channel.
    """

    samples: int
    lo: float
    hi: float
    mean: float
    std: float
    real: bool
    shape: tuple[int, ...]
    colours: tuple[float, ...] = ()
    tilt: tuple[float, float] | None = None
    roughness: float | None = None
    strides: tuple[float, float] | None = None
    constant: tuple[str, ...] = ()
    different: int = 0
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()


def looked_at(samples: int, numbers: int) -> int:
    """How many of so many samples, each of so many numbers, are profiled at most."""
    return min(samples, MOST, max(FEWEST, NUMBERS // max(numbers, 1)))


def profiled(feeds: Iterable[tuple[str, Mapping[str, Array]]]) -> dict[str, InputProfile]:
    """Profiles by model input, of samples by name."""
    seen: dict[str, list[tuple[str, Array]]] = {}
    for item, feed in feeds:
        for name, array in feed.items():
            seen.setdefault(name, []).append((item, array))
    return {name: _profile(rows) for name, rows in seen.items() if rows[0][1].dtype.kind in "fiub"}


def _profile(rows: list[tuple[str, Array]]) -> InputProfile:
    shape, real = rows[0][1].shape, rows[0][1].dtype.kind == "f"
    arrays = [
        np.where(np.isfinite(a), a, 0).astype(np.float64) if real else a.astype(np.float64) for _, a in rows
    ]
    filled = [a for a in arrays if a.size]
    if not filled:
        return InputProfile(len(rows), 0.0, 0.0, 0.0, 0.0, real, shape)
    means = np.array([a.mean() for a in filled])
    mean = float(means.mean())
    std = float(np.sqrt(np.mean([((a - mean) ** 2).mean() for a in filled])))
    constant = tuple(
        item for (item, _), a in zip(rows, arrays, strict=True) if a.size > 1 and a.min() == a.max()
    )
    return InputProfile(
        len(rows),
        min(float(a.min()) for a in filled),
        max(float(a.max()) for a in filled),
        mean,
        std,
        real,
        shape,
        *_colours(filled, shape),
        *_texture(filled, shape),
        constant,
        len({digest_array(a) for _, a in rows}),
        *_ends(filled, shape),
    )


def _colours(
    arrays: list[Array], shape: tuple[int, ...]
) -> tuple[tuple[float, ...], tuple[float, float] | None]:
    """Means of the channels, and the tilt, if the input is a picture."""
    axis = _channel_axis(shape)
    if axis is None or any(a.ndim != len(shape) for a in arrays):
        return (), None
    means = np.array([a.mean(tuple(d for d in range(len(shape)) if d != axis)) for a in arrays])
    colours = tuple(means.mean(0).tolist())
    if means.shape[1] != 3 or len(arrays) < 2:
        return colours, None
    tilts = means[:, 0] - means[:, 2]
    return colours, (float(tilts.mean()), float(tilts.std(ddof=1) / np.sqrt(len(tilts))))


def _ends(arrays: list[Array], shape: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Least and greatest value of each channel, if the input is a picture."""
    axis = _channel_axis(shape)
    if axis is None or any(a.ndim != len(shape) for a in arrays):
        return (), ()
    rest = tuple(d for d in range(len(shape)) if d != axis)
    lows, highs = np.min([a.min(rest) for a in arrays], axis=0), np.max([a.max(rest) for a in arrays], axis=0)
    return tuple(lows.tolist()), tuple(highs.tolist())


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    if len(shape) != 4:
        return None
    if shape[1] <= CHANNELS < min(shape[2:]):
        return 1
    return 3 if shape[3] <= CHANNELS < min(shape[1:3]) else None


def _texture(arrays: list[Array], shape: tuple[int, ...]) -> tuple[float | None, tuple[float, float] | None]:
    """Roughness along the last axis that is no channel axis, and at strides 3 and 4."""
    axis = _channel_axis(shape)
    width = (2 if axis == 3 else -1) if len(shape) else -1
    if len(shape) < 2 or shape[width] < 8:
        return None, None
    steps: dict[int, list[float]] = {1: [], 3: [], 4: []}
    for a in arrays:
        moved = np.moveaxis(a, width, -1)
        spread = float(a.std())
        if spread == 0:
            continue
        for step, found in steps.items():
            found.append(float(np.abs(moved[..., step:] - moved[..., :-step]).mean()) / spread)
    if not steps[1]:
        return None, None
    return float(np.median(steps[1])), (float(np.median(steps[3])), float(np.median(steps[4])))
