"""Functions that a recipe names in a module of the user's; their code enters keys by its own closure."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from npuflow.base.errors import DataError


def function(module_name: str, name: str, base: Path, origin: Path | None = None) -> tuple[Callable[..., Any], Path]:
    """The function and the file of its module: beside the recipe (in folder `base`, or exactly `origin`) or installed."""
    module = _module(module_name, base, origin)
    found = getattr(module, name, None)
    if not callable(found):
        raise DataError(f'"{module_name}" has no function "{name}"')
    if module.__file__ is None:
        raise DataError(f'the module "{module_name}" has no file')
    return found, Path(module.__file__)


def _module(name: str, base: Path, origin: Path | None) -> ModuleType:
    beside = origin or base / Path(*name.split(".")).with_suffix(".py")
    if beside.is_file():
        known = sys.modules.get(name)
        if known is not None and known.__file__ and Path(known.__file__) == beside:
            return known
        spec = importlib.util.spec_from_file_location(name, beside)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            return module
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        because = f"{fault}; looked beside the recipe too: {beside}"
        raise DataError(f'no Python module "{name}"', because=because) from fault
