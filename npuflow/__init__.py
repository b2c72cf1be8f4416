"""An open compiler from trained neural networks to NPU programs, built like a build system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from npuflow.cli._compiled import Compiled, compile  # noqa: A004
    from npuflow.cli._loaded import Build, load_build
    from npuflow.flow.recipe import load as load_recipe
    from npuflow.flow.recipe_build import build
    from npuflow.program.container import load_program
    from npuflow.runner.runner import Runner

_HOMES = {
    "Compiled": ("npuflow.cli._compiled", "Compiled"),
    "compile": ("npuflow.cli._compiled", "compile"),
    "Build": ("npuflow.cli._loaded", "Build"),
    "load_build": ("npuflow.cli._loaded", "load_build"),
    "build": ("npuflow.flow.recipe_build", "build"),
    "load_recipe": ("npuflow.flow.recipe", "load"),
    "load_program": ("npuflow.program.container", "load_program"),
    "Runner": ("npuflow.runner.runner", "Runner"),
}

__all__ = [
    "Build",
    "Compiled",
    "Runner",
    "__version__",
    "build",
    "compile",
    "load_build",
    "load_program",
    "load_recipe",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import npuflow` alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'npuflow' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
