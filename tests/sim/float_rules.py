"""What cannot matter in the fields of commands on floats, as rules of equivalence."""

from __future__ import annotations

from math import isnan, prod

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import decoded
from tests.sim.equivalence import Fields, Tables, rule


@rule
def old_sums(opcode: str, f: Fields, tables: Tables) -> None:
    """Sums that go on from old ones begin with no bias; a maximum has no chunks."""
    if opcode in ("FCONV", "FMATMUL") and f["accumulate"]:
        f["bias"] = NONE
    if opcode == "FREDUCE":
        f["axes"] &= sum(1 << i for i, d in enumerate(f["dims"]) if d > 1)
        f["chunk"] = 1 if f["maximum"] else f["chunk"]


@rule
def whole_chunk(opcode: str, f: Fields, tables: Tables) -> None:
    """A chunk of more terms than there are is a chunk of them all, and an exact sum has no order;
    nor has a window of one place blocks."""
    if "chunk" not in f:
        return
    if opcode == "FCONV":
        per, taps = f["x_dims"][1] // f["groups"], prod(f["kernel"])
        f["chunk"], f["block"] = min(f["chunk"], per * taps), min(f["block"], per)
        if taps == 1 or f["chunk"] == per * taps:
            f["block"] = 1
    elif opcode == "FREDUCE":
        f["chunk"] = min(f["chunk"], prod(d for i, d in enumerate(f["dims"]) if f["axes"] >> i & 1))
    else:
        f["chunk"] = min(f["chunk"], f["k"] if opcode == "FMATMUL" else f["dims"][1])


@rule
def open_bounds(opcode: str, f: Fields, tables: Tables) -> None:
    """Nothing is beyond infinity or NaN; where the lower bound is above the upper one, the upper is
    the answer."""
    if "low" not in f or ELEMENTS.get(f["y_type"], ELEMENTS["int8"]).kind != "float":
        return
    low, high = (
        None if f.get(f"{name}s", NONE) != NONE else float(decoded(f[name], f["y_type"]))
        for name in ("low", "high")
    )
    if low is not None and high is not None and low > high:
        f["low"] = "above"
    elif low is not None and (isnan(low) or low == float("-inf")):
        f["low"] = "open"
    if high is not None and (isnan(high) or high == float("inf")):
        f["high"] = "open"
