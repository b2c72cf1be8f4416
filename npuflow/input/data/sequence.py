"""Samples that are sequences: arrays with an axis of steps in front, one run of a network with state each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from npuflow.base.errors import DataError
from npuflow.input.data.config import InputSample
from npuflow.ir.types import Array, TensorType


def steps(sample: InputSample, inputs: Mapping[str, TensorType]) -> list[dict[str, Array]]:
    """What the inputs without state are fed, step by step. An array that fits its input as it is has no axis
    of steps and is fed in each of them."""
    keys = {name: _key(sample, name, len(inputs)) for name in inputs}
    held = {name: sample.arrays[key] for name, key in keys.items() if key is not None}
    long = {name: len(array) for name, array in held.items() if _is_long(sample, name, array, inputs[name])}
    if not long:
        return [sample.feed(inputs)]
    if len(set(long.values())) > 1:
        raise DataError(
            "the arrays of a sequence have different numbers of steps",
            because=", ".join(f"{name} {count}" for name, count in long.items()),
            hint="the first axis of each array counts the steps", code="NF-DATA-097",
        )
    cut = {keys[name] for name in long}
    return [replace(sample, arrays=one).feed(inputs) for one in _rows(sample.arrays, cut, min(long.values()))]


def begun(
    sample: InputSample, inputs: Mapping[str, TensorType], start: Mapping[str, Array]
) -> dict[str, Array]:
    """The state that a sequence begins with: what the sample has under the input's name, else `start`."""
    stated = {name: inputs[name] for name in start if name in sample.arrays}
    return {**start, **replace(sample, steps=()).feed(stated)}


def labelled(
    sample: InputSample, inputs: Mapping[str, TensorType], start: Mapping[str, Array], label: Any
) -> Iterator[tuple[dict[str, Array], Any]]:
    """What a network is fed step by step, with the labels: one for each step, or one for all. `start`: the
    state that the first step is fed; empty where the network has none."""
    if not start or sample.noise is not None:
        yield sample.feed(inputs), label
        return
    start = begun(sample, inputs, start)
    fed = steps(sample, {name: kind for name, kind in inputs.items() if name not in start})
    many = isinstance(label, list | tuple) and len(label) == len(fed) > 1
    for t, arrays in enumerate(fed):
        yield ({**start, **arrays} if t == 0 else arrays), (label[t] if many else label)


def _rows(arrays: Mapping[str, Array], cut: set[str | None], count: int) -> Iterator[dict[str, Array]]:
    for t in range(count):
        yield {key: array[t] if key in cut else array for key, array in arrays.items()}


def _key(sample: InputSample, name: str, inputs: int) -> str | None:
    if name in sample.arrays:
        return name
    return next(iter(sample.arrays)) if inputs == 1 and len(sample.arrays) == 1 else None


def _is_long(sample: InputSample, name: str, array: Array, kind: TensorType) -> bool:
    if sample.picture or not array.ndim or _fits(sample, name, array, kind):
        return False
    return len(array) > 0 and _fits(sample, name, array[0], kind)


def _fits(sample: InputSample, name: str, array: Array, kind: TensorType) -> bool:
    try:
        replace(sample, arrays={name: array}).feed({name: kind})
    except DataError:
        return False
    return True
