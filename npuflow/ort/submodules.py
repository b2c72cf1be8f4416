"""`npuflow.ort.NAME` is `onnxruntime.NAME` for every submodule that this package does not replace.

So that a script works with `onnxruntime` changed to `npuflow.ort` in all of its imports: `datasets`,
`quantization`, `capi.onnxruntime_pybind11_state` and the others.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OURS, THEIRS = "npuflow.ort.", "onnxruntime."
REPLACED = ("backend",)


class OnnxruntimeSubmodules(MetaPathFinder, Loader):
    """Loading a submodule gives onnxruntime's own module. It is asked first: a package found by this way has
    onnxruntime's path, where others would load its modules a second time."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(OURS) or fullname.removeprefix(OURS) in REPLACED:
            return None
        try:
            found = importlib.util.find_spec(THEIRS + fullname.removeprefix(OURS))
        except ModuleNotFoundError:
            return None
        package = found is not None and found.submodule_search_locations is not None
        return None if found is None else ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(THEIRS + spec.name.removeprefix(OURS))
        # the import system states the alias in the module; exec_module puts back what it stated itself
        spec.loader_state = {n: getattr(module, n, None) for n in ("__spec__", "__loader__", "__package__")}
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        for name, value in spec.loader_state.items():
            setattr(module, name, value)
