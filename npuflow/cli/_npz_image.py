"""Pictures of tensors, for `npuflow npz to-image`."""

from __future__ import annotations

from io import BytesIO
from math import ceil, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import UsageError

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]
GAP = 1  # pixels between channels side by side


def picture(name: str, array: Array, sample: int, low: float | None, high: float | None) -> Pixels:
    """Pixels [height, width] or [height, width, 3] of one sample of a tensor of two to four axes,
    those of one element behind the first left out."""
    planes = _planes(name, array, sample)
    if array.dtype == np.uint8 and low is None and high is None:
        pixels = planes.astype(np.uint8)
    else:
        values = planes.astype(np.float64)
        finite = values[np.isfinite(values)]
        least = low if low is not None else float(finite.min()) if finite.size else 0.0
        most = high if high is not None else float(finite.max()) if finite.size else 0.0
        scaled = (values - least) / ((most - least) or 1.0)
        pixels = np.rint(np.clip(np.nan_to_num(scaled), 0.0, 1.0) * 255).astype(np.uint8)
    if len(pixels) == 3:
        return pixels.transpose(1, 2, 0)
    return _side_by_side(pixels)


def _planes(name: str, array: Array, sample: int) -> Array:
    """[channels, height, width]; channels come first, or last where that is 1 or 3."""
    while array.ndim > 4 and array.shape[1] == 1:  # samples of a tensor with a batch axis
        array = array[:, 0]
    if array.dtype.kind not in "biuf" or not 2 <= array.ndim <= 4 or not array.size:
        raise UsageError(
            f'"{name}" {list(array.shape)} {array.dtype} is not a picture',
            because="a picture is numbers with two to four axes",
            code="NF-USAGE-077",
        )
    if array.ndim == 4:
        if sample >= len(array):
            raise UsageError(f'"{name}" has {len(array)} samples', hint="--sample 0", code="NF-USAGE-078")
        array = array[sample]
    if array.ndim == 2:
        return array[None]
    last = array.shape[2] in (1, 3) and array.shape[0] not in (1, 3)
    return array.transpose(2, 0, 1) if last else array


def _side_by_side(planes: Pixels) -> Pixels:
    count, height, width = planes.shape
    columns = ceil(sqrt(count))
    rows = ceil(count / columns)
    sheet = np.zeros((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP), np.uint8)
    for i, plane in enumerate(planes):
        y, x = i // columns * (height + GAP), i % columns * (width + GAP)
        sheet[y : y + height, x : x + width] = plane
    return sheet


def png(pixels: Pixels) -> bytes:
    from PIL import Image

    out = BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
