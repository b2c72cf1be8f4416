"""Sums of products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal, less
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def matmul(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c, t = run[0], b.t
    batch, m, k, n = c["batch"], c["m"], c["k"], c["n"]
    if "b_zeros" in c.fields:
        raise TosaRefusal("weights with a zero point for each channel")
    one = b.views.read(c, "a", (batch, m, k), spread=True)
    other = b.views.read(c, "b", (batch, k, n), spread=True)
    zeros = [c[f"{name}_zero"] - less(c[f"{name}_type"]) for name in ("a", "b")]
    if (one.dtype, other.dtype) != ("int8", "int8"):
        raise TosaRefusal(f"a product of {c['a_type']} and {c['b_type']}: MATMUL has exact ones of 8 bits")
    if not all(-128 <= z <= 127 for z in zeros):
        raise TosaRefusal("a zero point outside of the codes")
    peak = b.peak(c, "a") * b.peak(c, "b") * k
    held = b.views.constant(c["b"])
    if held is not None:
        peak = b.peak(c, "a") * int(np.abs(held.astype(np.int64) - c["b_zero"]).max()) * k
    if b.sum_peak(c, peak) >= INT32:
        raise TosaRefusal("sums beyond 32 bits")
    ends = [t.const([zero], "int8") for zero in zeros]
    made = t.op("MATMUL", [one, other, *ends], (batch, m, n), "int32")
    b.views.sums(c, made, (batch, m, n))
    return 1
