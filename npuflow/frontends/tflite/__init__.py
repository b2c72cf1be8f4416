"""TensorFlow Lite models: float and quantised ones, operator by operator into a graph."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Bindings, Reading, Source


@FRONTENDS.entry
class Tflite:
    """`.tflite` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".tflite",)

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path,)

    def has_states(self, path: Path) -> bool:
        from npuflow.frontends.tflite.variables_found import has_variables

        return has_variables(path)

    def gather(self, path: Path) -> Source:
        from npuflow.frontends.tflite.convert import opened

        return Source(content=isolated(opened, path))

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends.tflite.convert import reading
        from npuflow.frontends.tflite.schema import parsed

        return reading(parsed(source) if isinstance(source, bytes) else source.content, bindings)
