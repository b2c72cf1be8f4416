"""Normalisation of stored bytes that the compiled network takes over: which steps those
are, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Config
from npuflow.hw.target import Numerics
from npuflow.input.data.array import headers, inputs
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.image import SUFFIXES, is_deep
from npuflow.input.data.listing import first_file
from npuflow.input.data.python import first_arrays
from npuflow.input.data.steps import Plain, applied, channel_axis
from npuflow.input.pixels.pixels import TOP, Pixels
from npuflow.ir.types import Array

PICTURE = (7, 9, 3)                       # of a picture the size is not known, only where its channels are
Stored = Mapping[str, tuple[tuple[int, ...], str]]
NO_ZEROS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Folding(Config, table="data"):
    """Where pixels are normalised."""

    fold_normalize: bool = True
    """Bytes (pictures, uint8 arrays) are fed as they are and the first layers absorb a
    normalisation that ends `steps`."""


def folded(
    data: Data, folding: Folding, numerics: Numerics, zeros: Mapping[str, float] = NO_ZEROS
) -> dict[str, Pixels]:
    """By array name ("" where it has none) what the model is fed for a pixel, where the data are bytes and
    the recipe's steps end in their normalisation. `zeros`: by input the number behind the steps that the
    program itself brings to 0.
    """
    if not folding.fold_normalize or data.source.text == "random" or data.text is not None or data.beside:
        return {}
    try:
        held, picture = stored(data)
    except DataError:
        return {}                         # whoever reads the samples reports it
    steps = [step.plain() for step in data.steps]
    if {step.get("input", "") for step in steps} - {"", *held}:
        return {}                         # which array is for that input is known when it is fed
    if len(held) == 1 and not any(step.get("input") for step in steps):
        held = {"": next(iter(held.values()))}  # whatever it is called, it is fed to the only input
    if len(held) == len(zeros) == 1:
        zeros = dict.fromkeys(held, *zeros.values())
    found = {}
    for name, array in held.items():
        one = _folded(_own(steps, name), name, array, picture, numerics, zeros.get(name))
        if one is not None:
            found[name] = one
    while True:                           # a step that others need goes on being done for all
        other = [name for name in held if name not in found]
        shared = [s for s in steps if "normalize" in s and any(_is_for(s, name) for name in other)]
        kept = {name: one for name, one in found.items() if not any(_is_for(s, name) for s in shared)}
        if len(kept) == len(found):
            return found
        found = kept


def stored(data: Data) -> tuple[Stored, bool]:
    """Shape and dtype of one sample's arrays by name, from the first file's header, and whether they are
    pictures (whose size is made up).
    """
    if data.source.text.startswith("python:"):
        arrays = first_arrays(data.source.text, data.source.base)
        return {name: (tuple(array.shape), array.dtype.name) for name, array in arrays.items()}, False
    path = first_file(data)
    if path is None:
        return {}, False
    if path.suffix.lower() in SUFFIXES:
        return {"": (PICTURE, "float32" if is_deep(path) else "uint8")}, True
    return _arrays(path, data), False


def _arrays(path: Path, data: Data) -> Stored:
    found = headers(path)
    if "" in found:
        wanted = {"": ""}
    else:
        wanted = dict(data.arrays) or {name: name for name in inputs(path, found, data.label)}
    skip = 1 if data.rows else 0
    return {name: (found[own][0][skip:], found[own][1].name) for name, own in wanted.items() if own in found}


def adapted(
    listed: Mapping[str, FoundSample],
    data: Data,
    folding: Folding,
    numerics: Numerics,
    zeros: Mapping[str, float] = NO_ZEROS,
) -> dict[str, FoundSample]:
    """Listed samples with the steps that give what the compiled network takes."""
    pixels = folded(data, folding, numerics, zeros)
    if not pixels:
        return dict(listed)
    found, steps = {}, list[Plain]()
    before: tuple[Any, bool] | None = None
    for name, one in listed.items():
        detail = {key: value for key, value in one.detail.items() if key != "steps"}
        held = one.detail.get("steps", ())
        picture = detail["kind"] == "picture"
        if before is None or held is not before[0] or picture != before[1]:  # most samples share their steps
            steps, before = rewritten(held, data, pixels, picture), (held, picture)
        found[name] = replace(one, detail={**detail, "steps": steps} if steps else detail)
    return found


def rewritten(steps: Sequence[Plain], data: Data, pixels: Mapping[str, Pixels], picture: bool) -> list[Plain]:
    """The steps that give what the compiled network takes, pixels less their `zero`: without the
    normalisation where they are those of [data]; else all of them and the way back behind them.
    """
    if not pixels:
        return list(steps)
    if list(steps) != [step.plain() for step in data.steps]:
        return [*steps, *(_back(name, one, steps, picture) for name, one in pixels.items())]
    left: list[Plain] = []
    for step in steps:
        mine = [name for name in pixels if step.get("input", "") in ("", name)]
        if "normalize" not in step or not mine:
            left.append(step)
    for name, one in pixels.items():
        if one.zero:
            left.append(
                _named(name, {"normalize": {"scale": 1.0, "mean": (float(one.zero),), "std": (1.0,)}})
            )
    return left


def _back(name: str, one: Pixels, steps: Sequence[Plain], picture: bool) -> Plain:
    """From the model's numbers to pixels less `zero`, as a step: (x - mean) / std with
    mean = scale * zero + shift."""
    scale, shift = np.broadcast_arrays(np.asarray(one.scale), np.asarray(one.shift))
    step: dict[str, Any] = {
        "scale": 1.0,
        "mean": tuple((scale * one.zero + shift).tolist()),
        "std": tuple(scale.tolist()),
    }
    if scale.size > 1:
        step["axis"] = -1 if picture and not any("layout" in s for s in steps) else one.axis
    return _named(name, {"normalize": step})


def _named(name: str, step: dict[str, Any]) -> Plain:
    return {"input": name, **step} if name else step


def _own(steps: Sequence[Plain], name: str) -> list[Plain]:
    return [step for step in steps if _is_for(step, name)]


def _is_for(step: Plain, name: str) -> bool:
    return step.get("input", "") in ("", name)


def _folded(
    mine: Sequence[Plain],
    name: str,
    held: tuple[tuple[int, ...], str],
    picture: bool,
    numerics: Numerics,
    zero: float | None,
) -> Pixels | None:
    shape, dtype = held
    if dtype != "uint8":
        return None
    first = next((i for i, step in enumerate(mine) if "normalize" in step), len(mine))
    if any(not _keeps_bytes(step) for step in mine[:first]) or any(
        not _keeps_numbers(step) for step in mine[first:]
    ):
        return None
    if first == len(mine):
        if zero is not None:
            return Pixels(zero=_zero(np.full(1, zero), numerics))
        # Whole numbers as they are; signed codes without a zero point would need a step that shifts them.
        return Pixels() if _zero(np.zeros(1), numerics) == 0 else None
    try:
        shape = applied(np.zeros(shape, np.uint8), mine[:first], name).shape
    except DataError:
        return None                       # whoever reads the samples reports it
    return _chain(mine[first:], shape, picture, numerics, zero or 0.0)


def _keeps_bytes(step: Plain) -> bool:
    """Whether whole numbers 0..255 stay such."""
    if "dtype" in step:
        return np.dtype(step["dtype"]).kind == "f" or np.iinfo(step["dtype"]).max >= TOP
    return True


def _keeps_numbers(step: Plain) -> bool:
    """Whether a step after the normalisation leaves its numbers and the order of its channels alone."""
    return "normalize" in step or "layout" in step or step.get("dtype") in ("float32", "float64")


def _chain(
    steps: Sequence[Plain], shape: tuple[int, ...], picture: bool, numerics: Numerics, zero: float
) -> Pixels | None:
    """All normalisations as one, and where the channels are in the end. `zero`: what they should bring the
    pixel to that has the code of 0."""
    scale, shift, axis = np.ones(1), np.zeros(1), None
    moved = False
    for step in steps:
        if "layout" in step:
            moved = True
            if step["layout"] == "nchw" and len(shape) == 3:
                shape = (shape[2], *shape[:2])
                axis = {None: None, -1: -3, -2: -1, -3: -2}[axis]
        elif "normalize" in step:
            n = step["normalize"]
            mean, std = np.asarray(n["mean"], np.float64), np.asarray(n["std"], np.float64)
            count = max(mean.size, std.size)
            if count > 1:
                mine = channel_axis(shape, count, n.get("axis"))
                if axis is not None and mine != axis:
                    return None
                axis = mine
            scale, shift = scale * n["scale"] / std, (shift * n["scale"] - mean) / std
    if picture and not moved and axis is not None:
        axis = {-1: -3, -2: -1, -3: -2}[axis]      # channels go first at the end
    if not (np.all(np.isfinite(scale)) and np.all(np.isfinite(shift)) and np.all(scale)):
        return None
    scale, shift = np.broadcast_arrays(scale, shift)
    return Pixels(tuple(scale.tolist()), tuple(shift.tolist()), axis, _zero((zero - shift) / scale, numerics))


def _zero(means: Array, numerics: Numerics) -> int:
    """The pixel that the graph's 0 stands for: what the model pads with, as near as one number can be."""
    if numerics.activation_zero_point:
        return int(np.clip(np.rint(means.mean()), 0, TOP))
    if numerics.signed_activations and numerics.unsigned_activations:
        return 128 if means.mean() > TOP / 4 else 0
    return 128 if numerics.signed_activations else 0
