"""Base of the products of matrices: both operands, and the fields that their commands share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import TileView
from npuflow.ir.op import Op, OpContext
from npuflow.ir.types import Array


@dataclass(frozen=True)
class MatrixOp(Op):
    """The two first inputs are matrices, or batches of them."""

    def forms(self) -> Mapping[str, Any]:
        return {
            "float": FORMS["float_matrix"],
            "block": FORMS["block_matrix"],
            "group": FORMS["group_matrix"],
            "float_group": FORMS["float_group_matrix"],
        }

    @property
    def turned(self) -> bool:
        """Whether a constant weight holds its columns as rows."""
        return False

    def matrices(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Both operands as [..., m, k] and [..., k, n]."""
        return a, b

    def commands(self, site: OpContext, tile: TileView) -> Iterator[dict[str, object]]:
        """The fields that commands of products share, command by command."""
        raise NotImplementedError
