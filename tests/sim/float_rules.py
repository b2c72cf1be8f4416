"""What cannot matter in the fields of commands on floats, as rules of equivalence."""

from __future__ import annotations

from math import isnan, prod

import numpy as np

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import decoded
from tests.sim.block_scalar import FORMATS
from tests.sim.equivalence import Fields, Tables, rule


@rule
def old_sums(opcode: str, f: Fields, tables: Tables) -> None:
    """Sums that go on from old ones begin with no bias; a maximum has no chunks."""
    if opcode in ("FCONV", "FMATMUL", "BCONV", "BMATMUL", "BPAIRS", "FGROUPMATMUL") and f["accumulate"]:
        f["bias"] = NONE
    if opcode == "FREDUCE":
        f["axes"] &= sum(1 << i for i, d in enumerate(f["dims"]) if d > 1)
        if not f["axes"] and not f["accumulate"]:  # of one number each the maximum is the sum
            f["maximum"] = 0
        f["chunk"] = 1 if f["maximum"] else f["chunk"]


@rule
def one_block(opcode: str, f: Fields, tables: Tables) -> None:
    """A single block in each direction has no order."""
    if opcode == "BMATMUL" and (f["n"] == 1 or f["k"] <= FORMATS[f["b_type"]].size):
        f["columns"] = 0


@rule
def whole_chunk(opcode: str, f: Fields, tables: Tables) -> None:
    """A chunk of more terms than there are is a chunk of them all, and an exact sum has no order;
    nor has a window of one place blocks."""
    if "chunk" not in f:
        return
    terms = _terms(opcode, f)
    f["chunk"] = min(f["chunk"], terms)
    # two numbers that float32 holds: rounded once, whether they meet in a chunk or behind it
    fresh = not f.get("accumulate") and f.get("bias", NONE) == NONE
    held = f["x_type" if "x_type" in f else "a_type"] == "float16" or opcode in ("FREDUCE", "FSOFTMAX")
    if terms <= 2 and fresh and held:
        f["chunk"] = terms
    if opcode == "FCONV":
        per, taps = f["x_dims"][1] // f["groups"], f["taps"]
        # what the order comes to: the same of one channel gathered and of none, whatever the block is
        index = np.arange(terms).reshape(per // taps, -1)
        order = [index[b : b + f["block"]].T.reshape(-1) for b in range(0, len(index), f["block"])]
        f["block"] = f["taps"] = 0 if f["chunk"] == terms else tuple(np.concatenate(order).tolist())


def _terms(opcode: str, f: Fields) -> int:
    """Of one sum."""
    if opcode == "FCONV":
        return f["x_dims"][1] // f["groups"] * prod(f["kernel"])
    if opcode == "FREDUCE":
        return prod(d for i, d in enumerate(f["dims"]) if f["axes"] >> i & 1)
    return f["k"] if opcode in ("FMATMUL", "FGROUPMATMUL") else f["dims"][1]


def _numbers(f: Fields, name: str, tables: Tables) -> np.ndarray | None:
    """A bound, or those of all channels; None: not known."""
    if f.get(f"{name}s", NONE) == NONE:
        return decoded(np.array([f[name]]), f["y_type"])
    body, count = tables.get(f[f"{name}s"], b""), f["dims"][f["channel_axis"]]
    return decoded(np.frombuffer(body, "<u2"), f["y_type"]) if len(body) == 2 * count else None


@rule
def open_bounds(opcode: str, f: Fields, tables: Tables) -> None:
    """Nothing is beyond infinity or NaN; where the lower bound is above the upper one, the upper is
    the answer."""
    if "low" not in f or ELEMENTS.get(f["y_type"], ELEMENTS["int8"]).kind != "float":
        return
    lows, highs = (_numbers(f, name, tables) for name in ("low", "high"))
    low, high = (
        None if f.get(f"{name}s", NONE) != NONE else float(decoded(f[name], f["y_type"]))
        for name in ("low", "high")
    )
    if lows is not None and highs is not None and (lows > highs).all():
        f["low"], f["lows"] = "above", NONE
        if "divisor" in f:
            f["divisor"] = 1
    elif low is not None and (isnan(low) or low == float("-inf")):
        f["low"] = "open"
    if high is not None and (isnan(high) or high == float("inf")):
        f["high"] = "open"
    if opcode == "FPOOL" and f["maximum"] and f["low"] == "open" and not any(map(any, f["windows"])):
        f["high"] = "open"  # -infinity everywhere
