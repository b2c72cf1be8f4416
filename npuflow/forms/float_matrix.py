"""Products of matrices in floats."""

from __future__ import annotations

from collections.abc import Mapping

from npuflow.forms._products import MatrixProduct
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.op import OpContext


@FORMS.entry
class FloatMatrix(MatrixProduct):
    def command(
        self, site: OpContext, fields: Mapping[str, object], numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        return "FMATMUL", {**fields, "chunk": numerics.float_chunk}
