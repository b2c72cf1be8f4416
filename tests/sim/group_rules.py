"""What cannot matter in the fields of commands with weights in groups of float16 scales, as rules of
equivalence."""

from __future__ import annotations

from math import gcd, isfinite, isnan

from npuflow.hw.elements import ELEMENTS
from tests.sim.equivalence import RULES, Fields, Tables
from tests.sim.float_numbers import pattern
from tests.sim.group_scalar import exact, group_size, whole

FIELDS = ("b", "b_type", "zero", "group", "offset")
NAMES = ("GROUPMATMUL", "FGROUPMATMUL")


def group_rule(opcode: str, f: Fields, tables: Tables) -> None:
    """Only the weights matter, not how they lie in memory: of integers modulo 2^bits of the accumulator,
    of floats as they are rounded. A zero point of a enters a sum as a multiple of the sum of its column.
    Where every column of floats has a NaN, all sums are NaN; without weights, sums of integers are what
    they were."""
    if opcode not in NAMES or f["group"] < 1 or f["group"] * ELEMENTS[f["b_type"]].bits % 8:
        return
    count, size = -(-f["k"] // f["group"]), group_size(f)
    raw = _held(tables, f["b"], f["n"] * count * size)
    if raw is None:
        return
    read = whole if opcode == "GROUPMATMUL" else exact
    found = []
    for j in range(f["n"]):
        groups = [raw[(j * count + g) * size : (j * count + g + 1) * size] for g in range(count)]
        found.append([read(f, groups[k // f["group"]], k % f["group"]) for k in range(f["k"])])
    for name in FIELDS:
        del f[name]
    made = f["batch"] * f["m"] * f["n"]
    if opcode == "GROUPMATMUL":
        modulus = 1 << ELEMENTS[f["acc_type"]].bits
        f["weights"] = tuple(tuple(w % modulus for w in column) for column in found)
        f["a_zero"] %= modulus // gcd(modulus, *(sum(column) for column in found))
        if not any(map(any, f["weights"])):
            kept = {n: f[n] for n in ("acc", "acc_type", "accumulate")}
            f.clear()
            f.update(kept, made=made, constant=0)
        return
    f["weights"] = tuple(tuple(_rounded(w, f["a_type"]) for w in column) for column in found)
    if all(any(isinstance(w, float) and isnan(w) for w in column) for column in found):
        kept = {"acc": f["acc"], "acc_type": f["acc_type"], "made": made, "constant": "NaN"}
        f.clear()
        f.update(kept)


def _rounded(weight: object, kind: str) -> object:
    if isinstance(weight, float) and not isfinite(weight):
        return str(weight)
    return 0 if not weight else pattern(weight, kind)      # the sign of a zero is lost in sums


def _held(tables: Tables, at: int, size: int) -> bytes | None:
    for start, body in tables.items():
        if start <= at and at + size <= start + len(body):
            return body[at - start : at - start + size]
    return None


RULES.insert(0, group_rule)                # before one that takes more terms than there are for all of them
