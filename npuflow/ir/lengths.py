"""Lengths: inputs that say how many steps of a sequence a run has, in a graph of the most steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import DataError
from npuflow.ir.types import Array

_NAME = re.compile(r"(.+)<=(\d+)")


@dataclass(frozen=True)
class Length:
    """An input that says how many steps a run has, from `least` to `most`. The graph is that of the most:
    what a port has behind the last step is filling, along its axis in `axes` (by names of ports)."""

    name: str
    least: int
    most: int
    axes: tuple[tuple[str, int], ...] = ()

    @property
    def dim(self) -> str:
        """The dimension's name in the model."""
        return self.name.rpartition("<=")[0]


def length_name(dim: str, most: int) -> str:
    """What the input is called that says how long a dimension is: it tells the most, so that whoever feeds
    inputs by name and type can fill it in."""
    return f"{dim}<={most}"


def most_of(name: str) -> int:
    """The most steps that an input of this name says; 0 where it is another input."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found else 0


def filled(array: Array, axis: int, most: int, zero: float = 0) -> Array:
    """An array with filling behind its last step."""
    missing = most - array.shape[axis]
    if missing <= 0:
        return array
    widths = [(0, missing if d == axis else 0) for d in range(array.ndim)]
    return np.pad(array, widths, constant_values=zero)


def one_length(counts: Iterable[tuple[str, int]], dim: str) -> int:
    """The steps that all inputs have; a DataError where they differ."""
    found = dict(counts)
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in found.items())
        raise DataError(f"the inputs have different numbers of steps along {dim}: {said}", code="NF-DATA-271")
    return next(iter(found.values()))
