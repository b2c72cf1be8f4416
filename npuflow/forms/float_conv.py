"""Convolutions in floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from npuflow.forms._products import Convolution
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import TileView
from npuflow.ir.op import OpContext
from npuflow.ops._weighted import ConvOp


@FORMS.entry
class FloatConv(Convolution):
    def command(
        self, site: OpContext, tile: TileView, numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        terms = {"block": numerics.float_chunk, "chunk": self.whole(site, numerics), "taps": 1}
        return "FCONV", {"w": cast("ConvOp", site.op).held(tile).address, **terms}
