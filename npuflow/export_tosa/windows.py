"""Windows of convolutions and pools as TOSA has them: pads, and an input cut where they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.export_tosa.tensors import TosaTensors, TosaValue
from npuflow.whole.export_c.whole import TensorCommand

ACC = 5                                   # the number of int32, of sums, among TOSA's types
Window = Mapping[str, Sequence[int]]


def window_of(c: TensorCommand) -> dict[str, tuple[int, ...]]:
    """The window of a command: kernel, stride, dilation, and where the first one begins."""
    return {name: tuple(c[name]) for name in ("kernel", "stride", "dilation", "origin")}


def fitted(
    t: TosaTensors, x: TosaValue, window: Window, out: Sequence[int]
) -> tuple[TosaValue, tuple[int, ...]]:
    """The input [n, h, w, c] cut to what windows reach, and pads: top, bottom, left, right."""
    pads, start, size = list[int](), [0, 0, 0, 0], list(x.shape)
    for d in range(2):
        reach = (out[d] - 1) * window["stride"][d] + (window["kernel"][d] - 1) * window["dilation"][d] + 1
        first = window["origin"][d]
        before = max(0, -first)
        start[d + 1] = max(0, first)
        behind = first + reach - x.shape[d + 1]
        size[d + 1] = x.shape[d + 1] - start[d + 1] + min(0, behind)
        pads += [before, max(0, behind)]
    return t.cut(x, start, size), tuple(pads)
