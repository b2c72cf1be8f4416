"""Products of matrices in blocks that share an exponent: of the weight, or of two activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from npuflow.forms._blocks import InBlocks
from npuflow.forms._products import MatrixProduct
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS, block_type
from npuflow.ir.op import OpContext
from npuflow.ops._matrix import MatrixOp


@FORMS.entry
class BlockMatrix(InBlocks, MatrixProduct):
    def command(
        self, site: OpContext, fields: Mapping[str, object], numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        if site.op.pair_type():
            return "BPAIRS", {**fields, "held_type": block_type(site)}
        held = {name: value for name, value in fields.items() if name != "b_strides"}
        columns = int(cast("MatrixOp", site.op).turned)
        return "BMATMUL", {**held, "b_type": block_type(site), "columns": columns}
