"""Commands that scale, round and clamp, compared by the numbers at which their results
go from one code to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from npuflow.hw.command import NONE
from tests.sim.equivalence import span_of

Fields = Mapping[str, Any]
Tables = Mapping[int, bytes]         # what constant operands hold, by their address in local memory
Run = tuple[int, int]                # first and last of numbers that follow each other
FAR = 1 << 200


@dataclass(frozen=True)
class Steps:
    """code(p) = clamp(R((p + offset) * multiplier / 2^shift) + zero, lo, hi), which
    never falls as p grows."""

    multiplier: int
    shift: int
    rounding: str
    zero: int
    lo: int
    hi: int
    offset: int = 0

    def start(self, code: int) -> int:
        """The least p whose code is at least `code`."""
        if code <= self.lo:
            return -FAR
        if code > self.hi:
            return FAR
        k, m, n = code - self.zero, self.multiplier << max(0, -self.shift), max(0, self.shift)
        if m == 0:
            return FAR if k > 0 else -FAR
        if n == 0:
            top, beyond = k, False
        elif self.rounding == "truncate":
            top, beyond = (k << n, False) if k > 0 else ((k - 1) << n, True)
        else:                                    # the tie k - 1/2 becomes k, or stays below
            top = (2 * k - 1) << (n - 1)
            beyond = (self.rounding == "half_even" and k % 2 == 1) or (
                self.rounding == "half_away" and k <= 0
            )
        return (top // m + 1 if beyond else -(-top // m)) - self.offset


def parting(a: Steps, b: Steps, low: int, high: int) -> list[Run]:
    """All runs of numbers from `low` to `high` for which the codes differ."""
    runs = []
    for code in range(min(a.lo, b.lo), max(a.hi, b.hi) + 2):
        p, q = a.start(code), b.start(code)
        if p != q:
            first, last = max(low, min(p, q)), min(high, max(p, q) - 1)
            if first <= last:
                runs.append((first, last))
    return runs


@dataclass(frozen=True)
class Sum:
    """What one place of a result is scaled from: whole numbers, each times its weight, and
    the steps before and after."""

    place: tuple[int, ...]                    # of the result
    weights: Mapping[tuple[int, ...], int]    # by place of the operand
    before: Steps
    after: Steps


def sums(opcode: str, before: Fields, after: Fields, tables: Tables) -> list[Sum] | None:
    """The places of a result to look at; None if the two commands differ in more
    than how sums become codes."""
    make = {"REQUANT": _requant, "AVGPOOL": _avgpool, "RESIZE": _resize}.get(opcode)
    steps = {"multiplier", "shift", "rounding", "zero", "lo", "hi", "bias_shift", "weight_bits"}
    if make is None or any(before[n] != after[n] for n in before if n not in steps):
        return None
    return make(before, after, tables)


def _steps(
    f: Fields, multiplier: int, extra: int = 0, offset: int = 0, lo: int | None = None, hi: int | None = None
) -> Steps:
    low, high = (f["lo"] if lo is None else lo), (f["hi"] if hi is None else hi)
    return Steps(multiplier, f["shift"] + extra, f["rounding"], f["zero"], low, high, offset)


def _requant(before: Fields, after: Fields, tables: Tables) -> list[Sum] | None:
    """One place per channel: an accumulator may be any number."""
    axis, found = before["channel_axis"], []
    for c in range(before["dims"][axis]):
        pair = []
        for f in (before, after):
            held = {}
            for name, pointer, dtype in _PER_CHANNEL:
                if f[pointer] == NONE:
                    held[name] = 0 if name == "bias" else f[name]
                    continue
                values = np.frombuffer(
                    tables.get(f[pointer], b""), f["bias_type"] if pointer == "bias" else dtype
                )
                if c >= len(values):
                    return None
                held[name] = int(values[c])
            offset = held["bias"] << f["bias_shift"]
            pair.append(_steps(f, held["multiplier"], 0, offset, held["lo"], held["hi"]))
        place = tuple(c if d == axis else 0 for d in range(4))
        found.append(Sum(place, {place: 1}, *pair))
    return found


_PER_CHANNEL = (
    ("bias", "bias", ""),
    ("multiplier", "multipliers", "uint32"),
    ("lo", "los", "int32"),
    ("hi", "his", "int32"),
)


def _avgpool(before: Fields, after: Fields, tables: Tables) -> list[Sum] | None:
    """One place per number of places that count and places that the tile has."""
    factors = np.frombuffer(tables.get(before["multipliers"], b""), np.uint32).tolist()
    found: dict[tuple[int, int], Sum] = {}
    for oy in range(before["out_height"]):
        for ox in range(before["out_width"]):
            inside, counted = [], 1
            for axis, o in enumerate((oy, ox)):
                start, step = o * before["stride"][axis] + before["origin"][axis], before["dilation"][axis]
                at = [start + i * step for i in range(before["kernel"][axis])]
                inside.append([p for p in at if 0 <= p < before["x_dims"][2 + axis]])
                counted *= sum(before["count_lo"][axis] <= p < before["count_hi"][axis] for p in at)
            weights: dict[tuple[int, ...], int] = {(0, 0, y, x): 1 for y in inside[0] for x in inside[1]}
            if counted >= len(factors):
                return None
            pair = (_steps(f, factors[counted]) for f in (before, after))
            found.setdefault((counted, len(weights)), Sum((0, 0, oy, ox), weights, *pair))
    return list(found.values())


def _resize(before: Fields, after: Fields, tables: Tables) -> list[Sum] | None:
    """Every row by every column of the tables."""
    tabled = []
    for name, out in (("rows", "out_height"), ("columns", "out_width")):
        values = np.frombuffer(tables.get(before[name], b""), np.int32)
        if len(values) != 4 * before[out]:
            return None
        tabled.append(values.reshape(-1, 4).tolist())
    found = []
    for oy, row in enumerate(tabled[0]):
        for ox, column in enumerate(tabled[1]):
            weights: dict[tuple[int, ...], int] = {}
            for i in (0, 1):
                for j in (0, 1):
                    at = (0, 0, row[i] + before["origin"][0], column[j] + before["origin"][1])
                    weights[at] = weights.get(at, 0) + row[2 + i] * column[2 + j]
            pair = (_steps(f, f["multiplier"], 2 * f["weight_bits"]) for f in (before, after))
            found.append(Sum((0, 0, oy, ox), {p: w for p, w in weights.items() if w}, *pair))
    return found


def operands(
    one: Sum, span: Run, rng: np.random.Generator, tries: int = 60
) -> dict[tuple[int, ...], int] | bool | None:
    """Numbers within `span` whose weighted sum has different codes before and after; None: proved that there
    are none; False: none were found."""
    terms = sorted(one.weights.items(), key=lambda t: abs(t[1]))
    ends = [sorted((w * span[0], w * span[1])) for _, w in terms]
    runs = parting(one.before, one.after, sum(e[0] for e in ends), sum(e[1] for e in ends))
    step = gcd(*(w for _, w in terms)) if terms else 0
    runs = [r for r in runs if (r[1] // step * step >= r[0] if step else r[0] <= 0 <= r[1])]
    if not runs:
        return None
    if not terms:
        return {}
    if all(w == 1 for _, w in terms) or len(terms) == 1:     # every multiple of the one weight is some sum
        return _even(terms, span, -(-runs[0][0] // step) * step)
    for at in rng.integers(0, len(runs), tries):
        found = _mixed(terms, span, runs[int(at)], rng)
        if found is not None:
            return found
    return False


def _even(terms: Sequence[tuple[tuple[int, ...], int]], span: Run, total: int) -> dict[tuple[int, ...], int]:
    """Numbers as equal as possible that make the total."""
    weight, count = terms[0][1], len(terms)
    each, more = divmod(total // weight, count)
    return {place: each + (i < more) for i, (place, _) in enumerate(terms)}


def _mixed(
    terms: Sequence[tuple[tuple[int, ...], int]], span: Run, run: Run, rng: np.random.Generator
) -> dict[Any, int] | None:
    """All but two numbers at random, every one of the next, and the one of the least weight as it must be."""
    (least, w0), (next_, w1), *others = terms
    drawn = {place: int(rng.integers(span[0], span[1] + 1)) for place, _ in others}
    rest = sum(w * drawn[place] for place, w in others)
    every = np.arange(span[0], span[1] + 1)
    first, last = (end - rest - w1 * every for end in run)
    needed = -((-first) // w0) if w0 > 0 else -((-last) // w0)
    fits = (needed >= span[0]) & (needed <= span[1]) & (needed * w0 >= first) & (needed * w0 <= last)
    if not fits.any():
        return None
    i = int(rng.choice(np.flatnonzero(fits)))
    return {least: int(needed[i]), next_: int(every[i]), **drawn}


SCALES = {"multiplier", "negative", "shift", "negative_shift", "rounding", "zero", "lo", "hi"}


def alike(opcode: str, before: Fields, after: Fields) -> bool:
    """Whether two element-wise commands have the same code for every number that their
    operands can make, and more."""
    if any(before[n] != after[n] for n in before if n not in SCALES):
        return False
    if opcode == "MUL":
        corners = [a * b for a in span_of(before, "a") for b in span_of(before, "b")]
        sides = [("multiplier", "shift", min(corners), max(corners))]
    elif opcode == "PRELU":
        (down, up), slopes = span_of(before, "x"), span_of(before, "slope")
        corners = [v * s for v in (min(down, -1), -1) for s in slopes]
        sides = [
            ("multiplier", "shift", 0, max(up, 0)),
            ("negative", "negative_shift", min(corners), max(corners)),
        ]
    else:
        return False
    for multiplier, shift, low, high in sides:
        if (before[multiplier] < 0) != (after[multiplier] < 0):
            return False
        if before[multiplier] < 0:
            low, high = -high, -low
        a, b = (_steps({**f, "shift": f[shift]}, abs(f[multiplier])) for f in (before, after))
        if parting(a, b, low, high):
            return False
    return True
