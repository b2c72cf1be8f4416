"""Which steps make a stored sample what a model input takes, found by shapes and types alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.input.data.config import fitted
from npuflow.input.data.steps import Plain, finished, of_picture
from npuflow.ir.types import TensorType

CHANNELS = (1, 3)  # of pictures: grey or colours
HWC = (1, 2, 0)


def steps_for(
    shape: Sequence[int], dtype: np.dtype[Any], want: TensorType, *, picture: bool = False
) -> list[Plain] | None:
    """The fewest steps that turn one sample of this shape into the input's shape; None if no steps do.

    Values are not looked at: what a normalisation should be is in no shape.
    """
    sample = np.broadcast_to(np.zeros((), dtype), tuple(shape))
    return next(
        (
            steps
            for steps in _candidates(sample.shape, dtype, want, picture)
            if _fits(sample, steps, want, picture)
        ),
        None,
    )


def suits(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    steps: Sequence[Plain],
    want: TensorType,
    *,
    picture: bool = False,
) -> bool:
    """Whether these steps turn one sample of this shape into the input's shape."""
    return _fits(np.broadcast_to(np.zeros((), dtype), tuple(shape)), list(steps), want, picture)


def frame(want: TensorType) -> tuple[str, int, int, int] | None:
    """Layout, channels, height and width of an input that takes a picture; None if its shape is not one's."""
    shape = want.shape
    if len(shape) == 4:
        shape = shape[1:]
    if len(shape) == 3 and shape[0] in CHANNELS:
        return "nchw", shape[0], shape[1], shape[2]
    if len(shape) == 3 and shape[2] in CHANNELS:
        return "nhwc", shape[2], shape[0], shape[1]
    return None


def _candidates(
    shape: tuple[int, ...], dtype: np.dtype[Any], want: TensorType, picture: bool
) -> Iterator[list[Plain]]:
    """Sequences of steps, shortest first; sizes change only where both sides look like pictures of 8 bits."""
    seen = frame(want)
    pixels = picture or dtype == np.uint8
    transposes: list[Plain | None] = (
        [None] if picture or len(shape) != 3 else [None, {"transpose": list(HWC)}]
    )
    resizes: list[Plain | None] = (
        [None, {"resize": [seen[2], seen[3]]}] if seen is not None and pixels else [None]
    )
    channels: list[Plain | None] = (
        [None, {"channels": "grey" if seen[1] == 1 else "rgb"}] if seen is not None else [None]
    )
    layouts: list[Plain | None] = [None, {"layout": "nchw"}, *([{"layout": "nhwc"}] if picture else [])]
    every = [
        [s for s in chosen if s is not None] for chosen in product(transposes, resizes, channels, layouts)
    ]
    yield from sorted(every, key=len)


def _fits(sample: Any, steps: list[Plain], want: TensorType, picture: bool) -> bool:
    try:
        if any("resize" in step for step in steps) and not _is_picture(sample.shape, steps):
            return False
        mine = of_picture(steps) if picture else steps
        fitted(finished(sample, mine, "", picture), want, "")
    except (DataError, ValueError, IndexError, TypeError):
        return False
    return True


def _is_picture(shape: tuple[int, ...], steps: Sequence[Plain]) -> bool:
    """Whether the axes, after a transposition, are [H, W] or [H, W, colours]: all else is not a picture to be
    resized.
    """
    axes = tuple(shape[i] for i in HWC) if any("transpose" in step for step in steps) else shape
    return len(axes) == 2 or (len(axes) == 3 and axes[2] in CHANNELS)
