"""The commands on floats read aloud, one element at a time: numbers are fractions, zeros with a sign,
infinities and NaN, and every rounding looks for the nearest pattern."""

from __future__ import annotations

import struct
from fractions import Fraction
from itertools import product
from math import exp, inf, isnan, nan

from npuflow.hw.command import Command
from tests.sim.block_scalar import FORMATS, encoded_block, read_block
from tests.sim.float_numbers import (
    EXPONENTS,
    Number,
    added,
    alone,
    decoded,
    number,
    over,
    pattern,
    single,
    times,
    total,
)
from tests.sim.group_scalar import exact
from tests.sim.scalar import FORMATS as INTEGERS
from tests.sim.scalar import Fault, Scalar


class FloatScalar(Scalar):
    def real(self, c: Command, name: str):
        read, kind = self.tensor(c, name), c.text(f"{name}_type")
        return lambda *index: decoded(read(*index) & 0xFFFF, kind)

    def tensor(self, c: Command, name: str):
        at, kind, strides = c.number(name), c.text(f"{name}_type"), c.vector(f"{name}_strides")
        form = "uint16" if kind in EXPONENTS else kind
        return lambda *index: self.get(form, at + sum(i * s for i, s in zip(index, strides, strict=True)))

    def write(self, c: Command, index, value: int) -> None:
        at = c.number("y") + sum(i * s for i, s in zip(index, c.vector("y_strides"), strict=True))
        kind = c.text("y_type")
        self.put("uint16" if kind in EXPONENTS else kind, at, value)

    def single_at(self, at: int) -> float:
        return struct.unpack_from("<f", self.local, at)[0]

    def keep(self, c: Command, i: int, value: float) -> None:
        at = c.number("acc") + 4 * i
        self.local[at : at + 4] = struct.pack("<I", 0x7FC00000) if isnan(value) else struct.pack("<f", value)

    def close(
        self, c: Command, index, value: Number, low: int | None = None, high: int | None = None
    ) -> None:
        kind = c.text("y_type")
        found = pattern(value, kind)
        for bound, sign in (
            (c.number("low") if low is None else low, 1),
            (c.number("high") if high is None else high, -1),
        ):
            if sign * decoded(found, kind) < sign * decoded(bound & 0xFFFF, kind):
                found = bound & 0xFFFF
        self.write(c, index, found)

    def start(self, c: Command, place: int, channel: int) -> float:
        if c.number("accumulate"):
            return self.single_at(c.number("acc") + 4 * place)
        bias = c.pointer("bias") if "bias" in c.fields else None
        return 0.0 if bias is None else self.single_at(bias + 4 * channel)

    def fconv(self, c: Command) -> None:
        x, (_, channels, height, width) = self.real(c, "x"), c.vector("x_dims")
        (kh, kw), (sy, sx), (dy, dx) = c.vector("kernel"), c.vector("stride"), c.vector("dilation")
        (oy, ox), (iy, ix) = c.vector("origin"), c.vector("insert")
        out, groups, block = c.number("out_channels"), c.number("groups"), c.number("block")
        per, kind, taps = channels // groups, c.text("w_type"), c.number("taps")
        size = (c.number("batch"), out, c.number("out_height"), c.number("out_width"))
        found = []
        for place, (n, o, py, px) in enumerate(product(*map(range, size))):
            terms, g = [], o // (out // groups)
            for first in range(0, per // taps, block):
                whole = range(first, min(first + block, per // taps))
                for t, i, j, channel in product(range(taps), range(kh), range(kw), whole):
                    k = channel * taps + t
                    row, col = py * sy + i * dy + oy, px * sx + j * dx + ox
                    inside = row % iy == 0 and col % ix == 0
                    row, col = row // iy, col // ix
                    value: Number = 0.0
                    if inside and 0 <= row < height and 0 <= col < width:
                        value = x(n, g * per + k, row, col)
                    at = c.number("w") + 2 * (((o * per + k) * kh + i) * kw + j)
                    terms.append(times(value, decoded(self.get("uint16", at), kind)))
            found.append(total(terms, c.number("chunk"), self.start(c, place, o)))
        for place, value in enumerate(found):
            self.keep(c, place, value)

    def fmatmul(self, c: Command) -> None:
        a, b = self.real(c, "a"), self.real(c, "b")
        sizes = (c.number("batch"), c.number("m"), c.number("n"))
        for place, (q, i, j) in enumerate(product(*map(range, sizes))):
            terms = [times(a(q, i, k), b(q, k, j)) for k in range(c.number("k"))]
            self.keep(c, place, total(terms, c.number("chunk"), self.start(c, place, j)))

    def fgroupmatmul(self, c: Command) -> None:
        a, kind, sizes = self.real(c, "a"), c.text("a_type"), [c.number(i) for i in ("batch", "m", "n")]
        for place, (q, i, j) in enumerate(product(*map(range, sizes))):
            terms = []
            for k in range(c.number("k")):
                weight = exact(c.fields, *self.group_at(c, j, k))
                held = weight if isinstance(weight, float) else weight or 0.0
                terms.append(times(a(q, i, k), decoded(pattern(held, kind), kind)))
            self.keep(c, place, total(terms, c.number("chunk"), self.start(c, place, j)))

    def block_at(self, at: int, kind: str, index: int) -> list[Number]:
        """The numbers of a block among others."""
        form = FORMATS[kind]
        size = (form.shared + form.size * form.bits) // 8
        raw = bytes(self.get("uint8", at + index * size + i) & 255 for i in range(size))
        return [v if isinstance(v, float) else v or 0.0 for v in read_block(raw, kind)]

    def taken(self, values: list[Number], kind: str) -> list[Number]:
        """Activations of one block as the array multiplies them."""
        size = FORMATS[kind].size
        filled = [*values, *[0.0] * (size - len(values))]
        if not FORMATS[kind].both:
            return filled
        made = read_block(encoded_block(filled, kind), kind)
        return [v if isinstance(v, float) else v or 0.0 for v in made]

    def bconv(self, c: Command) -> None:
        x, (_, channels, height, width) = self.real(c, "x"), c.vector("x_dims")
        (kh, kw), (sy, sx), (dy, dx) = c.vector("kernel"), c.vector("stride"), c.vector("dilation")
        (oy, ox), (iy, ix) = c.vector("origin"), c.vector("insert")
        out, groups, kind = c.number("out_channels"), c.number("groups"), c.text("w_type")
        per, size = channels // groups, FORMATS[kind].size
        firsts, found = range(0, per, size), []
        made = (c.number("batch"), out, c.number("out_height"), c.number("out_width"))
        for place, (n, o, py, px) in enumerate(product(*map(range, made))):
            terms, g = [], o // (out // groups)
            for b, (i, j) in product(range(len(firsts)), product(range(kh), range(kw))):
                row, col = py * sy + i * dy + oy, px * sx + j * dx + ox
                inside = row % iy == 0 and col % ix == 0
                row, col = row // iy, col // ix
                seen: list[Number] = []
                if inside and 0 <= row < height and 0 <= col < width:
                    seen = [x(n, g * per + k, row, col) for k in range(per)[firsts[b] : firsts[b] + size]]
                held = self.block_at(c.number("w"), kind, ((o * len(firsts) + b) * kh + i) * kw + j)
                terms += [times(u, v) for u, v in zip(self.taken(seen, kind), held, strict=True)]
            found.append(total(terms, size, self.start(c, place, o)))
        for place, value in enumerate(found):
            self.keep(c, place, value)

    def bmatmul(self, c: Command) -> None:
        a, kind, k, n = self.real(c, "a"), c.text("b_type"), c.number("k"), c.number("n")
        size = FORMATS[kind].size
        count = -(-k // size)
        for place, (q, i, j) in enumerate(product(range(c.number("batch")), range(c.number("m")), range(n))):
            terms = []
            for b in range(count):
                seen = [a(q, i, at) for at in range(k)[b * size : b * size + size]]
                index = j * count + b if c.number("columns") else b * n + j
                held = self.block_at(c.number("b"), kind, index)
                terms += [times(u, v) for u, v in zip(self.taken(seen, kind), held, strict=True)]
            self.keep(c, place, total(terms, size, self.start(c, place, j)))

    def bpairs(self, c: Command) -> None:
        a, b, kind, k = self.real(c, "a"), self.real(c, "b"), c.text("held_type"), c.number("k")
        size = FORMATS[kind].size
        sizes = (c.number("batch"), c.number("m"), c.number("n"))
        for place, (q, i, j) in enumerate(product(*map(range, sizes))):
            terms = []
            for first in range(0, k, size):
                some = range(k)[first : first + size]
                left, right = [a(q, i, at) for at in some], [b(q, at, j) for at in some]
                both = zip(self.taken(left, kind), self.taken(right, kind), strict=True)
                terms += [times(u, v) for u, v in both]
            self.keep(c, place, total(terms, size, self.start(c, place, j)))

    def fround(self, c: Command) -> None:
        for place, index in enumerate(self.each(c)):
            value = number(self.single_at(c.number("acc") + 4 * place))
            channel = index[c.number("channel_axis")]
            low, high = (
                None if c.pointer(name) is None else self.get("uint16", c.number(name) + 2 * channel)
                for name in ("lows", "highs")
            )
            self.close(c, index, over(value, Fraction(c.number("divisor"))), low, high)

    def ftopk(self, c: Command) -> None:
        x, held, (outer, rows, inner) = self.real(c, "x"), self.tensor(c, "x"), c.vector("dims")
        sign, later = (-1 if c.number("maximum") else 1), (-1 if c.number("last") else 1)
        for a, i in product(range(outer), range(inner)):
            def key(r, a=a, i=i):
                value = x(a, r, i)
                return (0, 0, later * r) if isnan(value) else (1, sign * value, later * r)

            for k, r in enumerate(sorted(range(rows), key=key)[: c.number("count")]):
                if c.pointer("y") is not None:
                    self.write(c, (a, k, i), held(a, r, i) & 0xFFFF)
                if c.pointer("at") is not None:
                    at = sum(p * s for p, s in zip((a, k, i), c.vector("at_strides"), strict=True))
                    self.put(c.text("at_type"), c.number("at") + at, r)

    def farith(self, c: Command) -> None:
        first, second, op = self.real(c, "a"), self.real(c, "b"), c.text("op")
        for index in self.each(c):
            a, b = first(*index), second(*index)
            either = isnan(a) or isnan(b)
            found = {
                "add": lambda a, b: added(a, b),
                "sub": lambda a, b: added(a, -b),
                "mul": times,
                "div": over,
                "min": lambda a, b, either=either: nan if either else a if a < b else b,
                "max": lambda a, b, either=either: nan if either else a if a > b else b,
                "prelu": lambda a, b: times(a, b) if a < 0 else a,
            }[op](a, b)
            self.close(c, index, found)

    def funary(self, c: Command) -> None:
        x, op = self.real(c, "x"), c.text("op")
        for index in self.each(c):
            self.close(c, index, alone(x(*index), op))

    def flut(self, c: Command) -> None:
        read, x, kind = self.tensor(c, "x"), self.real(c, "x"), c.text("y_type")
        for index in self.each(c):
            bits, value = read(*index) & 0xFFFF, x(*index)
            negative, size = bits >> 15, bits & 0x7FFF
            first, last = c.vector("first")[negative], c.vector("last")[negative]
            below, above = c.vector("below")[negative], c.vector("above")[negative]
            factor = below if size < first else above if size > last else 0
            if isinstance(value, float):
                place = 4 if isnan(value) else negative + (2 if value else 0)
            elif factor & 0x7FFFFFFF:
                scale = Fraction(struct.unpack("<f", struct.pack("<I", factor))[0])
                self.write(c, index, pattern(value * scale, kind))
                continue
            else:
                place = 5 + min(max(size, first), last) - first
                place += negative * (c.vector("last")[0] - c.vector("first")[0] + 1)
            self.write(c, index, self.get("uint16", c.number("table") + 2 * place) & 0xFFFF)

    def fcast(self, c: Command) -> None:
        factor = Fraction(struct.unpack("<f", struct.pack("<I", c.number("factor")))[0])
        coded = [c.text(f"{name}_type") in INTEGERS for name in "xy"]
        read, x = self.tensor(c, "x"), self.real(c, "x") if not coded[0] else None
        for index in self.each(c):
            if x is None:
                self.close(c, index, number(float(read(*index) - c.number("zero"))) * factor)
            elif not coded[1]:
                self.close(c, index, x(*index))
            else:
                value = x(*index)
                near = round(value * factor) if isinstance(value, Fraction) else value * 2**60
                near = 0 if isnan(near) else near
                near = int(max(min(near, 2**60), -(2**60))) + c.number("zero")
                self.write(c, index, min(max(near, c.number("low")), c.number("high")))

    def fpool(self, c: Command) -> None:
        x, (batch, channels, height, width) = self.real(c, "x"), c.vector("x_dims")
        (kh, kw), (sy, sx), (dy, dx) = c.vector("kernel"), c.vector("stride"), c.vector("dilation")
        (oy, ox), out = c.vector("origin"), (c.number("out_height"), c.number("out_width"))
        (low_y, low_x), (high_y, high_x) = c.vector("count_lo"), c.vector("count_hi")
        for n, ch, py, px in product(range(batch), range(channels), *map(range, out)):
            places = [(py * sy + i * dy + oy, px * sx + j * dx + ox) for i in range(kh) for j in range(kw)]
            seen = [x(n, ch, r, q) for r, q in places if 0 <= r < height and 0 <= q < width]
            if c.number("maximum"):
                best: Number = nan if any(map(isnan, seen)) else max(seen, default=-inf)
                self.close(c, (n, ch, py, px), best if isnan(best) or best else 0.0)
            else:
                count = sum(low_y <= r < high_y and low_x <= q < high_x for r, q in places)
                value = number(total(seen, max(len(seen), 1), 0.0))
                self.close(c, (n, ch, py, px), over(value, number(float(count))))

    def fresize(self, c: Command) -> None:
        x, (batch, channels, height, width) = self.real(c, "x"), c.vector("x_dims")
        unit = Fraction(1, 4 ** c.number("weight_bits"))
        size = (c.number("out_height"), c.number("out_width"))
        for n, ch, py, px in product(range(batch), range(channels), *map(range, size)):
            row, column = (
                [self.at(c, name, "int32", 4 * i + k) for k in range(4)]
                for name, i in (("rows", py), ("columns", px))
            )
            if max(map(abs, (*row[2:], *column[2:]))) > 1 << c.number("weight_bits"):
                raise Fault("FRESIZE")
            terms: list[Number] = []
            for i, j in product((0, 1), (0, 1)):
                r, q = row[i] + c.vector("origin")[0], column[j] + c.vector("origin")[1]
                if not (0 <= r < height and 0 <= q < width):
                    raise Fault("FRESIZE")
                if weight := row[2 + i] * column[2 + j]:
                    terms.append(times(x(n, ch, r, q), weight * unit))
            self.close(c, (n, ch, py, px), number(total(terms, 4, 0.0)))

    def freduce(self, c: Command) -> None:
        x, dims = self.real(c, "x"), c.vector("dims")
        gone = [bool(c.number("axes") >> d & 1) for d in range(4)]
        kept = product(*(range(1 if g else n) for g, n in zip(gone, dims, strict=True)))
        for place, at in enumerate(kept):
            inner = product(*(range(n if g else 1) for g, n in zip(gone, dims, strict=True)))
            terms = [x(*(a + b for a, b in zip(at, more, strict=True))) for more in inner]
            if not c.number("maximum"):
                self.keep(c, place, total(terms, c.number("chunk"), self.start(c, place, 0)))
                continue
            if c.number("accumulate"):
                terms.append(number(self.start(c, place, 0)))
            best = nan if any(map(isnan, terms)) else max(terms)
            self.keep(c, place, float(best) if isnan(best) or best else 0.0)

    def fsoftmax(self, c: Command) -> None:
        x, (outer, rows, inner), kind = self.real(c, "x"), c.vector("dims"), c.text("y_type")
        made = {}
        for a, i in product(range(outer), range(inner)):
            values = [x(a, r, i) for r in range(rows)]
            top = nan if any(map(isnan, values)) else max(values)
            exponentials = []
            for value in values:
                d = decoded(pattern(added(top, -value), kind), kind)
                exponentials.append(number(single(number(nan if isnan(d) else exp(-float(d))))))
            s = number(total(exponentials, c.number("chunk"), 0.0))
            for r, e in enumerate(exponentials):
                made[a, r, i] = pattern(over(e, s), kind)
        for index, found in made.items():
            self.write(c, index, found)
