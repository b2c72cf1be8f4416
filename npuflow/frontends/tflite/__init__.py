"""TensorFlow Lite models: float and quantised ones, operator by operator into a graph."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from npuflow.base.isolated import isolated
from npuflow.frontends import FRONTENDS, Bindings, CodePlace, Reading, Source

WRAPPERS = ("StatefulPartitionedCall", "PartitionedCall")


def layer_of(name: str) -> str:
    """The layer in the name of an operator, "net/conv/Relu;net/conv/BiasAdd": its scopes, without the calls
    that converters wrap networks in."""
    parts = [part for part in name.partition(";")[0].split("/") if part not in WRAPPERS]
    return "/".join(parts[:-1])


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

    def places(self, source: Source, bindings: Bindings) -> dict[str, CodePlace]:
        """The layers of Keras, which names of operators begin with."""
        names = {name for node in self.read(source, bindings).graph.nodes for name in node.origin}
        found = {name: layer_of(name) for name in names}
        return {name: CodePlace(module) for name, module in found.items() if module}

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading:
        from npuflow.frontends.tflite.convert import reading
        from npuflow.frontends.tflite.schema import parsed

        return reading(parsed(source) if isinstance(source, bytes) else source.content, bindings)
