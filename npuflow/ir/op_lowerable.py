"""The operator contract, third part: how a target runs an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from npuflow.hw.target import Numerics, Target
from npuflow.ir.answers import No, Yes
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move
from npuflow.ir.space import IterationDomain

S = TypeVar("S")  # a node in its place: `OpContext` of ir/op.py, which knows the operator


class Lowerable(Generic[S]):
    """Whether the target takes a node, the axes that tiles cut, and the commands of a tile. `place`,
    `schedule`, `search` and `program` ask this. Those of floats and blocks are in `npuflow/forms`."""

    onnx: ClassVar[str]
    def forms(self) -> Mapping[str, Any]:
        """How it computes beside integers: classes of `npuflow/forms` by arithmetic (`Arithmetic`)."""
        return {}

    @property
    def lane(self) -> str:
        """The operation of the vector unit on floats that it is; empty: there is none. Of two operands also
        several, one after the other ("sub abs"): the first on both, those behind it on its result."""
        return ""

    def accepts(self, site: S, target: Target) -> Yes | No:
        """Whether the target runs this (float) node, judged before calibration from
        types, constants and limits."""
        return No(f"{self.onnx or type(self).__name__} has no integer form")

    def measures(self, site: S) -> Mapping[str, int]:
        """Numbers that a target's limits may speak of, beside those of the shapes: windows, products."""
        return {}

    def tap_places(self, site: S, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Of operators with a window, per spatial dimension and tap: at how many of the places of the output
        the tap meets an element of the input, and neither padding nor an inserted zero. Products and
        comparisons beyond these are not useful work."""
        return ()

    def space(self, site: S, numerics: Numerics) -> IterationDomain | None:
        """Iteration space of the quantised node; None for operators that only move data (see `moves`)."""
        return None

    def local_space(self, site: S) -> IterationDomain | None:
        """Iteration space of an operator with `moves` where `lower` copies in local memory; None: nowhere."""
        return None

    def moves(self, site: S) -> tuple[Move, ...] | None:
        """Strided copies that are the whole operator. An empty tuple: the output is
        the input's bytes as they lie."""
        return None

    def reading_cache(self, place: int, exchanged: bool) -> Self | None:
        """The operator as a plan has it where an input is a cache whose rows a run may read in part, so that
        no tile divides them; `exchanged`: its last two dimensions lie so. None: it cannot."""
        return None

    def copies(self, site: S) -> bool:
        """Whether the quantised node gives the codes that it reads: a program could do without."""
        return False

    def lower(self, site: S, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile. Called once per tile, `sum`
        axes innermost and in order."""
        raise NotImplementedError(f"{type(self).__name__}.lower")
