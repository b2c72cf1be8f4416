"""What a kernel of the generated C is: text by element types, and the call that a command becomes.

A kernel file holds the C text of one opcode. `$X` and the like stand for element types; each combination
that a network needs becomes one function. Pointers are written as tokens until the arena is laid out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import ClassVar, Literal

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.registry import Registry
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import Buffers, Storage, TensorCommand
from npuflow.whole.fusion import Fusion, fused

KERNELS = Registry("kernels", "npuflow.whole.export_c.kernels")

Way = Literal["f", "n", "w"]  # a product of 64 bits and a result of 32; of 64; of two limbs
NARROW = 1 << 62


@dataclass(frozen=True)
class Scale:
    """v * factor / 2^shift: how it is computed without an overflow, for |v| <= peak."""

    way: Way
    factor: int
    shift: int
    gain: int = 1  # of factors that are arrays


def scale(peak: int, factor: int, shift: int) -> Scale:
    """The narrowest sufficient arithmetic."""
    gain = 1 << max(-shift, 0)
    n = max(shift, 0)
    if n == 0:
        gain, n = 2 * gain, 1  # an exact half: one shift for all
    product = peak * abs(factor) * gain
    if product + (1 << n) < NARROW:
        way: Way = "f" if (product >> n) + 1 < 1 << 30 else "n"
        return Scale(way, factor * gain, n, gain)
    return Scale("w", factor, shift)


class Kernel:
    """The base of the files of `kernels`."""

    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        """The call of the first command of a run; how many commands of the run it stands for."""
        raise NotImplementedError


@dataclass
class SourceWriter:
    """The source as it grows: functions by name, static data, and the calls in order."""

    buffers: Buffers
    rounding: str
    functions: dict[str, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # buffers that the current call touches
    peaks: dict[int, int] = field(default_factory=dict)  # of sums, by buffer
    _vectors: dict[tuple[int, ...], str] = field(default_factory=dict)

    OWN: ClassVar[Mapping[str, str]] = {
        name: f"nn_{name}" for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
    }

    def function(self, name: str, text: str, **types: str) -> str:
        """A function, named by what is filled in; `$NAME` in the text is its own name."""
        own = "_".join(["nn", name, *types.values()])
        if own not in self.functions:
            named = {k: self.OWN.get(v, v) for k, v in types.items()}
            self.functions[own] = Template(text).substitute(named, NAME=own)
        return own

    def call(self, function: str, *arguments: str | int) -> None:
        self.calls.append(f"{function}({', '.join(str(a) for a in arguments)});")

    def pointer(self, address: int, dtype: str) -> str:
        """A token for the pointer, resolved when the arena is laid out."""
        own, offset = self.buffers.at(address)
        item = ELEMENTS[dtype].bytes
        if offset % item:
            raise ModelError(f"{own.name}: an element begins at byte {offset}", code="NF-PROGRAM-049")
        self.used.add(own.number)
        return f"@{own.number}:{offset // item}:{dtype}@"

    def operands(self, c: TensorCommand, numbers: Sequence[int]) -> tuple[str, str, str]:
        """The first arguments of a kernel: its input, its result, and extents, strides and the like."""
        return self.pointer(c["x"], c["x_type"]), self.pointer(c["y"], c["y_type"]), self.vector(numbers)

    def constant(self, name: str, array: Array) -> str:
        own = self.buffers.add("const", name, array.dtype.name, array.size, array)
        return self.pointer(own.base, own.dtype)

    def scratch(self, dtype: str, size: int) -> str:
        own = self.buffers.add("scratch", f"scratch{len(self.buffers.every)}", dtype, size)
        return self.pointer(own.base, dtype)

    def vector(self, numbers: Sequence[int]) -> str:
        """A static array of numbers."""
        key = tuple(int(n) for n in numbers)
        if key not in self._vectors:
            self._vectors[key] = f"d{len(self._vectors)}"
            body = ", ".join(map(str, key))
            self.data.append(f"static const int32_t {self._vectors[key]}[] = {{{body}}};")
        return self._vectors[key]

    def array_of(self, address: int) -> Array | None:
        """The constant at an address."""
        own, offset = self.buffers.at(address)
        return own.array if own.kind == "const" and not offset else None

    def fused(self, run: Sequence[TensorCommand]) -> Fusion | None:
        """What the first two commands of a run are together."""
        return fused([(c.opcode, c.fields) for c in run[:2]], lambda a: self.array_of(a) is not None)

    def storage(self, address: int) -> Storage:
        return self.buffers.at(address)[0]


def elements(c: TensorCommand, name: str) -> tuple[int, ...]:
    """An operand's strides in elements."""
    item = ELEMENTS[c[f"{name}_type"]].bytes
    return tuple(s // item for s in c[f"{name}_strides"])


def window(c: TensorCommand) -> list[int]:
    """Extents, window and strides of a pooling command."""
    names = "kernel", "stride", "dilation", "origin"
    sizes = [*c["x_dims"], c["out_height"], c["out_width"], *(n for name in names for n in c[name])]
    return [*sizes, *elements(c, "x"), *elements(c, "y")]


def codes(c: TensorCommand) -> tuple[int, int, int, int]:
    """The last arguments of a kernel: both zero points, and the bounds of the result."""
    return c["x_zero"], c["zero"], c["lo"], c["hi"]


def merged(dims: Sequence[int], *strides: Sequence[int], rank: int = 4) -> list[int]:
    """Dimensions that lie behind each other in every operand become one: dims, then strides, `rank` of each.

    Dimensions are put in the order of the last operand's strides, so that the innermost loop writes in a row.
    """
    order = sorted((i for i, d in enumerate(dims) if d > 1), key=lambda i: -abs(strides[-1][i]))
    sizes: list[int] = []
    own: list[list[int]] = [[] for _ in strides]
    for i in order:
        if sizes and all(o[-1] == s[i] * dims[i] for o, s in zip(own, strides, strict=True)):
            sizes[-1] *= dims[i]
            for o, s in zip(own, strides, strict=True):
                o[-1] = s[i]
            continue
        sizes.append(dims[i])
        for o, s in zip(own, strides, strict=True):
            o.append(s[i])
    pad = rank - len(sizes)
    assert pad >= 0, f"{len(sizes)} dimensions"
    if not sizes:
        return [1] * rank + [n for _ in strides for n in [0] * (rank - 1) + [1]]
    return [1] * pad + sizes + [n for o in own for n in [0] * pad + o]


def spread(c: TensorCommand, name: str, zero: int | None = None) -> int:
    """The largest magnitude of an operand's centred codes."""
    lo, hi = ELEMENTS[c[f"{name}_type"]].range
    z = c[f"{name}_zero"] if zero is None else zero
    return max(abs(lo - z), abs(hi - z))


def whole_number(dtype: str, array: Array) -> Array:
    return np.ascontiguousarray(array, np.dtype(dtype))
