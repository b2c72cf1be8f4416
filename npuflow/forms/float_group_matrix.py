"""Products of matrices of floats with weights in groups that have float16 scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from npuflow.forms import _grouped
from npuflow.forms._products import MatrixProduct
from npuflow.forms._rounded import finished, real
from npuflow.hw.floats import products, rounded
from npuflow.hw.target import Numerics
from npuflow.ir.forms import FORMS
from npuflow.ir.op import OpContext
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array
from npuflow.ops._matrix import MatrixOp


@FORMS.entry
class FloatGroupMatrix(MatrixProduct):
    """Each weight is exact, and rounded once to the type of the activations; then it is a product of
    floats."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {**super().prepare(site, numerics), "blocks": _grouped.packed(site)}

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        return _grouped.in_groups(super().space(site, numerics), site, self.chunk(site, numerics))

    def compute(
        self, site: OpContext, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        groups, codes = _grouped.weight_of(site)
        held = _grouped.matrix(site, rounded(groups.numbers(codes), site.number))
        a, b = cast("MatrixOp", site.op).matrices(real(site, inputs, 0), held)
        bias = inputs[2] if site.present(2) else None
        start = np.zeros((), np.float32) if bias is None else np.asarray(bias, np.float32)
        return finished(site, products(a, b, self.chunk(site, numerics), start))

    def command(
        self, site: OpContext, fields: Mapping[str, object], numerics: Numerics
    ) -> tuple[str, Mapping[str, object]]:
        return "FGROUPMATMUL", {**_grouped.fields(site, fields), "chunk": numerics.float_chunk}
