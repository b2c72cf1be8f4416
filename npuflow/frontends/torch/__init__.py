"""PyTorch modules: exported programs, TorchScript, and functions that give a module with example inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Bindings, CodePlace, Reading, Source


@FRONTENDS.entry
class Torch:
    """`.pt2` files (torch.export), TorchScript as `.pt`, and `python:FILE.py:function`, which returns
    `(module, example_inputs)`."""

    suffixes: ClassVar[tuple[str, ...]] = (".pt2", ".pt", ".py")

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path.with_name(path.name.partition(":")[0]),)

    def described(self, path: Path) -> Mapping[str, str]:
        """Of a function: the digests of what it gives, so that a change of weights or of other modules
        counts. Files are known by their bytes."""
        if path.suffix in (".pt2", ".pt"):
            return {}
        from npuflow.frontends.torch.load import described

        return isolated(described, path)

    def gather(self, path: Path) -> Source:
        return Source(content=path)

    def places(self, source: Source, bindings: Bindings) -> dict[str, CodePlace]:
        from npuflow.frontends.torch.load import placed

        assert isinstance(source.content, Path)
        return isolated(placed, source.content, dict(bindings.inputs))

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends._nodes.replay import replayed
        from npuflow.frontends.torch.load import converted
        from npuflow.ir.packed import unpack

        assert isinstance(source, Source) and isinstance(source.content, Path)
        data, notes = isolated(converted, source.content, dict(bindings.inputs))
        found = replayed(*unpack(data), bindings)
        return Reading(found.graph, (*notes, *found.notes), found.stated)
