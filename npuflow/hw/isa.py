"""The instruction set: the form of a command, and what an opcode states in its one file of isa.

A command is 64 little-endian 32-bit words. Word 0: opcode (bits 0-7), queue index (8-15), core (16-23), flags
(24-31). Word 1: node index (op <-> command map). Words 2-9: `wait`, sixteen unsigned 16-bit counts, one per
queue of the core: start only after that queue has retired at least that many commands since program start
(modulo 2^16). Words 10-63: fields.

Local memory is one byte array per core; external memory has two spaces: CONST (weights, tables; read only)
and DATA (activations). Addresses and strides are in bytes; strides are signed. Integers are little endian,
two's complement. All arithmetic is exact; R is the rounding mode in the command's `rounding` field. A tensor
operand `t[d0,d1,d2,d3]` is an address, an element type and 4 byte strides; the extents are the command's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, ClassVar, Literal

from npuflow.base.errors import InternalError
from npuflow.base.registry import Registry
from npuflow.hw.command import Command
from npuflow.hw.elements import CODED, Role
from npuflow.hw.region import Region
from npuflow.hw.target import Target

OPCODES = Registry("opcodes", "npuflow.isa")

WORDS = 64
HEADER_WORDS = 10
WAIT_SLOTS = 16
ROUNDINGS = ("half_up", "half_even", "half_away", "truncate")
SPACES = ("DATA", "CONST")

Fields = Mapping[str, Any]
Access = Literal["", "read", "write", "sum"]      # sum: written, and read first where the command accumulates


@dataclass(frozen=True)
class Field:
    """`width`: how many 32-bit words; `signed`: two's complement; `enum`: names by value. Of an address in
    local memory, `access` says what is done there, and `optional` that it may be absent; of an element type,
    `role` says which it may be."""

    name: str
    width: int = 1
    signed: bool = False
    enum: tuple[str, ...] = ()
    access: Access = ""
    optional: bool = False
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """Cycles of a command alone on the machine: its latency, of a transfer before its bytes move."""

    issue: int = 0            # decode and issue
    setup: int = 0            # of a DMA engine
    rows: int = 0             # rows of a transfer beyond the first
    fill: int = 0             # fill and drain of the array
    reload: int = 0           # new weights or sums between array passes
    array: float = 0.0        # multiply-accumulates that were asked for, at the array's peak
    edge: float = 0.0         # the array's places that had nothing to do: rows, columns, positions, depthwise
    vector: int = 0           # the vector unit

    @property
    def total(self) -> int:
        known = self.issue + self.setup + self.rows + self.fill + self.reload + self.vector
        return known + round(self.array + self.edge)


class Opcode:
    """What an opcode states: its words, the bytes it touches, its cycles; a
    subclass's docstring is its meaning.

    What it computes is stated in npuflow.kernels.opcode, the base of all files of isa.
    """

    code: ClassVar[int]
    name: ClassVar[str]
    queue: ClassVar[Literal["LOAD", "STORE", "TENSOR", "VECTOR", "ANY"]]
    fields: ClassVar[tuple[Field, ...]]
    in_place: ClassVar[bool] = False      # element by element: the result may lie where an operand does
    copies: ClassVar[bool] = False        # moves bytes as they are, at any alignment
    # how whole tensors suit its kernels: the channels of a place side by side, or dimensions in their order
    layout: ClassVar[Literal["", "channels", "order"]] = ""
    any_strides: ClassVar[bool] = False   # its kernels are as fast in any layout
    fixed_dims: ClassVar[bool] = False    # each of its dimensions has a part of its own: none changes places

    def problems(self, f: Fields) -> Iterator[str]:
        """What is wrong with the fields, beyond what `npuflow.hw.check` says of the fields of all opcodes."""
        return iter(())

    def accesses(self, c: Command) -> Iterator[Region]:
        """Every region that a command reads or writes, inputs first."""
        raise NotImplementedError(f"{self.name}.accesses")

    def operations(self, c: Command) -> int:
        """Element operations of a command of the vector unit."""
        return prod(c.vector("dims"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        """Multiply-accumulates of a command of the array; bits of the operand that streams through it and of
        the one that it holds, and their type if they are floats, or what it holds is sparse or in blocks."""
        return 0, (0, 0, "")

    def external_rows(self, c: Command) -> tuple[int, int]:
        """Of a transfer over the bus: contiguous rows on the external side, and the bytes of each."""
        raise NotImplementedError(f"{self.name}.external_rows")

    @property
    def transfers(self) -> bool:
        """Whether it moves bytes over the bus."""
        return self.queue in ("LOAD", "STORE")

    def latency(self, c: Command, target: Target) -> Terms:
        """Cycles of a command on its engine."""
        cycles = ceil(self.operations(c) / target.compute.vector_lanes)
        return Terms(target.compute.command_cycles, vector=cycles)

    def pointers(self, *kinds: Access) -> tuple[str, ...]:
        """Names of the addresses that are accessed so."""
        return tuple(f.name for f in self.fields if f.access in kinds)


def element(name: str, role: Role) -> Field:
    """The element type of an operand."""
    return Field(f"{name}_type", enum=CODED, role=role)


def tensor(
    name: str, access: Access = "read", rank: int = 4, role: Role = "tensor", *, optional: bool = False
) -> tuple[Field, ...]:
    """A tensor operand: address, element type, byte strides."""
    strides = Field(f"{name}_strides", rank, signed=True)
    return (Field(name, access=access, optional=optional), element(name, role), strides)


def pointer(name: str, access: Access = "read", optional: bool = False) -> Field:
    """The address of a dense parameter."""
    return Field(name, access=access, optional=optional)


def numbers(text: str) -> tuple[Field, ...]:
    """'a b:4 c!' -> fields; `:n` a vector of n words, `!` signed."""
    out = []
    for word in text.split():
        signed = word.endswith("!")
        name, _, width = word.rstrip("!").partition(":")
        out.append(Field(name, int(width or 1), signed))
    return tuple(out)


ROUNDING = (Field("rounding", enum=ROUNDINGS),)
SUM = (Field("acc", access="sum"), element("acc", "sum"))
FLOAT_SUM = (Field("acc", access="sum"), element("acc", "float_sum"))
CLAMP = numbers("lo! hi!")
# Of results in floats: patterns of y's type. Comparisons with NaN are false, so that it stays.
BOUNDS = numbers("low! high!")
DMA = (
    Field("space", enum=SPACES),
    *numbers("external local element dims:6 external_strides:6! local_strides:6!"),
)


class _Known:
    """The opcodes of the files that the registry lists; made again when it has scanned again."""

    listed: ClassVar[object] = None
    by_name: ClassVar[Mapping[str, Opcode]] = {}
    by_code: ClassVar[Mapping[int, Opcode]] = {}


def opcodes() -> Mapping[str, Opcode]:
    """Every opcode by name."""
    if _Known.listed is not OPCODES.sources():
        found: list[Opcode] = sorted((entry() for entry in OPCODES.every().values()), key=lambda o: o.code)
        by_name, by_code = {o.name: o for o in found}, {o.code: o for o in found}
        if not len(found) == len(by_name) == len(by_code):
            raise InternalError("two opcodes have the same name or code", code="NF-INTERNAL-048")
        _Known.listed, _Known.by_name, _Known.by_code = OPCODES.sources(), by_name, by_code
    return _Known.by_name


def by_code(code: int) -> Opcode | None:
    """The opcode of a number, if there is one."""
    opcodes()
    return _Known.by_code.get(code)
