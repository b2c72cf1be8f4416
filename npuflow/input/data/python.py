"""Samples from a Python function: it yields (id, array or arrays by input name), or these and a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

from npuflow.base.code import whole_digest
from npuflow.base.errors import DataError
from npuflow.base.foreign import function as foreign
from npuflow.base.foreign import named
from npuflow.input.data.config import FoundSample
from npuflow.ir.types import Array

Rows = Iterable[tuple[str, Any] | tuple[str, Any, Any]]
ELSEWHERE = (ImportError, MemoryError, PermissionError, FileNotFoundError)  # what no file of the data causes


class UnreadableFile(DataError):
    """A file that a function of the user's cannot read."""


def python_source(
    text: str, base: Path, count: int | None, common: Mapping[str, Any]
) -> Iterator[tuple[str, FoundSample]]:
    """The ids that the function yields. A sample's key holds the function's code and its module's file."""
    module_name, function_name, folder = named(text, base)
    function, origin = foreign(module_name, function_name, folder)
    detail = {
        "kind": "python", "module": module_name, "function": function_name,
        "code": whole_digest(function), **common,
    }
    seen: set[str] = set()
    for name, _, label in islice(_rows(function), count):
        if not isinstance(name, str) or name in seen:
            raise DataError(
                f'{text} yields the id {name!r} {"twice" if name in seen else "which is not text"}',
                code="NF-DATA-049",
            )
        seen.add(name)
        yield name, FoundSample((origin,), detail, label.tolist() if hasattr(label, "tolist") else label)


def read_by(text: str, base: Path, path: Path, common: Mapping[str, Any], label: Any) -> FoundSample:
    """A file that a function of the user's reads; its code is part of the sample's key."""
    module_name, function_name, folder = named(text, base)
    function, origin = foreign(module_name, function_name, folder)
    detail = {
        "kind": "reader", "module": module_name, "function": function_name, "code": whole_digest(function),
    }
    return FoundSample((path, origin), {**detail, **common}, label)


def read_file(path: Path, origin: Path, detail: Mapping[str, Any]) -> dict[str, Array]:
    """What the function makes of a file. UnreadableFile where it fails on it; another DataError where
    something else is missing than what the file should hold: it may be there the next time."""
    function, _ = foreign(detail["module"], detail["function"], origin.parent, origin)
    try:
        value = function(path)
        arrays = value if isinstance(value, Mapping) else {"": value}
        return {key: np.asarray(array) for key, array in arrays.items()}
    except Exception as fault:  # the boundary to the user's own code
        name = f"{function.__module__}.{function.__qualname__}"
        kind = DataError if isinstance(fault, ELSEWHERE) else UnreadableFile
        raise _failed(name, f'on "{path.name}"', fault, kind) from fault


def first_arrays(text: str, base: Path) -> dict[str, Array]:
    """The arrays of the first pair that the function yields."""
    function, _ = foreign(*named(text, base))
    for _, value, _ in _rows(function):
        arrays = value if isinstance(value, Mapping) else {"": value}
        return {key: np.asarray(array) for key, array in arrays.items()}
    return {}


def python_samples(
    path: Path, detail: Mapping[str, Any], wanted: set[str]
) -> Iterator[tuple[str, dict[str, Array]]]:
    """The arrays of the wanted ids, in the function's order."""
    function, _ = foreign(detail["module"], detail["function"], path.parent, path)
    left = set(wanted)
    for name, value, _ in _rows(function):
        if name in left:
            left.discard(name)
            arrays = value if isinstance(value, Mapping) else {"": value}
            yield name, {key: np.asarray(array) for key, array in arrays.items()}
        if not left:
            return
    raise DataError(
        f"python:{detail['module']}:{detail['function']} no longer yields {sorted(left)[0]!r}",
        hint="a data function must give the same ids each time it is called", code="NF-DATA-050",
    )


def _rows(function: Callable[[], Rows]) -> Iterator[tuple[str, Any, Any]]:
    """What the function yields, the label None where it gives none; whatever it raises is a fault of the
    data.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        made = function()
    except Exception as fault:  # the boundary to the user's own code
        raise _failed(name, "when it is called", fault) from fault
    if not isinstance(made, Iterable):
        because = f"it returns {type(made).__name__}"
        hint = "yield each pair, or return a list of them"
        raise DataError(
            f"{name} must yield pairs (id, arrays), or (id, arrays, label)",
            because=because, hint=hint, code="NF-DATA-051",
        )
    walk, last = iter(made), "before its first pair"
    while True:
        try:
            pair = next(walk)
        except StopIteration:
            return
        except Exception as fault:  # likewise
            raise _failed(name, last, fault) from fault
        if not isinstance(pair, tuple) or len(pair) not in (2, 3):
            raise DataError(
                f"{name} must yield pairs (id, arrays), or (id, arrays, label)",
                because=f"it yields {type(pair).__name__}", code="NF-DATA-051",
            )
        last = f'after "{pair[0]}"'
        yield (*pair, None)[:3]


def _failed(name: str, when: str, fault: Exception, kind: type[DataError] = DataError) -> DataError:
    """The user's exception with the line that raised it."""
    frames = extract_tb(fault.__traceback__)
    line = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    text = str(fault)
    because = f"{type(fault).__name__}: {text}{line}" if text else f"{type(fault).__name__}{line}"
    return kind(f"the data function {name} fails {when}", because=because, code="NF-DATA-052")
