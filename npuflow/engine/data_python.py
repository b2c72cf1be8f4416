"""Samples from a Python function: `python:module:function` yields (id, array or arrays by input name)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from npuflow.base.code import closure
from npuflow.base.errors import DataError
from npuflow.engine.data import Found
from npuflow.ir.types import Array

Pairs = Iterable[tuple[str, Any]]


def python_source(
    text: str, base: Path, count: int | None, common: Mapping[str, Any]
) -> Iterator[tuple[str, Found]]:
    """The ids that the function yields. A sample's key holds the function's code and its module's file."""
    module_name, _, function_name = text.removeprefix("python:").partition(":")
    if not module_name or not function_name:
        raise DataError(f'"{text}" names no function', hint='"python:module:function"')
    module = _module(module_name, base)
    if module.__file__ is None:
        raise DataError(f'the module "{module_name}" has no file')
    origin = Path(module.__file__)
    function = _function(module, function_name)
    detail = {
        "kind": "python", "module": module_name, "function": function_name,
        "code": closure(function).digest, **common,
    }  # fmt: skip
    seen: set[str] = set()
    for name, _ in islice(_pairs(function), count):
        if not isinstance(name, str) or name in seen:
            raise DataError(f'{text} yields the id {name!r} {"twice" if name in seen else "which is no text"}')
        seen.add(name)
        yield name, Found((origin,), detail)


def python_samples(path: Path, detail: Mapping[str, Any], wanted: set[str]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The arrays of the wanted ids, in the function's order."""
    function = _function(_module(detail["module"], path.parent, path), detail["function"])
    left = set(wanted)
    for name, value in _pairs(function):
        if name in left:
            left.discard(name)
            arrays = value if isinstance(value, Mapping) else {"": value}
            yield name, {key: np.asarray(array) for key, array in arrays.items()}
        if not left:
            return
    raise DataError(
        f"python:{detail['module']}:{detail['function']} no longer yields {sorted(left)[0]!r}",
        hint="a data function must give the same ids each time it is called",
    )


def _pairs(function: Callable[[], Pairs]) -> Iterator[tuple[str, Any]]:
    for pair in function():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise DataError(
                f"{function.__module__}.{function.__qualname__} must yield pairs (id, arrays)",
                because=f"it yields {type(pair).__name__}",
            )
        yield pair


def _function(module: ModuleType, name: str) -> Callable[[], Pairs]:
    found = getattr(module, name, None)
    if not callable(found):
        raise DataError(f'"{module.__name__}" has no function "{name}"')
    return found


def _module(name: str, base: Path, origin: Path | None = None) -> ModuleType:
    """The module: beside the recipe if it is there, else as installed."""
    beside = origin or base / Path(*name.split(".")).with_suffix(".py")
    if beside.is_file():
        known = sys.modules.get(name)
        if known is not None and known.__file__ and Path(known.__file__) == beside:
            return known
        spec = importlib.util.spec_from_file_location(name, beside)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(name, module)
            spec.loader.exec_module(module)
            return module
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        raise DataError(f'no Python module "{name}"', because=str(fault), hint=f"looked beside the recipe: {beside}") from fault
