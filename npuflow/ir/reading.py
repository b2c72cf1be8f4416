"""What a source format gives and takes: a float graph out of a file, with what the recipe binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from npuflow.ir.graph import Graph


@dataclass(frozen=True)
class Bindings:
    """What the recipe says of a source model: shapes of inputs, sizes of named dimensions, where to cut it."""

    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A source model as a float graph, with notes on what was assumed."""

    graph: Graph
    notes: tuple[str, ...] = ()


class Frontend(Protocol):
    """A source format: an entry of contracts.FRONTENDS."""

    suffixes: ClassVar[tuple[str, ...]]

    def files(self, path: Path) -> tuple[Path, ...]:
        """Every file that the model at `path` consists of."""

    def gather(self, path: Path) -> bytes:
        """The model as one self-contained blob."""

    def operators(self, data: bytes) -> tuple[str, ...]:
        """Operator files (OPS names) that reading the blob may use."""

    def read(self, data: bytes, bindings: Bindings) -> Reading:
        """The float graph."""
