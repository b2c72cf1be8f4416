"""Proofs that two commands do the same: for each rule, what cannot matter is taken out of the
fields before they are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from npuflow.hw.command import NONE, Command
from npuflow.hw.elements import ELEMENTS

Fields = dict[str, Any]
Tables = Mapping[int, bytes]         # what constant operands hold, by their address in local memory
PER_CHANNEL = ("bias", "multipliers", "los", "his", "lows", "highs")
Rule = Callable[[str, Fields, Tables], None]
RULES: list[Rule] = []
TABLES = (
    ("w_zeros", "w_zero"),
    ("b_zeros", "b_zero"),
    ("multipliers", "multiplier"),
    ("los", "lo"),
    ("his", "hi"),
    ("lows", "low"),
    ("highs", "high"),
)


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def equivalent(a: Command, b: Command, tables: Tables) -> bool:
    """Whether the rules prove that the commands mean the same. What the node index names is not judged."""
    same = (a.opcode, a.queue, a.core) == (b.opcode, b.queue, b.core)
    return same and tuple(a.wait) == tuple(b.wait) and meaning(a, tables) == meaning(b, tables)


def meaning(c: Command, tables: Tables) -> Fields:
    """The fields with everything taken out that the rules prove to be without effect."""
    fields = dict(c.fields)
    for apply in RULES:
        apply(c.opcode, fields, tables)
    return fields


@rule
def unit_axes(opcode: str, f: Fields, tables: Tables) -> None:
    """The step along an axis of one element is never taken, whatever it is."""
    for name, extents in _extents(opcode, f).items():
        f[name] = tuple(0 if d == 1 else s for s, d in zip(f[name], extents, strict=True))


@rule
def one_run(opcode: str, f: Fields, tables: Tables) -> None:
    """A copy of bytes is the set of (source, destination) pairs: axes and elements of runs that
    both sides join are one run."""
    sides = {"LOAD": ("external", "local"), "STORE": ("external", "local"), "COPY": ("x", "y")}.get(opcode)
    if sides is None:
        return
    runs: list[tuple[int, tuple[int, int]]] = [(f["element"], (1, 1))]
    steps = zip(*(f[f"{side}_strides"] for side in sides), strict=True)
    for extent, step in sorted(zip(f["dims"], steps, strict=True), key=lambda pair: abs(pair[1][0])):
        last, before = runs[-1]
        if extent == 1:
            continue
        if step == (last * before[0], last * before[1]):
            runs[-1] = (last * extent, before)
        else:
            runs.append((extent, step))
    f["dims"], f["element"] = tuple(runs), 0
    for side in sides:
        f.pop(f"{side}_strides")


@rule
def shadowed(opcode: str, f: Fields, tables: Tables) -> None:
    """Where a table is present, the single number that stands in for an absent one is not read."""
    for pointer, number in TABLES:
        if pointer in f and number in f and f[pointer] != NONE:
            f[number] = 0


@rule
def absent_bias(opcode: str, f: Fields, tables: Tables) -> None:
    """Without a bias, its type and its shift are not read; without any table per
    channel, the channel axis is not."""
    if f.get("bias") == NONE:
        f["bias_type"] = f["bias_shift"] = 0
    if "channel_axis" in f and all(f.get(n, NONE) == NONE for n in PER_CHANNEL):
        f["channel_axis"] = 0


@rule
def whole_group(opcode: str, f: Fields, tables: Tables) -> None:
    """A group of more terms than there are is a group of them all."""
    if "group" in f:
        f["group"] = min(f["group"], f["k"] if "k" in f else f["x_dims"][1])


@rule
def one_channel(opcode: str, f: Fields, tables: Tables) -> None:
    """Where the channel axis has one element, every axis of one element serves as it."""
    if "channel_axis" in f and f["dims"][f["channel_axis"]] == 1:
        f["channel_axis"] = f["dims"].index(1)


@rule
def windows(opcode: str, f: Fields, tables: Tables) -> None:
    """Kernel, stride, dilation, origin and insertion only say which row and column of the
    tile each place reads, or none.

    A maximum does not ask which place of the window a number was in, an average only
    how many places count."""
    if "kernel" not in f:
        return
    read, counts = [], []
    for axis, out in enumerate((f["out_height"], f["out_width"])):
        step, insert = f["stride"][axis], f.get("insert", (1, 1))[axis]
        at = (
            np.arange(out)[:, None] * step
            + np.arange(f["kernel"][axis]) * f["dilation"][axis]
            + f["origin"][axis]
        )
        inside = (at >= 0) & (at % insert == 0) & (at // insert < f["x_dims"][2 + axis])
        read.append(np.where(inside, at // insert, -1))
        if "count_lo" in f:
            counts.append(((at >= f["count_lo"][axis]) & (at < f["count_hi"][axis])).sum(1).tolist())
    # then no window has a place in the tile, whatever the other axis says
    if not all((r >= 0).any() for r in read):
        read, f["x"], f["x_strides"] = [np.full_like(r, -1) for r in read], 0, (0, 0, 0, 0)
    used = [np.unique(r[r >= 0]).tolist() for r in read]
    f["x_strides"] = (
        *f["x_strides"][:2],
        *(s if u[-1:] > [0] else 0 for s, u in zip(f["x_strides"][2:], used, strict=True)),
    )
    f["x_dims"] = f["x_dims"][:2]
    places = [r.tolist() for r in read]
    f["windows"] = (
        places if "w" in f else [[sorted(p for p in row if p >= 0) for row in rows] for rows in places]
    )
    if opcode == "MAXPOOL" or f.get("maximum"):
        f["windows"] = [[sorted(set(row)) for row in rows] for rows in f["windows"]]
    # where a window is empty, 0 is multiplied by whatever the count chooses; in floats it is divided by it
    if counts and not f.get("maximum"):
        none = 1 if opcode == "FPOOL" else -1
        places = f["windows"]
        f["counts"] = [
            [n if rows else min(n, none) for n, rows in zip(counts[d], places[d], strict=True)]
            for d in (0, 1)
        ]
    for name in ("stride", "dilation", "origin", "insert", "count_lo", "count_hi"):
        f.pop(name, None)
    if "w" not in f:
        f.pop("kernel")


@rule
def one_side(opcode: str, f: Fields, tables: Tables) -> None:
    """Where no code of x lies below the zero point, PRELU never reads its slope; where none lies above, never
    `multiplier`. Where a whole side lies beyond a bound, the bound is what it gives."""
    if opcode != "PRELU":
        return
    above, below = _sides(f)
    if f["x_zero"] >= ELEMENTS[f["x_type"]].range[1] or above[0] >= f["hi"] or above[1] <= f["lo"]:
        f["above"] = f["hi"] if above[0] >= f["hi"] else f["lo"] if above[1] <= f["lo"] else f["zero"]
        f["multiplier"], f["shift"] = 0, -1
    if f["x_zero"] <= ELEMENTS[f["x_type"]].range[0] or below[0] >= f["hi"] or below[1] <= f["lo"]:
        f["below"] = f["hi"] if below[0] >= f["hi"] else f["lo"] if below[1] <= f["lo"] else f["zero"]
        f["slope_strides"], f["slope_zero"], f["negative"], f["slope"], f["slope_type"] = (), 0, 0, 0, ""
        f["negative_shift"] = -1


@rule
def exact_quotients(opcode: str, f: Fields, tables: Tables) -> None:
    """A shift that is not to the right leaves nothing to round."""
    shift = max(f["shift"] + 2 * f.get("weight_bits", 0), f.get("negative_shift", 0)) if "shift" in f else 1
    if shift <= 0 and opcode != "DIV":
        f["rounding"] = ""


@rule
def unused_tables(opcode: str, f: Fields, tables: Tables) -> None:
    """One table of exponentials has no low bits; a table without interpolation has
    codes, which no clamp touches."""
    if opcode == "SOFTMAX" and f["high"] == NONE:
        f["low_bits"] = 0
    if opcode == "LUT" and not f["bits"]:
        f["lo"] = f["hi"] = 0


@rule
def long_enough(opcode: str, f: Fields, tables: Tables) -> None:
    """How long a table is, or how large a tile whose places a table names, only says which reads
    are faults: as long as every code finds its entry, and every entry of the table its place,
    more of them change nothing."""
    if opcode in ("LUT", "SOFTMAX"):
        lo, hi = ELEMENTS[f["x_type"]].range
        first, last = (lo - f["base"], hi - f["base"]) if opcode == "LUT" else (0, hi - lo)
        bits = f["bits"] if opcode == "LUT" else f["low_bits"] if f["high"] != NONE else 0
        most = (last >> bits) + (1 if opcode == "LUT" and bits else 0)
        if first >= 0 and f["entries"] > most:
            f["entries"] = most + 1
    if opcode in ("RESIZE", "FRESIZE") and all(len(tables.get(f[n], b"")) == 16 * f[out] for n, out in _AXES):
        places = [
            np.frombuffer(tables[f[n]], np.int32).reshape(-1, 4)[:, :2].astype(np.int64) for n, _ in _AXES
        ]
        read = [at + start for at, start in zip(places, f["origin"], strict=True)]
        if all((at >= 0).all() and (at < size).all() for at, size in zip(read, f["x_dims"][2:], strict=True)):
            f["x_dims"] = f["x_dims"][:2]
            steps = [s if at.any() else 0 for s, at in zip(f["x_strides"][2:], read, strict=True)]
            f["x_strides"] = (*f["x_strides"][:2], *steps)


@rule
def low_bytes(opcode: str, f: Fields, tables: Tables) -> None:
    """A result is written as its low bytes: whether its type has a sign changes none of them."""
    if "y_type" in f:
        f["y_type"] = f["y_type"].removeprefix("u")


@rule
def lone_barrier(opcode: str, f: Fields, tables: Tables) -> None:
    """A barrier of one core waits for nobody: its id is compared with nothing."""
    if opcode == "BARRIER" and f["mask"] & (f["mask"] - 1) == 0:
        f["id"] = 0


@rule
def lone_load(opcode: str, f: Fields, tables: Tables) -> None:
    """A multicast load of one core is a plain load."""
    if opcode == "LOAD" and f["mask"] & (f["mask"] - 1) == 0:
        f["mask"] = 0


@rule
def reachable(opcode: str, f: Fields, tables: Tables) -> None:
    """A bound that no result can reach clamps nothing; where every result lies beyond one
    bound, it alone is the answer.

    The results are bounded by the ranges of the containers, or by the tables where these are constant."""
    found = _results(opcode, f, tables)
    if found is None or f.get("los", NONE) != NONE or f.get("his", NONE) != NONE:
        return
    low, high = found
    if f["lo"] >= high or f["hi"] <= low or low == high:
        kept: Fields = {
            n: f[n]
            for n in ("y", "y_type", "y_strides", "dims", "x_dims", "out_height", "out_width")
            if n in f
        }
        answer = f["lo"] if f["lo"] >= high else f["hi"] if f["hi"] <= low else low
        f.clear()
        f.update(kept, constant=answer)
        return
    f["lo"], f["hi"] = max(f["lo"], low), min(f["hi"], high)


def _extents(opcode: str, f: Fields) -> dict[str, tuple[int, ...]]:
    """Every field of strides with the extents that it steps along."""
    if opcode in ("LOAD", "STORE"):
        return {"external_strides": f["dims"], "local_strides": f["dims"]}
    if opcode in ("MATMUL", "SCALEDMATMUL", "FMATMUL", "BPAIRS"):
        return {"a_strides": (f["batch"], f["m"], f["k"]), "b_strides": (f["batch"], f["k"], f["n"])}
    if opcode in ("BMATMUL", "GROUPMATMUL", "FGROUPMATMUL"):
        return {"a_strides": (f["batch"], f["m"], f["k"])}
    out = {n: f.get("dims") or f["x_dims"] for n in f if n.endswith("_strides")}
    if "out_height" in f and "y_strides" in out:
        out["y_strides"] = (*f["x_dims"][:2], f["out_height"], f["out_width"])
    return out


def span_of(f: Mapping[str, Any], name: str) -> tuple[int, int]:
    """What an operand less its zero point can be."""
    lo, hi = ELEMENTS[f[f"{name}_type"]].range
    return lo - f.get(f"{name}_zero", 0), hi - f.get(f"{name}_zero", 0)


_AXES = (("rows", "out_height"), ("columns", "out_width"))


def _results(opcode: str, f: Fields, tables: Tables) -> tuple[int, int] | None:
    """Between what the results lie before they are clamped, as far as the fields and
    tables show; None: not known."""
    span = partial(span_of, f)
    if opcode == "MAXPOOL":
        empty = not all(all(rows) for rows in f["windows"])  # such a window gives lo
        return min(f["lo"] if empty else span("x")[0], span("x")[0]), max(
            f["lo"] if empty else span("x")[1], span("x")[1]
        )
    if opcode == "MINMAX":
        a, b, choose = span("a"), span("b"), max if f["maximum"] else min
        return choose(a[0], b[0]), choose(a[1], b[1])
    if opcode == "SOFTMAX":
        least = f["multiplier"] if f["dims"][1] == 1 else 0
        return least + f["zero"], f["multiplier"] + f["zero"]
    if opcode in ("ADD", "ABSDIFFERENCE"):
        sides = [sorted(v * f[f"{n}_multiplier"] for v in span(n)) for n in "ab"]
        low, high = sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]
        return _rounded(f, *((low, high) if opcode == "ADD" else (max(low, -high, 0), max(-low, high))))
    if opcode == "MUL":
        corners = [a * b * f["multiplier"] for a in span("a") for b in span("b")]
        return _rounded(f, min(corners), max(corners))
    if opcode == "PRELU":
        above = (f["above"],) if "above" in f else _sides(f)[0]
        below = (f["below"],) if "below" in f else _sides(f)[1]
        return min(*above, *below), max(*above, *below)
    if opcode == "RESCALE":
        return _rounded(f, *(v * f["multiplier"] for v in span("x")))
    if opcode == "REQUANT":
        return _rounded(f, *_scaled(f, tables))
    if opcode == "AVGPOOL" and not (any(f["windows"][0]) and any(f["windows"][1])):
        return f["zero"], f["zero"]                  # no place of any window lies in the tile
    if opcode == "AVGPOOL" and f["multipliers"] in tables:
        factors = np.frombuffer(tables[f["multipliers"]], np.uint32).tolist()
        corners = [0]
        for rows, up in zip(f["windows"][0], f["counts"][0], strict=True):
            for columns, across in zip(f["windows"][1], f["counts"][1], strict=True):
                if rows and columns and up * across >= len(factors):
                    return None                      # the table has grown past what is known of it
                if rows and columns:
                    corners += [v * len(rows) * len(columns) * factors[up * across] for v in span("x")]
        return _rounded(f, min(corners), max(corners))
    if opcode == "RESIZE" and all(len(tables.get(f[n], b"")) == 16 * f[out] for n, out in _AXES):
        both = [
            np.abs(np.frombuffer(tables[f[n]], np.int32).reshape(-1, 4)[:, 2:].astype(np.int64))
            for n in ("rows", "columns")
        ]
        most = [int(w.sum(1).max()) for w in both]
        corners = [v * n * f["multiplier"] for v in span("x") for n in (0, most[0] * most[1])]
        return _rounded(f, min(corners), max(corners), 2 * f["weight_bits"])
    return None


def _sides(f: Fields) -> tuple[tuple[int, int], tuple[int, int]]:
    """Between what PRELU's results lie where x is not below its zero point, and where it
    is, before they are clamped."""
    (down, up), slopes = span_of(f, "x"), span_of(f, "slope") if f["slope_type"] else (0, 0)
    below = sorted(v * s * f["negative"] for v in (min(-1, down), -1) for s in slopes)
    return _rounded(f, 0, max(0, up) * f["multiplier"]), _rounded(
        {**f, "shift": f["negative_shift"]}, below[0], below[-1]
    )


def _scaled(f: Fields, tables: Tables) -> tuple[int, int]:
    """Between what REQUANT's scaled sums lie; of a table that is not known, anything that its type can be."""
    if f["bias"] == NONE:
        biases = [0]
    elif f["bias"] in tables:
        biases = np.frombuffer(tables[f["bias"]], f["bias_type"]).tolist()
    else:
        biases = list(ELEMENTS[f["bias_type"]].range)
    if f["multipliers"] == NONE:
        factors = [f["multiplier"]]
    else:
        known = tables.get(f["multipliers"])
        factors = [0, (1 << 32) - 1] if known is None else np.frombuffer(known, np.uint32).tolist()
    low, high = ELEMENTS[f["acc_type"]].range
    least, most = low + (min(biases) << f["bias_shift"]), high + (max(biases) << f["bias_shift"])
    return min(least * min(factors), least * max(factors)), max(most * min(factors), most * max(factors))


def _rounded(f: Fields, low: int, high: int, extra: int = 0) -> tuple[int, int]:
    """The integers next to both ends after the shift, and the zero point."""
    shift = f["shift"] + extra
    if shift <= 0:
        return (low << -shift) + f["zero"], (high << -shift) + f["zero"]
    return (low >> shift) + f["zero"], -(-high >> shift) + f["zero"]
