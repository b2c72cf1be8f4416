"""TensorFlow Lite models: float and quantised ones, read as the ONNX network of the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Source


@FRONTENDS.entry
class Tflite:
    """`.tflite` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".tflite",)

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path,)

    def gather(self, path: Path) -> Source:
        from npuflow.frontends.tflite.convert import converted

        return Source(isolated(converted, path), format="onnx")
