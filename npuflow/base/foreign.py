"""Functions that a recipe names in a module of the user's; their code enters keys by its own closure."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import DataError, suggestion

FORMS = '"python:module:function" (beside the recipe, or installed), or "python:path/to/file.py:function"'


def named(text: str, base: Path) -> tuple[str, str, Path]:
    """Module, function and folder of `python:module:function` or `python:path/to/file.py:function`, paths
    from `base`.
    """
    module, colon, name = text.removeprefix("python:").rpartition(":")
    if not colon or not module or not name:
        raise DataError(f'"{text}" names no function', hint=FORMS, code="NF-DATA-001")
    if module.endswith(".py"):
        file = Path(os.path.normpath(base / Path(module).expanduser()))
        if not file.is_file():
            near = [p.name for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
            hint = suggestion(file.name, near)
            raise DataError(f'no file "{module}"', because=f"looked at {file}", hint=hint, code="NF-DATA-002")
        module, base = file.stem, file.parent
    if not all(part.isidentifier() for part in module.split(".")):
        raise DataError(f'"{module}" is not the name of a Python module', hint=FORMS, code="NF-DATA-003")
    return module, name, base


def function(
    module_name: str, name: str, base: Path, origin: Path | None = None
) -> tuple[Callable[..., Any], Path]:
    """The function and the file of its module: beside the recipe (in folder `base`, or
    exactly `origin`) or installed."""
    module = _module(module_name, base, origin)
    found = getattr(module, name, None)
    if not callable(found):
        raise DataError(f'"{module_name}" has no function "{name}"', code="NF-DATA-004")
    if module.__file__ is None:
        raise DataError(f'the module "{module_name}" has no file', code="NF-DATA-005")
    return found, Path(module.__file__)


_TURN = threading.RLock()


def _module(name: str, base: Path, origin: Path | None) -> ModuleType:
    with _TURN:
        return _imported(name, base, origin)


def _make_way(top: str, folder: str) -> None:
    """Let modules be found in a folder beside a recipe, as they are now. A process of a cluster may have
    served another recipe with a module of that name, or this one before an edit: such modules go."""
    if sys.path[:1] != [folder]:
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)       # stays there: the walk of code keys finds the module the same way
        importlib.invalidate_caches()
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    hidden = bool(file) and not file.startswith(f"{folder}/")
    gone = [one for one in LOADED.renewed if hidden and file.startswith(f"{one}/")]
    LOADED.renewed.add(folder)
    if LOADED.outdated(folder):
        gone.append(folder)
        importlib.invalidate_caches()
    for name, module in list(sys.modules.items()) if gone else ():
        place = getattr(module, "__file__", None) or ""
        if any(place.startswith(f"{one}/") for one in gone) and LOADED.may_go(name, place):
            del sys.modules[name]


def _imported(name: str, base: Path, origin: Path | None) -> ModuleType:
    parts = name.split(".")
    beside = origin or base / Path(*parts).with_suffix(".py")
    LOADED.own.add(parts[0])
    if beside.is_file():
        _make_way(parts[0], str(beside.parents[len(parts) - 1]))
    try:
        module = importlib.import_module(name)
    except ImportError as fault:
        because = f"{fault}; looked beside the recipe too: {beside}"
        raise DataError(f'no Python module "{name}"', because=because, code="NF-DATA-006") from fault
    except Exception as fault:  # the boundary to the user's own code
        raise DataError(
            f'the module "{name}" fails when it is imported',
            because=f"{type(fault).__name__}: {fault}", code="NF-DATA-007",
        ) from fault
    if beside.is_file() and module.__file__ and Path(module.__file__).resolve() != beside.resolve():
        raise DataError(
            f'the module "{name}" beside the recipe is hidden by another of that name',
            because=f"{module.__file__} is imported already", hint="give the file another name",
            code="NF-DATA-008",
        )
    return module
