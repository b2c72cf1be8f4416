"""Convolutions with weights in blocks that share an exponent."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.forms._blocks import InBlocks
from npuflow.forms._products import Convolution
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import TileView
from npuflow.ir.op import OpContext


@FORMS.entry
class BlockConv(InBlocks, Convolution):
    def command(
        self, site: OpContext, tile: TileView, numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        return "BCONV", {"w": tile.params["blocks"].address}
