"""Sums as codes: bias, multiplier, rounding, clamp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal
from npuflow.ir.moves import dense
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def requant(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """With channels last, where RESCALE has a multiplier for each."""
    c, t = run[0], b.t
    if c["acc_type"] != "int32":
        raise TosaRefusal(f"sums of the type {c['acc_type']}")
    dims, axis = tuple(c["dims"]), c["channel_axis"]
    order = [*(k for k in range(len(dims)) if k != axis), axis]
    own, _ = b.views.buffers.at(c["acc"])
    steps = dense(dims)
    sums = b.views.view(own, 0, [dims[k] for k in order], [steps[k] for k in order], "int32")
    sums = t.broadcast(sums, [dims[k] for k in order])

    def held(name: str, otherwise: int) -> Array:
        found = b.constant(c, name) if name in c.fields else np.array([otherwise], np.int64)
        return np.broadcast_to(found, (dims[axis],)) if found.size > 1 else found

    peak = b.peaks.get(own.number, INT32 - 1)
    if "bias" in c.fields and own.number not in b.biased:
        bias = held("bias", 0) << c["bias_shift"]
        peak += int(np.abs(bias).max())
        if peak >= INT32:
            raise TosaRefusal("sums beyond 32 bits")
        sums = t.add(sums, t.const(bias.reshape((1,) * (len(dims) - 1) + (-1,)), "int32"))
    lo, hi = ((held(f"{name}s", 0) if f"{name}s" in c.fields else c[name]) for name in ("lo", "hi"))
    multiplier = held("multipliers", c["multiplier"])
    multiplier = multiplier[:1] if (multiplier == multiplier[0]).all() else multiplier
    made = t.finished(sums, c, multiplier, c["shift"], peak, lo, hi)
    b.views.write(c, made, order=order)
    return 1
