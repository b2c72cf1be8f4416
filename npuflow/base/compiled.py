"""Functions that become machine code when they are first called; until then nothing loads the compiler."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from npuflow.base import syntax


class CompiledFunction:
    """A function with its compiler's options. The code releases the interpreter lock, and is kept on disk (by
    compiled_code.py). Functions of this kind that it calls are compiled with it."""

    def __init__(self, function: FunctionType, **options: Any) -> None:
        self.function, self.options = function, options
        self.__name__, self.__module__, self.__doc__ = (
            function.__name__,
            function.__module__,
            function.__doc__,
        )

    @cached_property
    def code(self) -> Callable[..., Any]:
        from npuflow.base.compiled_code import machine_code

        f, inner = self.function, {name: one.code for name, one in self._called().items()}
        bound = FunctionType(
            f.__code__, {**f.__globals__, **inner}, f.__name__, f.__defaults__, f.__closure__
        )
        bound.__qualname__, bound.__module__, bound.__doc__ = f.__qualname__, f.__module__, f.__doc__
        return machine_code(bound, self.files(), **self.options)

    def files(self) -> frozenset[Path]:
        """Where its code comes from: its file, those of the functions that it calls, and those that its names
        are imported from."""
        own = Path(self.function.__code__.co_filename)
        imported = _imported(own)
        found = {own, *(imported[name] for name in _names(self.function.__code__) if name in imported)}
        return frozenset(found.union(*(one.files() for one in self._called().values())))

    def _called(self) -> dict[str, CompiledFunction]:
        known = {name: self.function.__globals__.get(name) for name in _names(self.function.__code__)}
        return {name: one for name, one in known.items() if isinstance(one, CompiledFunction)}

    def __call__(self, *args: Any) -> Any:
        return self.code(*args)


def compiled(function: Callable[..., Any]) -> CompiledFunction:
    """Mark a function to be compiled when it is first called."""
    assert isinstance(function, FunctionType)
    return CompiledFunction(function)


def borrowing(function: Callable[..., Any]) -> CompiledFunction:
    """The same of a function that allocates no array: references to those that it is given or cuts slices
    from are not counted, which takes longer than a short row."""
    assert isinstance(function, FunctionType)
    return CompiledFunction(function, _nrt=False)


def reordering(function: Callable[..., Any]) -> CompiledFunction:
    """The same of a function whose float sums may be added in any order, and zeros have no sign."""
    assert isinstance(function, FunctionType)
    return CompiledFunction(function, fastmath={"reassoc", "nsz"})


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _imported(path: Path) -> dict[str, Path]:
    """Names that a module imports from others of its package, with their files."""
    found = {}
    for node in syntax.module(path.read_bytes()).body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for alias in node.names:
            module = sys.modules.get(f"{node.module}.{alias.name}") or sys.modules.get(node.module)
            file = getattr(module, "__file__", None)
            if file is not None and node.module.partition(".")[0] == __package__.partition(".")[0]:
                found[alias.asname or alias.name] = Path(file)
    return found
