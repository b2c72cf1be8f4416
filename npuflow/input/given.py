"""Arrays as callers give them: what is no array of numbers, or would lose its numbers, is an error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, UsageError

Array = npt.NDArray[Any]


TEXT = ("string", "str")


def mapping(sample: Any) -> Mapping[str, Any]:
    """The sample; UsageError where it is no mapping."""
    if isinstance(sample, Mapping):
        return sample
    raise UsageError(
        f"a sample is a mapping of input names to arrays, not {type(sample).__name__}",
        hint='{"image": array}',
        code="NF-RUN-043",
    )


def array_of(name: str, given: Any, dtype: str) -> Array:
    """What is given for an input of that type as an array; not copied where numpy reads it in place.
    DataError for paths, objects, ragged rows and complex numbers; text is for inputs of text."""
    if dtype in TEXT:
        return np.asarray(given)
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty((), object)
    if array.dtype.kind not in "cOMmUS":
        return array
    what, hint = type(given).__name__, f"give an array of numbers ({dtype})"
    if array.dtype.kind == "c":
        what, hint = f"complex numbers ({array.dtype})", "numpy.real and numpy.imag give real ones"
    elif isinstance(given, str | os.PathLike):
        hint = "preprocess=True of the runner reads files"
    elif isinstance(given, list | tuple) and not array.shape:
        hint = "give rows of one length: a list of rows that differ in length is no array"
    raise DataError(f'the input "{name}" is no array of real numbers: {what}', hint=hint, code="NF-RUN-041")


def converted(name: str, array: Array, dtype: npt.DTypeLike) -> Array:
    """The array in an input's type; not copied where it has it. DataError where an input of integers would
    get others: fractions, NaN, numbers outside of its type."""
    kind = np.dtype(dtype)
    if array.dtype == kind:
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        made = array.astype(kind)
    if kind.kind in "iu" and array.dtype.kind in "iuf" and (wrong := np.ravel(array[made != array])).size:
        raise DataError(
            f'the input "{name}" takes {kind.name}, and {wrong[0]} is no such number',
            because=f"{wrong.size} of its {array.size} numbers are none",
            code="NF-RUN-042",
        )
    return made
