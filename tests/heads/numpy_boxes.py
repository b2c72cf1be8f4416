"""Detection heads decoded by loops over cells, and boxes selected one by one: the specification in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npuflow.ir.types import Array

SIZE = (64, 96)                           # height, width of the input
Heads = Mapping[str, Array]
Found = tuple[Array, Array]               # boxes [n, 4], scores [n, classes]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def around(x: float, y: float, w: float, h: float) -> list[float]:
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def yolox(heads: Heads) -> Found:
    table, boxes, scores, row = heads["out"][0].astype(np.float64), [], [], 0
    for stride in (8, 16, 32):
        for y in range(SIZE[0] // stride):
            for x in range(SIZE[1] // stride):
                one = table[row]
                boxes.append(
                    around((one[0] + x) * stride, (one[1] + y) * stride, *(np.exp(one[2:4]) * stride))
                )
                scores.append(one[4] * one[5:])
                row += 1
    return np.array(boxes), np.array(scores)


def _anchored(heads: Heads, anchors: Array, box: Callable[..., list[float]]) -> Found:
    boxes, scores = [], []
    for head, own in zip(heads.values(), anchors, strict=True):
        _, width, high, wide = head.shape
        values, stride = width // len(own), SIZE[0] // high
        for y in range(high):
            for x in range(wide):
                for k, anchor in enumerate(own):
                    one = head[0, k * values : (k + 1) * values, y, x]
                    boxes.append(box(one, x, y, stride, *anchor))
                    scores.append(sigmoid(one[4]) * sigmoid(one[5:]))
    return np.array(boxes), np.array(scores)


def yolov3(heads: Heads, anchors: Array, reach: float = 1.0) -> Found:
    def box(one: Array, x: int, y: int, stride: int, w: float, h: float) -> list[float]:
        moved = sigmoid(one[:2]) * reach - (reach - 1) / 2
        grown = np.exp(one[2:4].astype(np.float64)) * (w, h)
        return around((moved[0] + x) * stride, (moved[1] + y) * stride, *grown)

    return _anchored(heads, anchors, box)


def yolov5(heads: Heads, anchors: Array) -> Found:
    def box(one: Array, x: int, y: int, stride: int, w: float, h: float) -> list[float]:
        moved, grown = sigmoid(one[:2]) * 2 - 0.5, (sigmoid(one[2:4]) * 2) ** 2 * (w, h)
        return around((moved[0] + x) * stride, (moved[1] + y) * stride, *grown)

    return _anchored(heads, anchors, box)


def yolov8_decoded(heads: Heads) -> Found:
    table = heads["out"][0].astype(np.float64)
    return np.array([around(*one[:4]) for one in table.T]), table[4:].T


def yolov8(heads: Heads, bins: int = 16) -> Found:
    boxes, scores = [], []
    for head in heads.values():
        _, _, high, wide = head.shape
        stride = SIZE[0] // high
        for y in range(high):
            for x in range(wide):
                one = head[0, :, y, x].astype(np.float64)
                spread = np.exp(one[: 4 * bins].reshape(4, bins))
                sides = [s @ np.arange(bins) / s.sum() for s in spread]
                left, top, right, low = np.array(sides) * stride
                at = (x + 0.5) * stride, (y + 0.5) * stride
                boxes.append([at[0] - left, at[1] - top, at[0] + right, at[1] + low])
                scores.append(sigmoid(one[4 * bins :]))
    return np.array(boxes), np.array(scores)


def _moved(one: Array, prior: Array, variances: Array, swapped: bool, linear: bool) -> list[float]:
    x, y, w, h = one[[1, 0, 3, 2]] if swapped else one[:4]
    centre = prior[0] + x * variances[0] * prior[2], prior[1] + y * variances[1] * prior[3]
    grown = np.array([w * variances[2], h * variances[3]])
    return around(*centre, *(prior[2:] * (grown if linear else np.exp(grown))))


def ssd(
    heads: Heads, priors: Array, variances: Array, how: str, background: int, swapped: bool = False
) -> Found:
    offsets, scores = heads["offsets"][0].astype(np.float64), heads["scores"][0].astype(np.float64)
    linear = how == "sigmoid"
    pairs = zip(offsets, priors, strict=True)
    boxes = [_moved(one, prior, variances, swapped, linear) for one, prior in pairs]
    if how == "softmax":
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    elif how == "sigmoid":
        scores = sigmoid(scores)
    return np.array(boxes), np.delete(scores, background, 1) if background >= 0 else scores


def retinanet(heads: Heads, strides: tuple[int, ...], classes: int) -> Found:
    boxes, scores, ones = [], [], np.ones(4)
    for level, stride in enumerate(strides):
        offsets, marks = heads[f"offsets{level}"][0], heads[f"scores{level}"][0]
        for y in range(offsets.shape[1]):
            for x in range(offsets.shape[2]):
                k = 0
                for ratio in (0.5, 1.0, 2.0):
                    for scale in (1.0, 2 ** (1 / 3), 2 ** (2 / 3)):
                        side = 4 * stride * scale
                        prior = np.array(
                            [(x + 0.5) * stride, (y + 0.5) * stride, side / ratio**0.5, side * ratio**0.5]
                        )
                        one = offsets[k * 4 : k * 4 + 4, y, x].astype(np.float64)
                        boxes.append(_moved(one, prior, ones, False, False))
                        scores.append(sigmoid(marks[k * classes : (k + 1) * classes, y, x]))
                        k += 1
    return np.array(boxes), np.array(scores)


def centernet(heads: Heads) -> Found:
    maps, sizes, offsets = (heads[name][0].astype(np.float64) for name in ("maps", "sizes", "offsets"))
    heat, boxes, scores = sigmoid(heads["maps"][0]), [], []
    stride = SIZE[0] // maps.shape[1]
    for y in range(maps.shape[1]):
        for x in range(maps.shape[2]):
            near = heat[:, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].max((1, 2))
            scores.append(np.where(heat[:, y, x] == near, heat[:, y, x], 0))
            centre = (x + offsets[0, y, x]) * stride, (y + offsets[1, y, x]) * stride
            boxes.append(around(*centre, *(sizes[:, y, x] * stride)))
    return np.array(boxes), np.array(scores)


def boxes_of(
    found: Found,
    score: float,
    iou: float | None,
    most: int = 100,
    every: bool = False,
    agnostic: bool = False,
) -> Array:
    """Rows x1, y1, x2, y2, score, class: cut at the edges, suppressed class by class, best first."""
    boxes, scores = found
    boxes = np.clip(boxes, 0, [SIZE[1], SIZE[0]] * 2)
    rows = []
    for at, marks in enumerate(scores):
        kinds = range(len(marks)) if every else [int(marks.argmax())]
        rows += [(marks[kind], kind, at) for kind in kinds if marks[kind] > score]
    rows.sort(key=lambda row: (-row[0], row[1], row[2]))
    kept: list[tuple[float, int, int]] = []
    for row in rows:
        rivals = [one for one in kept if agnostic or one[1] == row[1]]
        if iou is None or all(overlap(boxes[row[2]], boxes[one[2]]) <= iou for one in rivals):
            kept.append(row)
    return np.array([[*boxes[at], mark, kind] for mark, kind, at in kept[:most]]).reshape(-1, 6)


def overlap(a: Array, b: Array) -> float:
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return float(wide * high / (both - wide * high)) if wide * high else 0.0
