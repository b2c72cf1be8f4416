"""Networks that `npuflow.lang` has written: graphs as they are, with their stated codes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading, Source


@FRONTENDS.entry
class Packed:
    """`.npg` files."""

    suffixes: ClassVar[tuple[str, ...]] = (".npg",)

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path,)

    def gather(self, path: Path) -> Source:
        try:
            return Source(path.read_bytes())
        except OSError as fault:
            raise ModelError(
                f"{path.name} cannot be read", because=fault.strerror or str(fault), code="NF-MODEL-001",
            ).at(file=str(path)) from fault

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends._nodes.replay import replayed
        from npuflow.ir.packed import unpack

        graph, stated = unpack(source if isinstance(source, bytes) else source.data)
        return replayed(graph, stated, bindings)
