"""What convolutions and requantisations are given: sums of which shape, and how they become codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.export_c.kernel import Scale, SourceWriter, scale
from npuflow.whole.export_c.whole import TensorCommand

Four = tuple[int, ...]


@dataclass(frozen=True)
class Finish:
    """What turns sums into codes, by channel: bias, multipliers and bounds as arrays of one or of all."""

    bias: Array
    multiplier: Array
    lo: Array
    hi: Array
    shift: int
    zero: int

    def scale(self, peak: int) -> Scale:
        """For sums of that size, before the bias."""
        most = peak + int(np.abs(self.bias).max(initial=0))
        return scale(most, int(self.multiplier.max()), self.shift)

    @property
    def steps(self) -> tuple[int, ...]:
        """Whether bias, multiplier and bounds go on from channel to channel."""
        return tuple(int(a.size > 1) for a in (self.bias, self.multiplier, self.lo))

    def arguments(self, w: SourceWriter, gain: int) -> tuple[str, ...]:
        """Bias, multipliers and bounds as constants. `gain`: what multipliers are scaled by."""
        return (
            w.constant("bias", self.bias),
            w.constant("multipliers", self.multiplier * gain),
            w.constant("lo", self.lo.astype(np.int32)),
            w.constant("hi", self.hi.astype(np.int32)),
        )


@dataclass(frozen=True)
class ConvLayer:
    """A convolution of a whole tensor. Strides are in elements; `weight` is centred,
    [out, in / group, kernel]."""

    x: int
    x_type: str
    x_zero: int
    x_dims: Four
    x_strides: Four
    y: int
    y_type: str
    y_dims: Four
    y_strides: Four
    weight: Array
    groups: int
    stride: Four
    dilation: Four
    origin: Four
    insert: Four
    finish: Finish
    blank: int = 0  # of what lies around the input: its code less x_zero

    @property
    def peak(self) -> int:
        """The largest magnitude of a sum, before the bias."""
        lo, hi = ELEMENTS[self.x_type].range
        most = max(abs(lo - self.x_zero), abs(hi - self.x_zero))
        return most * int(np.abs(self.weight).reshape(len(self.weight), -1).sum(1).max())


def finish_of(w: SourceWriter, c: TensorCommand, channels: int) -> Finish:
    """From the constants that a REQUANT names."""

    def held(name: str, otherwise: int) -> Array:
        if name not in c.fields:
            return np.array([otherwise], np.int64)
        array = w.array_of(c[name])
        if array is None:
            raise ModelError(f"REQUANT: {name} is no constant", code="NF-PROGRAM-041")
        flat = array.reshape(-1).astype(np.int64)
        return np.broadcast_to(flat, (channels,)) if flat.size == 1 else flat

    bias = held("bias", 0) << c["bias_shift"]
    lo, hi = held("los", c["lo"]), held("his", c["hi"])
    if lo.size != hi.size:
        lo, hi = np.broadcast_to(lo, (channels,)), np.broadcast_to(hi, (channels,))
    return Finish(bias, held("multipliers", c["multiplier"]), lo, hi, c["shift"], c["zero"])
