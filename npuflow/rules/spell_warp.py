"""GridSample with a computed grid as products with weights of rows and columns that are computed from it."""

from __future__ import annotations

from math import prod

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._tents import MAKES, MOST, nearest, sampled, tents


@RULES.entry
class SpellWarp(Decomposition):
    """Bilinear or nearest, of images of two dimensions, with every kind of padding. Behind the rule for
    constant grids."""

    order = 5
    triggers = ("host:gridsample",)
    makes = (*MAKES, "floor")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if parts.number(1) is not None:
            return None
        x, grid = parts.input(0), parts.input(1)
        mode = str(parts.attribute("mode", "linear")).replace("bilinear", "linear")
        if len(parts.shape(x)) != 4 or mode not in ("linear", "nearest"):
            return f"a computed grid with mode {mode} over {len(parts.shape(x)) - 2} dimensions"
        count, channels, height, width = parts.shape(x)
        made = parts.shape(grid)[1:3]
        if count * height * width * prod(made) > MOST:
            return f"sampling matrices of {count * height * width * prod(made)} elements, more than {MOST}"
        flat = parts.transpose(parts.reshape(grid, (count, prod(made), 2)), (0, 2, 1))
        weights = []
        for d, size in ((1, height), (0, width)):
            place = _place(parts, parts.slice(flat, 1, d, d + 1), size)
            weights.append((tents if mode == "linear" else nearest)(parts, place, size))
        image = parts.reshape(x, (count, channels, height * width))
        return (parts.reshape(sampled(parts, image, *weights), (count, channels, *made)),)


def _place(parts: Parts, at: str, size: int) -> str:
    """From -1 .. 1 to rows, moved into the image as the padding says."""
    aligned = parts.integer("align_corners", 0)
    half, middle = (size - 1 if aligned else size) / 2, (size - 1) / 2
    place = parts.add(parts.mul(at, half), middle, "place")
    padding = parts.attribute("padding_mode", "zeros")
    if padding == "reflection":
        place = _reflected(parts, place, 0.0 if aligned else -0.5, size - 1 if aligned else size)
    return place if padding == "zeros" else parts.clip(place, 0.0, size - 1.0, "place")


def _reflected(parts: Parts, place: str, low: float, span: int) -> str:
    """Between `low` and `low` + `span`, as mirrors at both ends show it."""
    if not span:
        return parts.mul(place, 0.0)
    away = parts.op("abs", (parts.sub(place, low),))
    turns = parts.op("floor", (parts.mul(away, 0.5 / span),))
    left = parts.sub(away, parts.mul(turns, 2.0 * span), "left")
    return parts.sub(span + low, parts.op("abs", (parts.sub(left, float(span)),)), "mirrored")
