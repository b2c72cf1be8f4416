"""The element types: what one row states, targets, quantisation, commands, memory and checks derive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["int", "float"]
# Operands of commands that may be of a type. `float`, `float_sum`: of commands on floats; `any`: of casts;
# `block`: weights of commands on blocks.
Role = Literal["tensor", "weight", "sum", "bias", "scale", "float", "float_sum", "any", "block"]


@dataclass(frozen=True)
class Block:
    """Elements that share an exponent (biased by 127; all bits set: NaN): `size` neighbours along an axis.

    `pair`: neighbours that share a micro-exponent, one bit that halves them; 0: there are none. `magnitude`:
    integers are a sign and a magnitude; else two's complement. `least`: of the exponents that are made.
    `both`: the activations of a product are converted to the type, too.
    """

    size: int
    exponent_bits: int = 8
    pair: int = 0
    magnitude: bool = False
    least: int = -127
    both: bool = True

    @property
    def shared_bits(self) -> int:
        """Of a block: its exponent and micro-exponents."""
        return self.exponent_bits + (self.size // self.pair if self.pair else 0)


@dataclass(frozen=True)
class Element:
    """One element type. An int is two's complement or unsigned; a float has a sign,
    `exponent` bits, a fraction.

    `code`: its number in the words of commands; None: no command has it. `packed`: elements follow each other
    bit by bit, the first in the lowest bits of the first byte; else each has bytes of its own. `block`: an
    exponent that neighbours share; `exponent` is then that of an element beside it, and 0 that of integers.
    `finite`: no pattern is infinity, and only all bits set (with 8 bits) is NaN.

    `sparse`: (n, m), of every m elements n are stored, and which: first the n
    values in order, then their n places; the others are zero.
    """

    name: str
    bits: int
    code: int | None = None
    roles: tuple[Role, ...] = ()
    signed: bool = True
    packed: bool = False
    kind: Kind = "int"
    exponent: int = 0
    block: Block | None = None
    finite: bool = False
    sparse: tuple[int, int] | None = None

    @property
    def bytes(self) -> int:
        """Of an element that shares none with another; of packed ones as they are computed with."""
        return self.container // 8

    @cached_property
    def container(self) -> int:
        """Bits of the machine's number that holds one element; of blocks with its exponents, the lowest bits
        those of the element, the next one its micro-exponent."""
        bits = self.bits
        if self.block is not None:
            bits += self.block.exponent_bits + bool(self.block.pair)
        return next(width for width in (8, 16, 32, 64) if bits <= width)

    @cached_property
    def numpy(self) -> str:
        """The numpy type of an array with one element each; of floats narrower than float32 their patterns
        of bits, for numpy does not have them all."""
        if self.block is not None:
            return f"uint{self.container}"
        if self.kind == "float":
            return f"float{self.bits}" if self.bits >= 32 else f"uint{self.container}"
        return f"{'int' if self.signed else 'uint'}{self.container}"

    @property
    def fraction(self) -> int:
        """Bits of a float behind its exponent."""
        return self.bits - 1 - self.exponent

    @cached_property
    def range(self) -> tuple[int, int]:
        """The least and the largest integer."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.signed else (0, 2 * half - 1)

    @property
    def wide(self) -> bool:
        return wide(self.bits)

    @property
    def place_bits(self) -> int:
        """Of the place of an element among those that it is stored for."""
        return (self.sparse[1] - 1).bit_length() if self.sparse is not None else 0

    @cached_property
    def memory_bits(self) -> int:
        """That an element takes in memory, among others; of sparse ones a whole number, too."""
        if self.sparse is None:
            return self.bits
        kept, of = self.sparse
        return kept * (self.bits + self.place_bits) // of

    def storage(self, count: int) -> int:
        """Bytes of so many elements one after another, shared exponents included."""
        if self.sparse is not None:
            count = -(-count // self.sparse[1]) * self.sparse[1]
        if self.block is not None:
            return -(-count // self.block.size) * self.block_bytes
        return -(-count * (self.memory_bits if self.packed else self.container) // 8)

    @cached_property
    def block_bytes(self) -> int:
        """Of a whole block; the last one of an axis is padded with zeros."""
        assert self.block is not None
        return -(-(self.block.size * self.bits + self.block.shared_bits) // 8)


# A new type is a row at the end with the next free code. Codes never change: they stand in programs.
TABLE = (
    Element("int8", 8, 0, ("tensor", "weight", "bias", "any")),
    Element("uint8", 8, 1, ("tensor", "weight", "scale", "any"), signed=False),
    Element("int16", 16, 2, ("tensor", "weight", "bias", "any")),
    Element("uint16", 16, 3, ("tensor", "weight", "any"), signed=False),
    Element("int32", 32, 4, ("sum", "bias")),
    Element("uint32", 32, 5, ("scale",), signed=False),
    Element("int64", 64, 6, ("sum", "bias")),
    Element("int4", 4, 7, ("weight",), packed=True),
    Element("uint4", 4, 8, ("weight",), signed=False, packed=True),
    Element("float16", 16, 9, ("float", "any"), kind="float", exponent=5),
    Element("bfloat16", 16, 10, ("float", "any"), kind="float", exponent=8),
    Element("float32", 32, 11, ("float_sum",), kind="float", exponent=8),
    Element("int8_2of4", 8, 12, ("weight",), packed=True, sparse=(2, 4)),
    Element("int4_2of4", 4, 13, ("weight",), packed=True, sparse=(2, 4)),
    # 8 numbers of 8 bits and an exponent: AMD's BFP16; the same with 16 numbers
    Element("bfp16", 8, 14, ("block",), block=Block(8, least=-126)),
    Element("bfp16_16", 8, 15, ("block",), block=Block(16, least=-126)),
    # Rouhani et al., "With Shared Microexponents, A Little Shifting Goes a Long Way" (arXiv 2302.08007)
    Element("mx9", 8, 16, ("block",), block=Block(16, pair=2, magnitude=True, least=-126)),
    Element("mx6", 5, 17, ("block",), block=Block(16, pair=2, magnitude=True, least=-126)),
    # OCP Microscaling Formats (MX) Specification 1.0
    Element("mxint8", 8, 18, ("block",), block=Block(32)),
    Element("mxfp8", 8, 19, ("block",), kind="float", exponent=4, finite=True, block=Block(32, both=False)),
    Element("mxfp8_e5m2", 8, 20, ("block",), kind="float", exponent=5, block=Block(32, both=False)),
    Element("mxfp4", 4, 21, ("block",), kind="float", exponent=2, finite=True, block=Block(32, both=False)),
    Element("mxfp6", 6, 22, ("block",), kind="float", exponent=2, finite=True, block=Block(32, both=False)),
    Element(
        "mxfp6_e3m2", 6, 23, ("block",), kind="float", exponent=3, finite=True, block=Block(32, both=False)
    ),
)
ELEMENTS: Mapping[str, Element] = {row.name: row for row in TABLE}
CODED = tuple(name for _, name in sorted((row.code, row.name) for row in TABLE if row.code is not None))
LEAST = 2                                  # bits of a quantised tensor
WIDEST = max(row.bits for row in TABLE if "tensor" in row.roles)


def having(role: Role) -> tuple[str, ...]:
    """The types that commands may have in a role."""
    return tuple(row.name for row in TABLE if role in row.roles)


def wide(bits: int) -> bool:
    """Whether an operand is more than the byte that the array takes at full speed
    and tables have entries for."""
    return bits > 8


def container(bits: int, signed: bool) -> str:
    """The type that holds integers of so many bits with bytes of their own: the smallest there is."""
    whole = [r for r in TABLE if r.kind == "int" and not r.packed and r.block is None]
    rows = [r for r in whole if r.signed == signed and r.bits >= bits]
    return min(rows, key=lambda r: r.bits).numpy


def packing(bits: int, signed: bool) -> str | None:
    """The packed type of weights of so many bits; None: no packed type is smaller than bytes of their own."""
    whole = ELEMENTS[container(bits, signed)].bits
    rows = [r for r in TABLE if r.packed and "weight" in r.roles and r.signed == signed and r.sparse is None]
    packed = [r for r in rows if bits <= r.bits < whole]
    return min(packed, key=lambda r: r.bits).name if packed else None


def sparse_packing(bits: int, signed: bool, pattern: tuple[int, int]) -> str | None:
    """The type of weights of so many bits that stores only those of a pattern; None: there is none."""
    rows = [r for r in TABLE if r.sparse == pattern and r.signed == signed and bits <= r.bits]
    return min(rows, key=lambda r: r.bits).name if rows else None
