"""The numbers of a node that a target's rules speak of, and what the rules make of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.hw import limits
from npuflow.hw.target import Limits
from npuflow.ir.op import No, Site, Yes
from npuflow.ir.windows import windows


def allowed(name: str, site: Site, target: Limits) -> Yes | No:
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


def numbers_of(site: Site) -> dict[str, int]:
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
    kernel = getattr(site.node.op, "kernel_shape", None)
    if kernel and len(x) == 2 + len(kernel):
        found |= _window(site, tuple(kernel), x)
    found |= _product(site, shapes)
    return found


def _window(site: Site, kernel: tuple[int, ...], x: Sequence[int]) -> dict[str, int]:
    op, rank = site.node.op, len(kernel)
    groups = int(getattr(op, "group", 1))
    strides, dilations = (
        getattr(op, "strides", ()) or (1,) * rank,
        getattr(op, "dilations", ()) or (1,) * rank,
    )
    pads = getattr(op, "pads", ()) or (0,) * (2 * rank)
    auto_pad = str(getattr(op, "auto_pad", "NOTSET"))
    if auto_pad != "NOTSET" and not hasattr(op, "output_padding"):
        found = windows(x[2:], kernel, strides, dilations, pads, auto_pad)
        pads = (*(w.before for w in found), *(w.after for w in found))
    wide = rank > 1
    return {
        "kernel_h": kernel[0], "kernel_w": kernel[1] if wide else 1,
        "stride_h": strides[0], "stride_w": strides[1] if wide else 1,
        "dilation_h": dilations[0], "dilation_w": dilations[1] if wide else 1,
        "pad_top": pads[0], "pad_left": pads[1] if wide else 0,
        "pad_bottom": pads[rank], "pad_right": pads[rank + 1] if wide else 0,
        "groups": groups, "depthwise": int(groups > 1 and x[1] == groups),
    }


def _product(site: Site, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """m, k and n of an operator whose second operand is a matrix."""
    op = site.node.op
    if getattr(op, "kernel_shape", None) or len(shapes) < 2 or len(shapes[0]) < 2 or len(shapes[1]) < 2:
        return {}
    sides = getattr(op, "sides", None)
    if sides is not None:
        m, k, n = sides(shapes[0], shapes[1])
    else:
        m, k, n = site.out_shape[-2], shapes[0][-1], shapes[1][-1]
    return {"m": m, "k": k, "n": n}
