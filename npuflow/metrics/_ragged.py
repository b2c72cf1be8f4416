"""Outputs of many samples together, where their shape may depend on the data: one
array, or an array of arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from npuflow.base.errors import DataError, meant
from npuflow.ir.types import Array


def stacked(
    rows: Sequence[Mapping[str, Array]], beside: Sequence[Mapping[str, Array]] = ()
) -> dict[str, Array]:
    """Outputs with samples along the first axis: the batch axis of 1 if there is one, else a new one.

    Where shapes differ between samples, or from those of `beside` (the same samples through another model),
    the result has one dimension and holds an array for each sample.
    """
    made: dict[str, Array] = {}
    for name in rows[0]:
        arrays = [np.asarray(row[name]) for row in rows]
        others = [np.asarray(row[name]) for row in beside if name in row]
        whole = all(a.ndim and a.shape[0] == 1 for a in (*arrays, *others))
        if len({a.shape for a in (*arrays, *others)}) > 1:
            held = np.empty(len(arrays), object)
            for i, array in enumerate(arrays):
                held[i] = array[0] if whole else array
            made[name] = held
        else:
            made[name] = np.concatenate(arrays) if whole else np.stack(arrays)
    return made


def is_ragged(array: Array) -> bool:
    """Whether `stacked` kept the samples apart."""
    return array.dtype == object and array.ndim == 1 and all(isinstance(a, np.ndarray) for a in array)


def each(reference: Array, outputs: Array) -> Iterator[tuple[Array, Array]]:
    """Sample by sample; those whose shapes differ are left out."""
    for real, mine in zip(reference, outputs, strict=True):
        if real.shape == mine.shape:
            yield real, mine


def output_there(outputs: Collection[str], name: str) -> None:
    """An output that a metric's options name must be one of the model's."""
    if name and name not in outputs:
        raise DataError(
            f'the model has no output "{name}"', because=f"its outputs are {', '.join(outputs)}",
            hint=f"output = {close}" if (close := meant(name, list(outputs))) else "", code="NF-METRIC-010",
        )


def outputs_named(outputs: Mapping[str, Array], name: str = "") -> list[str]:
    """The output that is asked for, else all."""
    output_there(outputs, name)
    return [name] if name else list(outputs)


def judged_name(outputs: Mapping[str, Array], name: str = "") -> str:
    """The name that is asked for, else that of the first output of fixed shape. A whole number beside real
    ones, such as the label that a classifier gives with its scores, is left to who asks for it."""
    output_there(outputs, name)
    fixed = [o for o in outputs if not is_ragged(outputs[o])]
    numbers = [o for o in fixed if outputs[o].dtype.kind not in "biu" or outputs[o][:1].size > 1]
    return name or next(iter([*numbers, *fixed, *outputs]))


def judged_output(outputs: Mapping[str, Array], name: str = "") -> Array:
    """The named output, else the first whose shape is the same for every sample;
    samples along the first axis."""
    found = judged_name(outputs, name)
    if is_ragged(outputs[found]):
        raise DataError(
            f'the output "{found}" has no scores', because="its shape differs from sample to sample",
            hint='name an output of fixed shape: output = "..."', code="NF-METRIC-006",
        )
    return outputs[found]


def alike(first: Array, second: Array) -> Iterator[tuple[Array, Array]]:
    """The samples of two outputs that can be compared: those of equal shapes."""
    if not is_ragged(first) and not is_ragged(second) and first.shape == second.shape:
        yield first, second
        return
    yield from ((a, b) for a, b in zip(first, second, strict=True) if np.shape(a) == np.shape(b))


def unlike(first: Array, second: Array) -> int:
    """How many samples of two outputs have different shapes."""
    if not is_ragged(first) and not is_ragged(second):
        return 0 if first.shape == second.shape else len(first)
    return sum(np.shape(a) != np.shape(b) for a, b in zip(first, second, strict=True))
