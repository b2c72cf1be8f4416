"""Which bytes every command reads and writes, and the regions that operands of a kind have in all opcodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import opcodes
from npuflow.hw.region import LOCAL, Region, dense


def regions(command: Command) -> tuple[Region, ...]:
    """Everything a command reads and writes, inputs first."""
    return tuple(opcodes()[command.opcode].accesses(command))


def named(command: Command) -> tuple[Region, ...]:
    """All that a command names: `regions`, and the whole tile of a window operator,
    of which it may read less."""
    found = regions(command)
    return (*found, tensor(command, "x", command.vector("x_dims"))) if "kernel" in command.fields else found


def packed(c: Command, name: str, first: int, last: int) -> Region:
    """The bytes of packed elements `first` to `last`, counted from an operand's address."""
    kind = ELEMENTS[c.text(f"{name}_type")]
    bits, whole = kind.memory_bits, kind.sparse[1] if kind.sparse is not None else 1
    first, last = first // whole * whole, -(-(last + 1) // whole) * whole - 1
    low, high = first * bits // 8, ((last + 1) * bits - 1) // 8
    return Region(name, LOCAL, False, c.number(name) + low, 1, (high - low + 1,), (1,))


def touched(
    extent: int, out: int, kernel: int, stride: int, dilation: int, origin: int, insert: int = 1
) -> tuple[int, int]:
    """First and one past the last coordinate of a tile dimension that a window
    operator reads ((0, 0): none)."""
    lo = min(max(-(-origin // insert), 0), extent)
    last = origin + (out - 1) * stride + (kernel - 1) * dilation
    return lo, max(lo, min(last // insert + 1, extent))


def tensor(c: Command, name: str, dims: tuple[int, ...], write: bool = False) -> Region:
    """A tensor operand with its own type and strides."""
    size = ELEMENTS[c.text(f"{name}_type")].bytes
    return Region(name, LOCAL, write, c.number(name), size, dims, c.vector(f"{name}_strides"))


def flat(c: Command, name: str, count: int, size: int) -> Iterator[Region]:
    """A dense parameter, if it is there."""
    at = c.pointer(name)
    if at is not None:
        yield Region(name, LOCAL, False, at, size, (count,), (size,))


def sums(c: Command, dims: tuple[int, ...], reads: bool, write: bool = True) -> Iterator[Region]:
    """The accumulator, dense over `dims`."""
    size = ELEMENTS[c.text("acc_type")].bytes
    if reads:
        yield Region("acc", LOCAL, False, c.number("acc"), size, dims, dense(dims, size))
    if write:
        yield Region("acc", LOCAL, True, c.number("acc"), size, dims, dense(dims, size))


def source(c: Command) -> tuple[object, ...]:
    """What a LOAD reads, and in which order: the same for all cores that share it."""
    return tuple(c.fields[name] for name in ("space", "external", "element", "dims", "external_strides"))


def window(c: Command) -> Iterator[Region]:
    """The rows and columns of x that a window reads."""
    dims, strides = c.vector("x_dims"), c.vector("x_strides")
    size = ELEMENTS[c.text("x_type")].bytes
    insert = c.vector("insert") if "insert" in c.fields else (1, 1)
    address, extents = c.number("x"), list(dims)
    for i, out in enumerate((c.number("out_height"), c.number("out_width"))):
        kernel, stride, dilation, origin = (
            c.vector(name)[i] for name in ("kernel", "stride", "dilation", "origin")
        )
        lo, hi = touched(dims[2 + i], out, kernel, stride, dilation, origin, insert[i])
        address += lo * strides[2 + i]
        extents[2 + i] = hi - lo
    if prod(extents):
        yield Region("x", LOCAL, False, address, size, tuple(extents), strides)



def convolved(c: Command, count: int, size: int) -> Iterator[Region]:
    """Of a convolution that sums in float32: its window, so many elements of weights of so many bytes, bias
    and sums."""
    out = c.number("out_channels")
    yield from window(c)
    yield from flat(c, "w", count, size)
    yield from flat(c, "bias", out, 4)
    made = (c.number("batch"), out, c.number("out_height"), c.number("out_width"))
    yield from sums(c, made, bool(c.number("accumulate")))


def multiplied(c: Command, weights: Iterable[Region]) -> Iterator[Region]:
    """Of a product of matrices that sums in float32, with the weights that it reads."""
    batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
    yield tensor(c, "a", (batch, m, k))
    yield from weights
    yield from flat(c, "bias", n, 4)
    yield from sums(c, (batch, m, n), bool(c.number("accumulate")))


def elementwise(c: Command, *inputs: str) -> Iterator[Region]:
    """Operands of the command's extents, and the result."""
    dims = c.vector("dims")
    for name in inputs:
        yield tensor(c, name, dims)
    yield tensor(c, "y", dims, True)


def pooled(c: Command) -> Region:
    """The result of an operator that looks through windows."""
    dims = c.vector("x_dims")
    return tensor(c, "y", (dims[0], dims[1], c.number("out_height"), c.number("out_width")), True)
