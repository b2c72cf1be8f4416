"""GridSample with a computed grid as products with weights of rows and columns that are computed from it."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._tents import MAKES, MOST, cubics, nearest, sampled, tents


@RULES.entry
class SpellWarp(Decomposition):
    """Linear or nearest in images of any number of dimensions, cubic in two, with every kind of padding.
    Behind the rule for constant grids."""

    order = 5
    triggers = ("host:gridsample",)
    makes = (*MAKES, "floor")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if parts.number(1) is not None:
            return None
        x, grid = parts.input(0), parts.input(1)
        mode = str(parts.attribute("mode", "linear")).removeprefix("bi")
        count, channels, *image = parts.shape(x)
        made, rank = parts.shape(grid)[1:-1], len(image)
        if mode not in ("linear", "nearest", "cubic") or (mode == "cubic" and rank != 2):
            return f"a computed grid with mode {mode} over {rank} dimensions"
        elements = count * prod(image) * prod(made)
        if elements > MOST:
            return f"sampling matrices of {elements} elements, more than {MOST}"
        if mode == "cubic" and parts.attribute("padding_mode", "zeros") != "zeros":
            for d, size in enumerate(image):
                x = _framed(parts, x, 2 + d, _beyond(parts, size))
            image = list(parts.shape(x)[2:])
        flat = parts.transpose(parts.reshape(grid, (count, prod(made), rank)), (0, 2, 1))
        weights = [
            _weights(parts, parts.slice(flat, 1, rank - 1 - d, rank - d), size, mode)
            for d, size in enumerate(parts.shape(parts.input(0))[2:])
        ]
        found = sampled(parts, parts.reshape(x, (count, channels, prod(image))), *weights)
        return (parts.reshape(found, (count, channels, *made)),)


def _weights(parts: Parts, at: str, size: int, mode: str) -> str:
    """Of the rows along one dimension; at: -1 .. 1, [n, 1, count]."""
    aligned = parts.integer("align_corners", 0)
    half, middle = (size - 1 if aligned else size) / 2, (size - 1) / 2
    padding = parts.attribute("padding_mode", "zeros")
    if mode == "nearest" and padding != "reflection" and size > 1:
        return nearest(parts, at, size, (middle, half), beyond=padding == "border")
    place = parts.add(parts.mul(at, half), middle, "place")
    if padding == "reflection":
        place = _reflected(parts, place, 0.0 if aligned else -0.5, size - 1 if aligned else size)
    if mode == "cubic":
        # beyond these ends all four taps are the same row, or none
        edge, rows = (2.0, range(size)) if padding == "zeros" else (1.0, range(-2, size + 2))
        return cubics(parts, parts.clip(place, -edge, size - 1.0 + edge, "place"), rows)
    place = place if padding == "zeros" else parts.clip(place, 0.0, size - 1.0, "place")
    return (tents if mode == "linear" else nearest)(parts, place, size)


def _beyond(parts: Parts, size: int) -> list[int]:
    """The rows of the image that stand at -2, -1, size and size + 1, where taps of a cubic may lie."""
    at = np.array([-2, -1, size, size + 1])
    if parts.attribute("padding_mode") == "border":
        return [int(row) for row in np.clip(at, 0, size - 1)]
    turn = 0 if parts.integer("align_corners", 0) else 1  # the mirror stands on the last row, or behind it
    period = max(2 * (size - 1 + turn), 1)
    back = at % period
    return [int(row) for row in np.where(back >= size, period - back - turn, back)]


def _framed(parts: Parts, x: str, axis: int, rows: list[int]) -> str:
    """Two rows put on either side."""
    pieces = [parts.slice(x, axis, row, row + 1) for row in rows]
    return parts.concat([*pieces[:2], x, *pieces[2:]], axis, "framed")


def _reflected(parts: Parts, place: str, low: float, span: int) -> str:
    """Between `low` and `low` + `span`, as mirrors at both ends show it."""
    if not span:
        return parts.mul(place, 0.0)
    away = parts.op("abs", (parts.sub(place, low),))
    turns = parts.op("floor", (parts.mul(away, 0.5 / span),))
    left = parts.sub(away, parts.mul(turns, 2.0 * span), "left")
    return parts.sub(span + low, parts.op("abs", (parts.sub(left, float(span)),)), "mirrored")
