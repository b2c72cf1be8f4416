"""What lies between detector and recogniser of text: lines are cut out of a page where the map marks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image
from zoo_texts import DEVIATION, MEAN

MARKED = 0.3              # of the detector's map
LEAST = 3                 # rows and columns of a mark below which it is none
GROW = 0.75               # marks are the core of a line: so many of its heights are added on all sides
HEIGHT, WIDTH = 48, 320   # of a line that the recogniser takes
Arrays = Mapping[str, np.ndarray]


def cut(arrays: Arrays, label: list[Any] | None) -> Iterator[tuple[dict[str, np.ndarray], str | None]]:
    """The lines of a page as the recogniser takes them, BGR, -1 to 1, padded at the right; with a label what
    is written there, "" where nothing is."""
    page = arrays["x"][0].transpose(1, 2, 0) * DEVIATION + MEAN
    for x0, y0, x1, y1 in boxes(arrays["sigmoid_0.tmp_0"][0, 0] > MARKED):
        picture = Image.fromarray(np.clip(page[y0:y1, x0:x1] * 255, 0, 255).astype(np.uint8))
        width = min(WIDTH, max(1, round((x1 - x0) * HEIGHT / (y1 - y0))))
        line = np.zeros((1, 3, HEIGHT, WIDTH), np.float32)
        resized = np.asarray(picture.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)
        line[0, :, :, :width] = resized.transpose(2, 0, 1) / 127.5 - 1
        yield {"line": line}, None if label is None else written(label, (y0 + y1) / 2)


def boxes(marked: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """x0, y0, x1, y1 of the lines of a page of one column: runs of rows with marks."""
    size = marked.shape
    for top, bottom in runs(marked.any(1)):
        columns = np.flatnonzero(marked[top:bottom].any(0))
        x0, x1 = int(columns[0]), int(columns[-1]) + 1
        if bottom - top >= LEAST and x1 - x0 >= LEAST:
            more = max(1, round(GROW * (bottom - top)))
            yield max(0, x0 - more), max(0, top - more), min(size[1], x1 + more), min(size[0], bottom + more)


def runs(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def written(label: list[Any], row: float) -> str:
    """The text of the line that a row of a page crosses."""
    for (_, y, _, height), text in label:
        if y <= row < y + height:
            return str(text)
    return ""
