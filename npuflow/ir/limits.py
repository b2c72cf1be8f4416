"""The numbers of a node that a target's rules speak of, and what the rules make of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.hw import limits
from npuflow.hw.target import Limits
from npuflow.ir.op import No, OpContext, Yes


def allowed(name: str, site: OpContext, target: Limits) -> Yes | No:
    """Whether a node satisfies every rule for its operator; a rule that names what the node
    has not does not hold for it."""
    mine = [r for r in target.rules if name in r.operators]
    if not mine:
        return Yes()
    numbers = numbers_of(site)
    for rule in mine:
        if not limits.variables(rule.need) | limits.variables(rule.when or "0") <= numbers.keys():
            continue
        if rule.when and limits.broken(rule.when, numbers):
            continue
        broken = limits.broken(rule.need, numbers)
        if broken:
            return No(broken + (f": {rule.about}" if rule.about else ""))
    return Yes()


def numbers_of(site: OpContext) -> dict[str, int]:
    """Every variable of rules that the node has."""
    y = site.out_shape
    found = {"rank": len(y), "elements": prod(y)}
    shapes = [v.type.shape if v is not None else () for v in site.inputs]
    x: Sequence[int] = shapes[0] if shapes else ()
    if y:
        found["batch"] = y[0]
    for side, shape in (("in", x), ("out", y)):
        if len(shape) > 1:
            found[f"{side}_channels"] = shape[1]
        if len(shape) > 2:
            found |= {f"{side}_h": shape[2], f"{side}_w": shape[3] if len(shape) > 3 else 1}
    return found | dict(site.op.measures(site))
