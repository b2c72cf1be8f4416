"""Small pictures of faces and of none, for the networks of MTCNN that tell them apart; and small things."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from zoo_pictures import folder, photos, resized

Samples = Iterator[tuple[Any, ...]]


def checks(part: int, size: int) -> Samples:
    """`lfw_subset` holds 100 faces, then 100 other cut-outs: half of each calibrate, the others evaluate, and
    their mirror images. -1 to 1, columns before rows as the networks take them; the label is 1 for a face."""
    held = np.load(folder() / "lfw_subset.npy")
    for k, begin in enumerate((50 * part, 100 + 50 * part)):
        for i, one in enumerate(held[begin : begin + 50]):
            picture = resized((255 * one / max(float(one.max()), 1e-9)).astype(np.uint8), size, size)
            for way in (1, -1):
                signed = (picture[:, ::way].astype(np.float32) - 127.5) / 128
                yield f"{k}-{i}-{way}", np.ascontiguousarray(signed.transpose(1, 0, 2))[None], 1 - k


def calibration_24() -> Samples:
    yield from checks(0, 24)


def evaluation_24() -> Samples:
    yield from checks(1, 24)


def calibration_48() -> Samples:
    yield from checks(0, 48)


def evaluation_48() -> Samples:
    yield from checks(1, 48)


def things(part: int) -> Samples:
    """Cut-outs of photos, 32 wide, 0 to 255."""
    for i, one in enumerate(photos(part, (64, 200)[part], 32)):
        yield f"{i}", one.astype(np.float32)[None]


def calibration_things() -> Samples:
    yield from things(0)


def evaluation_things() -> Samples:
    yield from things(1)
