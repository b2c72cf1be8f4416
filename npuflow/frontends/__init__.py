"""Source formats, one a file or folder: a model's files become a graph.

Noun: `Frontend`.
Public: `Frontend`, `Source`, `Bindings`, `Reading`, `Outline`.
Does not know: targets, quantisation, other formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.ir.builder import Builder as Builder
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import FloatType, GroupedType, QuantType, TensorType
from npuflow.onnx.fed import MOST, SessionModel

FRONTENDS = Registry("frontends", "npuflow.frontends")
TAKEN_AS_ONE = "free and taken as 1"      # ends the note of a batch that nobody stated


@dataclass(frozen=True)
class Bindings:
    """What the recipe fixes of a model: shapes of inputs by name, sizes of named dimensions, cut points,
    inputs that always have the same value, and how many steps loops may have whose end depends on data (all
    of them, or by name). `largest`: of several shapes that share a state the largest sizes, of dimensions and
    of inputs by name."""

    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    max_steps: int | Mapping[str, int] | None = None
    largest: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """A source model as a graph, with notes on what had to be assumed. `stated`: the
    codes of a quantised model."""

    graph: Graph
    notes: tuple[str, ...] = ()
    stated: Mapping[str, QuantType | FloatType | GroupedType] = field(default_factory=dict)


def finished(builder: Builder, inputs: Sequence[str], outputs: Sequence[str]) -> Reading:
    """What a front end gives: the graph without what reaches no output, notes, and codes of its values."""
    graph = prune(builder.graph(inputs, outputs))
    stated = {name: quant for name, quant in builder.stated.items() if name in graph.values}
    return Reading(graph, tuple(builder.notes), stated)


@dataclass(frozen=True)
class CodePlace:
    """Where an operator comes from: the path of its module or layer in the network, what kind of module that
    is, and the line of the training code. Empty and 0: not known."""

    module: str = ""
    kind: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Source:
    """A model file: its bytes, and tensors by name that are kept apart from them,
    mapped where they lie in files; or its content as the front end's own parser gives it.
    `format`: the entry of FRONTENDS that reads it, where it is another than
    the one that gathered it."""

    data: bytes = b""
    tensors: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    format: str = ""
    content: Any = None


class Gatherer(Protocol):
    """A source format whose models become those of another format as they are gathered."""

    suffixes: ClassVar[tuple[str, ...]]

    def files(self, path: Path) -> tuple[Path, ...]:
        """Every file that the model at `path` consists of."""

    def gather(self, path: Path) -> Source:
        """The whole model, from all its files."""


class Frontend(Gatherer, Protocol):
    """A source format. Where it takes a `Source`, the bytes alone will do for a model
    without tensors of its own."""

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading: ...


@runtime_checkable
class SharesState(Protocol):
    """A source format whose state depends on all shapes that share it."""

    def shared(self, path: Path, bindings: Bindings) -> Mapping[str, int]:
        """What the largest sizes make of a model, beside what its own shape says; from headers alone."""


@runtime_checkable
class Described(Protocol):
    """A source format in which a function gives the model."""

    def described(self, path: Path) -> Mapping[str, str]:
        """What the model is known by beside its files' bytes; `path` is the file with `:function` behind."""


@dataclass(frozen=True)
class Outline:
    """What a model is, as far as its weights need not be read for it. `inputs`, `outputs`: without state;
    `sizes`: of its free dimensions by name, as they are usual; `facts`: what else a reader wants to know."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    sizes: Mapping[str, int]
    facts: Mapping[str, str | int]


@runtime_checkable
class Outlined(Protocol):
    """A source format whose models tell what they are before their weights are read."""

    def outline(self, source: Source, sizes: Mapping[str, int]) -> Outline:
        """At these sizes of free dimensions, the usual ones for the rest."""


@runtime_checkable
class InFolder(Protocol):
    """A source format whose models are folders: they are known by one file in it."""

    main: ClassVar[str]


def main_files() -> tuple[str, ...]:
    """The names of the files that folders stand for."""
    readers = (FRONTENDS[name]() for name in FRONTENDS.names())
    return tuple(reader.main for reader in readers if isinstance(reader, InFolder))


@runtime_checkable
class StatesItself(Protocol):
    """A source format whose files may say which of their tensors are states."""

    def has_states(self, path: Path) -> bool:
        """Whether the model at `path` does: found without parsing it; False where it cannot be read."""


@runtime_checkable
class Located(Protocol):
    """A source format whose files may say where their operators come from. It is asked apart from `read`:
    a graph does not change where a line of the training code moves."""

    def places(self, source: Source, bindings: Bindings) -> dict[str, CodePlace]:
        """By the names that operators have in the graph; those that are known."""


@runtime_checkable
class Runnable(Protocol):
    """A source format whose models onnxruntime runs."""

    def runnable(self, source: Source | bytes, bindings: Bindings, most: int = MOST) -> SessionModel:
        """The model as ONNX bytes that nothing of npuflow has rewritten. Its rounding to codes, if it has
        any, is left out, as `read` leaves it out; inputs held constant hold their numbers, and outputs are
        those asked for. Large tensors that lie apart from the bytes, where all of these are more than `most`
        bytes, are fed to it. CannotRunError of `onnx_run` where the others are too many.
        """

    def rounding(self, source: Source | bytes) -> float:
        """The relative rounding of the coarsest floating-point type that the model computes in."""
