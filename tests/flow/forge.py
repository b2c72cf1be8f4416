"""Stage packages that tests write, edit and import again."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from npuflow.base import code
from npuflow.base.registry import Registry

# an artifact that holds a number, for the files of a package
VALUE = """
    @dataclass(frozen=True)
    class Value(Artifact):
        value: int = 0
        def save(self, folder): folder.json("value", self.value)
        @classmethod
        def load(cls, folder): return cls(folder.json("value"))
"""


class Forge:
    """A package on the import path whose files may change under the running process."""

    def __init__(self, root: Path, package: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.root, self.package = root, package
        self._bytecode = sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # its time stamps are too coarse for edits within a second
        (root / package / "stages").mkdir(parents=True, exist_ok=True)
        sys.path.insert(0, str(root))
        for folder in ("", "stages"):
            (root / package / folder / "__init__.py").write_text("")

    def put(self, name: str, text: str) -> Path:
        """Write a Python file (no suffix in `name`) or any other file."""
        path = self.root / self.package / (name if Path(name).suffix else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        self.forget()
        return path

    def remove(self, name: str) -> None:
        (self.root / self.package / (name if Path(name).suffix else f"{name}.py")).unlink()
        self.forget()

    def forget(self) -> None:
        """Make the process see the files as they are now."""
        for name in [n for n in list(sys.modules) if n == self.package or n.startswith(self.package + ".")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        code.forget()

    def registry(self) -> Registry:
        return Registry.unlisted("stages", f"{self.package}.stages")

    def kind(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package}.kinds"), name)

    def close(self) -> None:
        sys.dont_write_bytecode = self._bytecode
        sys.path.remove(str(self.root))
        self.forget()
