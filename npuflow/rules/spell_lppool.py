"""LpPool and GlobalLpPool in simpler operators: a root of the windowed mean of
powers, times the window's size."""

from __future__ import annotations

from math import prod

from npuflow.ir.queries import kind
from npuflow.ir.windows import windows
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellLppool(Decomposition):
    triggers = ("host:lppool", "host:globallppool")
    makes = ("abs", "mul", "pow", "averagepool", "reducesum", "sqrt", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, p = parts.input(0), parts.integer("p", 2)
        shape = parts.shape(x)
        power = parts.op("abs", (x,)) if p % 2 else x
        if p == 2:
            power = parts.mul(x, x, "square")
        elif p > 1:
            power = parts.op("pow", (power,), exponent=float(p))
        if kind(parts.node) == "host:globallppool":
            total = parts.reduce("sum", power, range(2, len(shape)))
        else:
            found = _pooled(parts, power)
            if found is None:
                return "windows that extend beyond the padded image"
            total = found
        if p == 1:
            return (total,)
        return (parts.op("sqrt", (total,)) if p == 2 else parts.op("pow", (total,), exponent=1.0 / p),)


def _pooled(parts: Parts, x: str) -> str | None:
    """Sums over the windows: means that count the padding, times the size."""
    kernel = parts.attribute("kernel_shape")
    assert isinstance(kernel, tuple)
    rank, spatial = len(kernel), parts.shape(x)[2:]
    strides, dilations, pads = (
        tuple(int(v) for v in given) if isinstance(given := parts.attribute(name), tuple) else (fill,) * count
        for name, fill, count in (("strides", 1, rank), ("dilations", 1, rank), ("pads", 0, 2 * rank))
    )
    spec = windows(
        spatial, kernel, strides, dilations, pads, str(parts.attribute("auto_pad", "NOTSET")),
        bool(parts.integer("ceil_mode", 0)),
    )
    if any((w.out - 1) * w.stride + w.span > w.before + w.size + w.after for w in spec):
        return None
    made = parts.op(
        "averagepool", (x,), kernel_shape=kernel, strides=strides, dilations=dilations,
        pads=(*(w.before for w in spec), *(w.after for w in spec)), count_include_pad=1,
    )
    if parts.shape(made) != parts.shape(parts.node.outputs[0]):
        return None
    return parts.mul(made, float(prod(kernel)))
