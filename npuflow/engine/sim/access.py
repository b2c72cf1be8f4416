"""Which bytes every command reads and writes: the regions that bounds, hazards and data flow are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from npuflow.hw.encode import Command
from npuflow.hw.isa import NIBBLES

# bytes of an element; of a code of 4 bits those it takes where it does not share one
SIZES = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "int4": 1, "uint4": 1}
LOCAL, DATA, CONST = "LOCAL", "DATA", "CONST"


@dataclass(frozen=True, slots=True)
class Region:
    """A strided box of bytes: `size` bytes at address + sum(i * strides) for i < dims. `name` is the operand's."""

    name: str
    space: str
    write: bool
    address: int
    size: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """First byte, and one past the last."""
        lo = hi = self.address
        for d, s in zip(self.dims, self.strides, strict=True):
            reach = (d - 1) * s
            lo, hi = lo + min(reach, 0), hi + max(reach, 0)
        return lo, hi + self.size

    @property
    def aligned(self) -> bool:
        return self.address % self.size == 0 and all(s % self.size == 0 for s in self.strides)

    @property
    def distinct(self) -> bool:
        """No byte belongs to two elements, as far as nesting the dimensions can show."""
        reach = self.size
        for stride, d in sorted((abs(s), d) for d, s in zip(self.dims, self.strides, strict=True) if d > 1):
            if stride < reach:
                return False
            reach = stride * (d - 1) + reach
        return True

    def squeezed(self) -> Region:
        """The same bytes with as few dimensions as possible: runs of bytes merged, broadcasts dropped, strides positive."""
        address = self.address
        dims = []
        for d, s in zip(self.dims, self.strides, strict=True):
            if d > 1 and s:
                address += (d - 1) * s if s < 0 else 0
                dims.append((abs(s), d))
        size = self.size
        rest: list[tuple[int, int]] = []
        for s, d in sorted(dims):
            if s <= size and not rest:
                size = s * (d - 1) + size
            elif rest and s == rest[-1][0] * rest[-1][1]:
                rest[-1] = (rest[-1][0], rest[-1][1] * d)
            else:
                rest.append((s, d))
        rest.reverse()
        return Region(
            self.name, self.space, self.write, address, size, tuple(d for _, d in rest), tuple(s for s, _ in rest)
        )


def regions(command: Command) -> tuple[Region, ...]:
    """Everything a command reads and writes, inputs first."""
    return tuple(_ACCESS[command.opcode](command))


def named(command: Command) -> tuple[Region, ...]:
    """All that a command names: `regions`, and the whole tile of a window operator, of which it may read less."""
    found = regions(command)
    return (*found, _tensor(command, "x", command.vector("x_dims"))) if "kernel" in command.fields else found


def dense(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """C-order byte strides."""
    strides = [size] * len(dims)
    for i in range(len(dims) - 2, -1, -1):
        strides[i] = strides[i + 1] * dims[i + 1]
    return tuple(strides)


def half_span(dims: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """First and last half byte of a strided box, counted from its address."""
    reach = [(d - 1) * s for d, s in zip(dims, strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)


def touched(extent: int, out: int, kernel: int, stride: int, dilation: int, origin: int, insert: int = 1) -> tuple[int, int]:
    """First and one past the last coordinate of a tile dimension that a window operator reads ((0, 0): none)."""
    lo = min(max(-(-origin // insert), 0), extent)
    last = origin + (out - 1) * stride + (kernel - 1) * dilation
    return lo, max(lo, min(last // insert + 1, extent))


def _tensor(c: Command, name: str, dims: tuple[int, ...], write: bool = False) -> Region:
    size = SIZES[c.text(f"{name}_type")]
    return Region(name, LOCAL, write, c.number(name), size, dims, c.vector(f"{name}_strides"))


def _flat(c: Command, name: str, count: int, size: int) -> Iterator[Region]:
    at = c.pointer(name)
    if at is not None:
        yield Region(name, LOCAL, False, at, size, (count,), (size,))


def _acc(c: Command, dims: tuple[int, ...], reads: bool, write: bool = True) -> Iterator[Region]:
    size = SIZES[c.text("acc_type")]
    if reads:
        yield Region("acc", LOCAL, False, c.number("acc"), size, dims, dense(dims, size))
    if write:
        yield Region("acc", LOCAL, True, c.number("acc"), size, dims, dense(dims, size))


def _load(c: Command) -> Iterator[Region]:
    dims, size = c.vector("dims"), c.number("element")
    yield Region("external", c.text("space"), False, c.number("external"), size, dims, c.vector("external_strides"))
    yield Region("local", LOCAL, True, c.number("local"), size, dims, c.vector("local_strides"))


def _store(c: Command) -> Iterator[Region]:
    dims, size = c.vector("dims"), c.number("element")
    yield Region("local", LOCAL, False, c.number("local"), size, dims, c.vector("local_strides"))
    yield Region("external", c.text("space"), True, c.number("external"), size, dims, c.vector("external_strides"))


def source(c: Command) -> tuple[object, ...]:
    """What a LOAD reads, and in which order: the same for all cores that share it."""
    return tuple(c.fields[name] for name in ("space", "external", "element", "dims", "external_strides"))


def _copy(c: Command) -> Iterator[Region]:
    dims, size = c.vector("dims"), c.number("element")
    yield Region("x", LOCAL, False, c.number("x"), size, dims, c.vector("x_strides"))
    yield Region("y", LOCAL, True, c.number("y"), size, dims, c.vector("y_strides"))


def _window(c: Command) -> Iterator[Region]:
    """The rows and columns of x that a window reads."""
    dims, strides = c.vector("x_dims"), c.vector("x_strides")
    size = SIZES[c.text("x_type")]
    insert = c.vector("insert") if "insert" in c.fields else (1, 1)
    address, extents = c.number("x"), list(dims)
    for i, out in enumerate((c.number("out_height"), c.number("out_width"))):
        kernel, stride, dilation, origin = (c.vector(name)[i] for name in ("kernel", "stride", "dilation", "origin"))
        lo, hi = touched(dims[2 + i], out, kernel, stride, dilation, origin, insert[i])
        address += lo * strides[2 + i]
        extents[2 + i] = hi - lo
    if prod(extents):
        yield Region("x", LOCAL, False, address, size, tuple(extents), strides)


def _conv(c: Command) -> Iterator[Region]:
    yield from _window(c)
    out = c.number("out_channels")
    count = out * (c.vector("x_dims")[1] // c.number("groups")) * prod(c.vector("kernel"))
    if c.text("w_type") in NIBBLES:
        yield from _flat(c, "w", -(-count // 2), 1)
    else:
        yield from _flat(c, "w", count, SIZES[c.text("w_type")])
    yield from _flat(c, "w_zeros", out, 4)
    yield from _acc(c, (c.number("batch"), out, c.number("out_height"), c.number("out_width")), bool(c.number("accumulate")))


def _matmul(c: Command) -> Iterator[Region]:
    batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
    yield _tensor(c, "a", (batch, m, k))
    if c.text("b_type") in NIBBLES:
        first, last = half_span((batch, k, n), c.vector("b_strides"))
        yield Region("b", LOCAL, False, c.number("b") + first // 2, 1, (last // 2 - first // 2 + 1,), (1,))
    else:
        yield _tensor(c, "b", (batch, k, n))
    yield from _flat(c, "b_zeros", n, 4)
    yield from _acc(c, (batch, m, n), bool(c.number("accumulate")))


def _requant(c: Command) -> Iterator[Region]:
    dims = c.vector("dims")
    channels = dims[c.number("channel_axis")]
    yield from _acc(c, dims, True, False)
    yield from _flat(c, "bias", channels, SIZES[c.text("bias_type")])
    for name in ("multipliers", "los", "his"):
        yield from _flat(c, name, channels, 4)
    yield _tensor(c, "y", dims, True)


def _elementwise(*inputs: str) -> Callable[[Command], Iterator[Region]]:
    def found(c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        for name in inputs:
            yield _tensor(c, name, dims)
        if c.opcode == "LUT":
            yield from _flat(c, "table", c.number("entries"), 4 if c.number("bits") else SIZES[c.text("y_type")])
        yield _tensor(c, "y", dims, True)

    return found


def _pool(c: Command) -> Iterator[Region]:
    yield from _window(c)
    if c.opcode == "AVGPOOL":
        yield from _flat(c, "multipliers", prod(c.vector("kernel")) + 1, 4)
    dims = c.vector("x_dims")
    yield _tensor(c, "y", (dims[0], dims[1], c.number("out_height"), c.number("out_width")), True)


def _reduce(c: Command) -> Iterator[Region]:
    dims = c.vector("dims")
    yield _tensor(c, "x", dims)
    yield from _acc(c, (dims[0], dims[2]), bool(c.number("accumulate")))


def _softmax(c: Command) -> Iterator[Region]:
    dims = c.vector("dims")
    yield _tensor(c, "x", dims)
    two = c.pointer("high") is not None
    yield from _flat(c, "low", 1 << c.number("low_bits") if two else c.number("entries"), 4)
    yield from _flat(c, "high", c.number("entries"), 4)
    yield _tensor(c, "y", dims, True)


def _resize(c: Command) -> Iterator[Region]:
    dims = c.vector("x_dims")
    height, width = c.number("out_height"), c.number("out_width")
    yield _tensor(c, "x", dims)
    yield from _flat(c, "rows", height * 4, 4)
    yield from _flat(c, "columns", width * 4, 4)
    yield _tensor(c, "y", (dims[0], dims[1], height, width), True)


def _nothing(c: Command) -> Iterator[Region]:
    return iter(())


_ACCESS: dict[str, Callable[[Command], Iterator[Region]]] = {
    "LOAD": _load, "STORE": _store, "FILL": _elementwise(), "CONV": _conv, "MATMUL": _matmul, "REQUANT": _requant,
    "ADD": _elementwise("a", "b"), "MUL": _elementwise("a", "b"), "DIV": _elementwise("a", "b"),
    "MINMAX": _elementwise("a", "b"), "PRELU": _elementwise("x", "slope"), "RESCALE": _elementwise("x"),
    "MAXPOOL": _pool, "AVGPOOL": _pool, "REDUCE": _reduce, "LUT": _elementwise("x"), "SOFTMAX": _softmax,
    "RESIZE": _resize, "COPY": _copy, "BARRIER": _nothing,
}  # fmt: skip
