"""Inputs and outputs of what is run: names, element types, shapes; samples along a leading axis and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.input.given import array_of

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]


@dataclass(frozen=True)
class Port:
    """A named input or output with its numpy dtype and shape (-1: free). `ranked`: whether the shape is known
    at all before it is run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    codes: bool = False  # whether integers are codes already: they keep their type
    ranked: bool = True
    pixels: bool = False  # whether those integers are pixels
    steps: bool = False  # whether a dimension is free since samples have any number of steps
    loses_nan: bool = False  # whether NaN becomes an ordinary number: integers have none

    def holds(self, array: Array) -> bool:
        """Whether an array has the port's shape."""
        return not self.ranked or (
            array.ndim == len(self.shape)
            and all(want in (-1, have) for have, want in zip(array.shape, self.shape, strict=True))
        )

    @property
    def fixed(self) -> bool:
        """Whether every array of it has one shape."""
        return self.ranked and -1 not in self.shape


def rows(arrays: Sample, ports: Sequence[Port]) -> list[dict[str, Array]]:
    """The samples of arrays that hold several along their first axis, as views. A port whose first axis is a
    batch of one is given [N, ...] or [N, 1, ...], one of B as [N, B, ...] or, in batches, [N * B, ...]."""
    counts = {}
    found: dict[str, Array] = {}
    for port in ports:
        if port.name not in arrays:
            raise DataError(
                f'no data for the input "{port.name}"',
                because=f"given: {', '.join(arrays) or 'nothing'}",
                code="NF-DATA-012",
            )
        array = array_of(port.name, arrays[port.name], port.dtype)
        shape, array = port.shape, batches(array, port.shape)
        if array.shape == (0,) and port.ranked:
            array = np.empty((0, *(max(0, size) for size in shape)), array.dtype)  # of [], no sample
        elif port.steps and array.ndim == len(shape):
            array = array[None]
        elif shape[:1] in ((1,), (-1,)) and array.ndim == len(shape):
            array = array[:, None]
        if array.ndim < 1 or not port.holds(array[0] if len(array) else np.empty(array.shape[1:])):
            raise DataError(
                f'the input "{port.name}" has shape {np.shape(arrays[port.name])}; '
                f"several samples have [N, {', '.join(map(str, shape))}]",
                code="NF-DATA-014",
            )
        found[port.name], counts[port.name] = array, len(array)
    if len(set(counts.values())) > 1:
        held = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(f"the inputs hold different numbers of samples: {held}", code="NF-RUN-018")
    return [{name: array[i] for name, array in found.items()} for i in range(min(counts.values(), default=0))]


def none_of(ports: Sequence[Port]) -> dict[str, Array]:
    """What no sample at all gives: of every output an array with a first axis of 0. A size that only a run
    tells is 0 too."""
    shapes = {port: (0, *(max(0, size) for size in port.shape[1:])) for port in ports}
    return {p.name: np.zeros(shape, object if p.dtype == "str" else p.dtype) for p, shape in shapes.items()}


def batches(array: Array, shape: Sequence[int]) -> Array:
    """Rows [N * B, ...] for a port of shape [B, ...] as [N, B, ...]; any other array as it is."""
    size = shape[0] if len(shape) else 1
    several = size > 1 and array.ndim == len(shape) and len(array) > size and len(array) % size == 0
    fits = several and all(w in (-1, s) for w, s in zip(shape[1:], array.shape[1:], strict=True))
    return array.reshape(-1, size, *array.shape[1:]) if fits else array


def joined(outputs: Sequence[Sample]) -> dict[str, Array]:
    """Samples concatenated along the first axis; an output whose shape depends on the data is kept sample by
    sample, as name[0], name[1] and so on."""
    found: dict[str, Array] = {}
    for name in outputs[0] if outputs else ():
        parts = [np.atleast_1d(np.asarray(one[name])) for one in outputs]
        if len({part.shape for part in parts}) == 1:
            found[name] = np.concatenate(parts)
        else:
            found.update({f"{name}[{i}]": part for i, part in enumerate(parts)})
    return found


def written(found: Sample, out: Mapping[str, Array] | None) -> dict[str, Array]:
    """Outputs, those for which there is an array in `out` copied into it."""
    if out is None:
        return dict(found)
    for name, held in out.items():
        if name not in found:
            raise DataError(
                f'there is no output "{name}" to write',
                because=f"outputs: {', '.join(found)}",
                code="NF-RUN-002",
            )
        made = found[name]
        if not isinstance(held, np.ndarray) or not held.flags.writeable:
            what = "read-only" if isinstance(held, np.ndarray) else f"no numpy array: {type(held).__name__}"
            raise DataError(
                f'the array for the output "{name}" is {what}',
                hint="Runner.buffers() makes arrays that fit",
                code="NF-RUN-046",
            )
        if held.shape != made.shape or held.dtype != made.dtype:
            raise DataError(
                f'the array for the output "{name}" is {held.dtype} {list(held.shape)}, '
                f"the output is {made.dtype} {list(made.shape)}",
                hint="Runner.buffers() makes arrays that fit",
                code="NF-RUN-003",
            )
        np.copyto(held, made)
    return {**found, **out}
