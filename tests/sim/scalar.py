"""The instruction set read aloud, one element at a time, in Python integers on byte arrays."""

from __future__ import annotations

import struct
from fractions import Fraction
from itertools import product
from math import floor, prod

from npuflow.hw.command import Command
from tests.sim.group_scalar import GroupReading

FORMATS = {
    "int8": "<b", "uint8": "<B", "int16": "<h", "uint16": "<H", "int32": "<i", "uint32": "<I", "int64": "<q",
}


class Fault(Exception):
    """An index outside a table."""


def rounded(value: Fraction, mode: str) -> int:
    down = floor(value)
    rest = value - down
    if mode == "truncate":
        return down if value >= 0 or rest == 0 else down + 1
    if rest != Fraction(1, 2):
        return down + (rest > Fraction(1, 2))
    return {"half_up": down + 1, "half_away": down + (value > 0), "half_even": down + down % 2}[mode]


class Scalar(GroupReading):
    def __init__(self, local: bytearray, data: bytearray, const: bytes) -> None:
        self.local, self.data, self.const = local, data, const

    def run(self, c: Command) -> None:
        getattr(self, c.opcode.lower())(c)

    # --- access
    def half(self, dtype: str, address: int, i: int) -> int:
        """Code i of 4 bits, counted from an address: an even one is the low half of its byte."""
        byte = self.local[address + i // 2]
        code = byte // 16 if i % 2 else byte % 16
        return code - 16 if dtype == "int4" and code >= 8 else code

    def stored(self, dtype: str, address: int, i: int) -> int:
        """Element i of four of which two are stored: both codes, then both places, of two bits."""
        bits = 8 if dtype.startswith("int8") else 4
        size = 2 * bits + 4
        last = (i // 4 + 1) * size
        whole = int.from_bytes(self.local[address : address + -(-last // 8)], "little") >> (last - size)
        found = 0
        for k in range(2):
            code, place = whole >> (k * bits) & ((1 << bits) - 1), whole >> (2 * bits + 2 * k) & 3
            code -= (code >= 1 << (bits - 1)) << bits
            found += code * (place == i % 4)
        return found

    def get(self, dtype: str, at: int) -> int:
        return struct.unpack_from(FORMATS[dtype], self.local, at)[0]

    def put(self, dtype: str, at: int, value: int) -> None:
        size = struct.calcsize(FORMATS[dtype])
        self.local[at : at + size] = (value % (1 << (8 * size))).to_bytes(size, "little")

    def tensor(self, c: Command, name: str):
        at, dtype, strides = c.number(name), c.text(f"{name}_type"), c.vector(f"{name}_strides")
        if dtype.endswith("int4"):
            return lambda *index: self.half(
                dtype, at, sum(i * s for i, s in zip(index, strides, strict=True))
            )
        if dtype.endswith("_2of4"):
            return lambda *index: self.stored(
                dtype, at, sum(i * s for i, s in zip(index, strides, strict=True))
            )
        return lambda *index: self.get(dtype, at + sum(i * s for i, s in zip(index, strides, strict=True)))

    def write(self, c: Command, index, value: int) -> None:
        at = c.number("y") + sum(i * s for i, s in zip(index, c.vector("y_strides"), strict=True))
        self.put(c.text("y_type"), at, value)

    def clamp(self, c: Command, index, value: int, lo=None, hi=None) -> None:
        lo, hi = (c.number("lo") if lo is None else lo), (c.number("hi") if hi is None else hi)
        self.write(c, index, min(max(value + (c.number("zero") if "zero" in c.fields else 0), lo), hi))

    def at(self, c: Command, name: str, dtype: str, i: int) -> int:
        if dtype.endswith("int4"):
            return self.half(dtype, c.number(name), i)
        if dtype.endswith("_2of4"):
            return self.stored(dtype, c.number(name), i)
        return self.get(dtype, c.number(name) + i * struct.calcsize(FORMATS[dtype]))

    def scale(self, c: Command, value: int, extra: int = 0) -> int:
        return rounded(Fraction(value) / Fraction(2) ** (c.number("shift") + extra), c.text("rounding"))

    def each(self, c: Command):
        return product(*map(range, c.vector("dims")))

    # --- data movement
    def load(self, c: Command) -> None:
        source = self.const if c.text("space") == "CONST" else self.data
        self.copy_bytes(c, source, "external", "external_strides", self.local, "local", "local_strides")

    def store(self, c: Command) -> None:
        self.copy_bytes(c, self.local, "local", "local_strides", self.data, "external", "external_strides")

    def copy(self, c: Command) -> None:
        self.copy_bytes(c, bytes(self.local), "x", "x_strides", self.local, "y", "y_strides")

    def copy_bytes(self, c, source, a, a_strides, sink, b, b_strides) -> None:
        n, dims, here, there = c.number("element"), c.vector("dims"), c.vector(a_strides), c.vector(b_strides)
        if here[-1] == there[-1] == n:  # elements side by side, here and there, are one longer element
            n, dims = n * dims[-1], (*dims[:-1], 1)
        for index in product(*map(range, dims)):
            p = c.number(a) + sum(i * s for i, s in zip(index, here, strict=True))
            q = c.number(b) + sum(i * s for i, s in zip(index, there, strict=True))
            sink[q : q + n] = source[p : p + n]

    def fill(self, c: Command) -> None:
        for index in self.each(c):
            self.write(c, index, c.number("value"))

    # --- sums
    def accumulate(self, c: Command, i: int, value: int) -> None:
        dtype = c.text("acc_type")
        at = c.number("acc") + i * struct.calcsize(FORMATS[dtype])
        self.put(dtype, at, value + (self.get(dtype, at) if c.number("accumulate") else 0))

    def zero(self, c: Command, name: str, i: int) -> int:
        return (
            c.number(f"{name}_zero")
            if c.pointer(f"{name}_zeros") is None
            else self.at(c, f"{name}_zeros", "int32", i)
        )

    def conv(self, c: Command) -> None:
        x, (_, channels, height, width) = self.tensor(c, "x"), c.vector("x_dims")
        (kh, kw), (sy, sx), (dy, dx) = c.vector("kernel"), c.vector("stride"), c.vector("dilation")
        (oy, ox), (iy, ix) = c.vector("origin"), c.vector("insert")
        out, groups = c.number("out_channels"), c.number("groups")
        per = channels // groups
        size = (c.number("batch"), out, c.number("out_height"), c.number("out_width"))
        for place, (n, o, py, px) in enumerate(product(*map(range, size))):
            total, g = 0, o // (out // groups)
            for k, i, j in product(range(per), range(kh), range(kw)):
                row, col = py * sy + i * dy + oy, px * sx + j * dx + ox
                if row % iy or col % ix or not (0 <= row // iy < height and 0 <= col // ix < width):
                    continue
                w = self.at(c, "w", c.text("w_type"), ((o * per + k) * kh + i) * kw + j)
                total += (x(n, g * per + k, row // iy, col // ix) - c.number("x_zero")) * (
                    w - self.zero(c, "w", o)
                )
            self.accumulate(c, place, total)

    def matmul(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        size = c.number("batch"), c.number("m"), c.number("n")
        for place, (s, i, j) in enumerate(product(*map(range, size))):
            total = sum(
                (a(s, i, k) - c.number("a_zero")) * (b(s, k, j) - self.zero(c, "b", j))
                for k in range(c.number("k"))
            )
            self.accumulate(c, place, total)

    def scaledconv(self, c: Command) -> None:
        channels, taps, (kh, kw) = c.vector("x_dims")[1], prod(c.vector("kernel")), c.vector("kernel")
        x, (_, _, height, width) = self.tensor(c, "x"), c.vector("x_dims")
        (sy, sx), (dy, dx) = c.vector("stride"), c.vector("dilation")
        (oy, ox), (iy, ix) = c.vector("origin"), c.vector("insert")
        size = (c.number("batch"), c.number("out_channels"), c.number("out_height"), c.number("out_width"))
        for place, (n, o, py, px) in enumerate(product(*map(range, size))):
            total = 0
            for k, i, j in product(range(channels), range(kh), range(kw)):
                row, col = py * sy + i * dy + oy, px * sx + j * dx + ox
                if row % iy or col % ix or not (0 <= row // iy < height and 0 <= col // ix < width):
                    continue
                w = self.at(c, "w", c.text("w_type"), (o * channels + k) * taps + i * kw + j)
                scale = self.at(c, "scales", c.text("scales_type"), k // c.number("group") * size[1] + o)
                value = x(n, k, row // iy, col // ix) - c.number("x_zero")
                total += scale * value * (w - self.zero(c, "w", k // c.number("group") * size[1] + o))
            self.accumulate(c, place, total)

    def scaledmatmul(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        size = c.number("batch"), c.number("m"), c.number("n")
        for place, (s, i, j) in enumerate(product(*map(range, size))):
            total = 0
            for k in range(c.number("k")):
                scale = self.at(c, "scales", c.text("scales_type"), k // c.number("group") * size[2] + j)
                zero = self.zero(c, "b", k // c.number("group") * size[2] + j)
                total += scale * (a(s, i, k) - c.number("a_zero")) * (b(s, k, j) - zero)
            self.accumulate(c, place, total)

    def requant(self, c: Command) -> None:
        def pick(name: str, dtype: str, otherwise: int, i: int) -> int:
            return otherwise if c.pointer(name) is None else self.at(c, name, dtype, i)

        for place, index in enumerate(self.each(c)):
            i = index[c.number("channel_axis")]
            acc = self.at(c, "acc", c.text("acc_type"), place)
            acc += pick("bias", c.text("bias_type"), 0, i) << c.number("bias_shift")
            value = self.scale(c, acc * pick("multipliers", "uint32", c.number("multiplier"), i))
            self.clamp(
                c,
                index,
                value,
                pick("los", "int32", c.number("lo"), i),
                pick("his", "int32", c.number("hi"), i),
            )

    def reduce(self, c: Command) -> None:
        x, (count, rows, inner) = self.tensor(c, "x"), c.vector("dims")
        dtype = c.text("acc_type")
        for place, (a, i) in enumerate(product(range(count), range(inner))):
            values = [x(a, r, i) - c.number("x_zero") for r in range(rows)]
            at = c.number("acc") + place * struct.calcsize(FORMATS[dtype])
            old = [self.get(dtype, at)] if c.number("accumulate") else []
            self.put(dtype, at, max(values + old) if c.number("maximum") else sum(values + old))

    # --- element by element
    def add(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        for i in self.each(c):
            value = (a(*i) - c.number("a_zero")) * c.number("a_multiplier")
            value += (b(*i) - c.number("b_zero")) * c.number("b_multiplier")
            self.clamp(c, i, self.scale(c, value))

    def absdifference(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        for i in self.each(c):
            value = (a(*i) - c.number("a_zero")) * c.number("a_multiplier")
            value += (b(*i) - c.number("b_zero")) * c.number("b_multiplier")
            self.clamp(c, i, self.scale(c, abs(value)))

    def mul(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        for i in self.each(c):
            value = (a(*i) - c.number("a_zero")) * (b(*i) - c.number("b_zero")) * c.number("multiplier")
            self.clamp(c, i, self.scale(c, value))

    def div(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        for i in self.each(c):
            p, q = a(*i) - c.number("a_zero"), b(*i) - c.number("b_zero")
            num = p * c.number("multiplier")
            if q == 0:
                value = (num > 0) * (1 << 40) - (num < 0) * (1 << 40)
            else:
                value = rounded(Fraction(num, q) / Fraction(2) ** c.number("shift"), c.text("rounding"))
            self.clamp(c, i, value)

    def minmax(self, c: Command) -> None:
        a, b = self.tensor(c, "a"), self.tensor(c, "b")
        for i in self.each(c):
            self.clamp(c, i, (max if c.number("maximum") else min)(a(*i), b(*i)))

    def prelu(self, c: Command) -> None:
        x, slope = self.tensor(c, "x"), self.tensor(c, "slope")
        for i in self.each(c):
            v = x(*i) - c.number("x_zero")
            if v >= 0:
                self.clamp(c, i, self.scale(c, v * c.number("multiplier")))
            else:
                value = v * (slope(*i) - c.number("slope_zero")) * c.number("negative")
                self.clamp(
                    c,
                    i,
                    rounded(Fraction(value) / Fraction(2) ** c.number("negative_shift"), c.text("rounding")),
                )

    def rescale(self, c: Command) -> None:
        x = self.tensor(c, "x")
        for i in self.each(c):
            self.clamp(c, i, self.scale(c, (x(*i) - c.number("x_zero")) * c.number("multiplier")))

    def lut(self, c: Command) -> None:
        x, s, entries = self.tensor(c, "x"), c.number("bits"), c.number("entries")

        def entry(i: int) -> int:
            if not 0 <= i < entries:
                raise Fault(f"LUT index {i}")
            return self.at(c, "table", "int32" if s else c.text("y_type"), i)

        for i in self.each(c):
            d = x(*i) - c.number("base")
            f = d % (1 << s)
            if s == 0:
                self.write(c, i, entry(d))
            else:
                t = s + c.number("fraction")
                self.clamp(
                    c, i, (entry(d >> s) * ((1 << s) - f) + entry((d >> s) + 1) * f + (1 << (t - 1))) >> t
                )

    # --- windows
    def window(self, c: Command, index):
        (kh, kw), (sy, sx), (dy, dx), (oy, ox) = (
            c.vector(n) for n in ("kernel", "stride", "dilation", "origin")
        )
        for i, j in product(range(kh), range(kw)):
            yield index[2] * sy + i * dy + oy, index[3] * sx + j * dx + ox

    def outputs(self, c: Command):
        return product(*map(range, (*c.vector("x_dims")[:2], c.number("out_height"), c.number("out_width"))))

    def maxpool(self, c: Command) -> None:
        x, (_, _, h, w) = self.tensor(c, "x"), c.vector("x_dims")
        for i in self.outputs(c):
            values = [x(i[0], i[1], r, q) for r, q in self.window(c, i) if 0 <= r < h and 0 <= q < w]
            self.clamp(c, i, max(values, default=c.number("lo")))

    def avgpool(self, c: Command) -> None:
        x, (_, _, h, w) = self.tensor(c, "x"), c.vector("x_dims")
        (ly, lx), (hy, hx) = c.vector("count_lo"), c.vector("count_hi")
        for i in self.outputs(c):
            places = list(self.window(c, i))
            total = sum(
                x(i[0], i[1], r, q) - c.number("x_zero") for r, q in places if 0 <= r < h and 0 <= q < w
            )
            count = sum(ly <= r < hy and lx <= q < hx for r, q in places)
            self.clamp(c, i, self.scale(c, total * self.at(c, "multipliers", "uint32", count)))

    def resize(self, c: Command) -> None:
        x, (_, _, h, w) = self.tensor(c, "x"), c.vector("x_dims")
        row = lambda i: [self.at(c, "rows", "int32", 4 * i + k) for k in range(4)]  # noqa: E731
        col = lambda i: [self.at(c, "columns", "int32", 4 * i + k) for k in range(4)]  # noqa: E731
        for i in self.outputs(c):
            r, q = row(i[2]), col(i[3])
            total = 0
            for a, b in product((0, 1), (0, 1)):
                p, s = r[a] + c.vector("origin")[0], q[b] + c.vector("origin")[1]
                if not (0 <= p < h and 0 <= s < w):
                    raise Fault("RESIZE")
                total += r[2 + a] * q[2 + b] * (x(i[0], i[1], p, s) - c.number("x_zero"))
            self.clamp(c, i, self.scale(c, total * c.number("multiplier"), 2 * c.number("weight_bits")))

    def softmax(self, c: Command) -> None:
        x, (count, rows, inner) = self.tensor(c, "x"), c.vector("dims")
        bits, two = c.number("low_bits"), c.pointer("high") is not None

        def entry(name: str, i: int, size: int) -> int:
            if not 0 <= i < size:
                raise Fault(f"SOFTMAX {name} {i}")
            return self.at(c, name, "uint32", i)

        for a, i in product(range(count), range(inner)):
            values = [x(a, r, i) for r in range(rows)]
            e = []
            for v in values:
                d = max(values) - v
                if two:
                    e.append(
                        entry("low", d % (1 << bits), 1 << bits)
                        * entry("high", d >> bits, c.number("entries"))
                        >> 15
                    )
                else:
                    e.append(entry("low", d, c.number("entries")))
            total = sum(e)
            if total <= 0:
                raise Fault("SOFTMAX sum")
            for r in range(rows):
                self.clamp(c, (a, r, i), (2 * e[r] * c.number("multiplier") + total) // (2 * total))

    # --- indices
    def row(self, c: Command, index: int) -> int:
        rows = c.number("entries")
        r = index + c.number("wrap") if index < 0 else index
        return r if 0 <= r < rows else rows - 1

    def gather(self, c: Command) -> None:
        x, index = self.tensor(c, "x"), self.tensor(c, "index")
        for a, j, i in self.each(c):
            self.write(c, (a, j, i), x(a, self.row(c, index(a, j, i)), i))

    def loadrows(self, c: Command) -> None:
        source, n = self.const if c.text("space") == "CONST" else self.data, c.number("element")
        for j, i in self.each(c):
            index = self.get(c.text("index_type"), c.number("index") + j * c.number("index_step"))
            at = c.number("external") + self.row(c, index) * c.number("row") + i * n
            to = c.number("y") + sum(k * s for k, s in zip((j, i), c.vector("y_strides"), strict=True))
            self.local[to : to + n] = source[at : at + n]

    def topk(self, c: Command) -> None:
        x, (outer, rows, inner) = self.tensor(c, "x"), c.vector("dims")
        sign, later = (-1 if c.number("maximum") else 1), (-1 if c.number("last") else 1)
        for a, i in product(range(outer), range(inner)):
            order = sorted(range(rows), key=lambda r: (sign * x(a, r, i), later * r))
            made = [(r, x(a, r, i)) for r in order[: c.number("count")]]
            for k, (r, value) in enumerate(made):
                if c.pointer("y") is not None:
                    self.write(c, (a, k, i), value)
                if c.pointer("at") is not None:
                    at = sum(p * s for p, s in zip((a, k, i), c.vector("at_strides"), strict=True))
                    self.put(c.text("at_type"), c.number("at") + at, r)
