"""Caffe networks: a .prototxt with the .caffemodel beside it, parsed without Caffe."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Bindings, Reading, Source


@FRONTENDS.entry
class Caffe:
    """`.prototxt` files; the weights are in the `.caffemodel` of the same name."""

    suffixes: ClassVar[tuple[str, ...]] = (".prototxt",)

    def files(self, path: Path) -> tuple[Path, ...]:
        weights = path.with_suffix(".caffemodel")
        return (path, weights) if weights.is_file() else (path,)

    def gather(self, path: Path) -> Source:
        from npuflow.frontends.caffe.parse import opened

        return Source(content=isolated(opened, path))

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends.caffe.convert import reading
        from npuflow.frontends.caffe.parse import parsed

        return reading(parsed(source, b"") if isinstance(source, bytes) else source.content, bindings)
