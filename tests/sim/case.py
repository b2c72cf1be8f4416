"""One random command: fields under construction, and the constants that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from npuflow.hw.elements import ELEMENTS, having
from npuflow.hw.isa import ROUNDINGS
from npuflow.hw.target import Memory, Target

LOCAL = 16384
TARGET = replace(Target(), memory=replace(Memory(), local_bytes=LOCAL))
QUEUES = {"LOAD": 0, "STORE": 1, "TENSOR": 2, "VECTOR": 3, "ANY": 3}
SIZES = {name: kind.bytes for name, kind in ELEMENTS.items() if not kind.packed}
SMALL = having("tensor")


@dataclass
class Case:
    """Fields under construction: `at` is the next free byte of local memory,
    `consts` what LOADs put where."""

    rng: np.random.Generator
    opcode: str
    fields: dict = field(default_factory=dict)
    consts: list = field(default_factory=list)
    at: int = 0
    usual: str = ""                # most tensors of a case share one type, as in real programs

    def __post_init__(self) -> None:
        self.usual = self.usual or self.pick(*SMALL)

    def pick(self, *values):
        return values[int(self.rng.integers(len(values)))]

    def number(self, lo: int, hi: int) -> int:
        return int(self.rng.integers(lo, hi + 1))

    def place(self, size: int) -> int:
        at = self.at
        self.at += -(-size // 8) * 8 + 8 * self.number(0, 2)
        return at

    def tensor(self, name: str, dims, dtype: str | None = None, broadcast: bool = False) -> None:
        dtype = dtype or (self.usual if self.rng.random() < 0.85 else self.pick(*SMALL))
        size = SIZES[dtype]
        order = list(range(len(dims))) if self.rng.random() < 0.6 else list(self.rng.permutation(len(dims)))
        strides, step = [0] * len(dims), size
        for d in reversed(order):
            if broadcast and self.rng.random() < 0.25:
                continue
            strides[d] = step
            step *= dims[d]
            step += size * (self.number(0, 2) if self.rng.random() < 0.3 else 0)
        start = self.place(step)
        for d in range(len(dims)):
            if strides[d] and self.rng.random() < 0.1:
                start += strides[d] * (dims[d] - 1)
                strides[d] = -strides[d]
        self.fields.update({name: start, f"{name}_type": dtype, f"{name}_strides": tuple(strides)})

    def zero(self, name: str, dtype_of: str | None = None) -> None:
        lo, hi = ELEMENTS[self.fields[f"{dtype_of or name}_type"]].range
        self.fields[f"{name}_zero"] = self.pick(0, self.number(lo, hi), self.number(lo, hi))

    def const(self, name: str, values: np.ndarray) -> None:
        at = self.place(values.nbytes)
        self.fields[name] = at
        self.consts.append((at, values.tobytes()))

    def clamp(self) -> None:
        lo, hi = ELEMENTS[self.fields["y_type"]].range
        a, b = sorted((self.number(lo, hi), self.number(lo, hi)))
        self.fields.update({"lo": lo, "hi": hi} if self.rng.random() < 0.7 else {"lo": a, "hi": b})

    def finish(self, bits: int, zero: bool = True) -> None:
        """Clamp, zero, rounding and a shift that brings `bits`-bit values near the container."""
        self.clamp()
        width = 8 * SIZES[self.fields["y_type"]]
        shift = max(-3, min(62, bits - width + self.number(-2, 3)))
        lo, hi = ELEMENTS[self.fields["y_type"]].range
        self.fields.update(
            shift=shift, zero=self.pick(0, self.number(lo, hi)), rounding=self.pick(*ROUNDINGS)
        )

    def multiplier(self, bits: int | None = None) -> int:
        bits = bits or self.pick(1, 8, 16, 31, 32)
        return self.number(1 << (bits - 1), (1 << bits) - 1)

    def acc(self, count: int, size: int | None = None) -> None:
        dtype = self.pick("int32", "int32", "int64")
        self.fields.update(
            acc=self.place(count * SIZES[dtype]), acc_type=dtype, accumulate=self.pick(0, 0, 1)
        )

    def window(self) -> tuple[int, int]:
        n, c, h, w = self.number(1, 2), self.number(1, 4), self.number(1, 8), self.number(1, 9)
        self.fields["x_dims"] = (n, c, h, w)
        self.tensor("x", (n, c, h, w))
        self.zero("x")
        kernel, stride = (self.number(1, 3), self.number(1, 4)), (self.number(1, 3), self.number(1, 2))
        origin = (-self.number(0, 3), self.number(-3, 1))
        self.fields.update(
            kernel=kernel, stride=stride, dilation=(self.pick(1, 1, 2), self.pick(1, 1, 3)), origin=origin
        )
        out = (self.number(1, 6), self.number(1, 7))
        self.fields.update(out_height=out[0], out_width=out[1])
        return out
