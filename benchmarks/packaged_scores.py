"""What applications make of the outputs of networks inside Python packages, beside the float networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from packaged_samples import Array, words

Pairs = list[tuple[Mapping[str, Array], Mapping[str, Array]]]
"""Outputs of the float network and of the program, sample by sample."""


def read(symbols: str, blank: int, name: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """CTC: whole words right, and the same in both. `symbols` "": codes are compared, no words."""

    def text(scores: Array) -> tuple[int, ...]:
        best = scores.reshape(-1, scores.shape[-1]).argmax(-1)
        return tuple(int(c) for i, c in enumerate(best) if c != blank and (i == 0 or c != best[i - 1]))

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        both = [tuple(text(side[name]) for side in pair) for pair in pairs]
        found: dict[str, Any] = {"same": float(np.mean([a == b for a, b in both]))}
        if symbols:
            truth = [tuple(symbols.index(c) for c in word) for word, _ in words("eval")]
            for i, side in enumerate(("float", "program")):
                right = [one[i] == true for one, true in zip(both, truth, strict=False)]
                found[side] = float(np.mean(right))
        return found

    return score


def upright(data: Path, pairs: Pairs) -> dict[str, Any]:
    best = [[next(iter(side.values())).argmax() for side in pair] for pair in pairs]
    right = [[one[i] == place % 2 for place, one in enumerate(best)] for i in (0, 1)]
    return {"float": float(np.mean(right[0])), "program": float(np.mean(right[1]))}


def label(data: Path, pairs: Pairs) -> dict[str, Any]:
    best = [[next(iter(side.values())).argmax() for side in pair] for pair in pairs]
    return {"same": float(np.mean([a == b for a, b in best]))}


def points(name: str, size: int, per: int) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Distance of landmarks, in pixels of the input."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        far = [
            np.linalg.norm((a[name] - b[name]).reshape(-1, per)[:, :2], axis=1).mean() for a, b in pairs
        ]
        return {f"pixels of {size}": float(np.mean(far)), "worst": float(np.max(far))}

    return score


def anchored(boxes: str, scores: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Detectors with anchors: the best anchor's box against the float network's; `far`: pixels."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        same, far = [], []
        for a, b in pairs:
            best = int(a[scores].argmax())
            same.append(best == int(b[scores].argmax()))
            far.append(np.abs(a[boxes][0, best, :4] - b[boxes][0, best, :4]).max())
        found = {"same anchor": np.mean(same), "pixels": np.mean(far), "worst": np.max(far)}
        return {what: float(value) for what, value in found.items()}

    return score


def boxes(pairs: Pairs, decoded: Callable[[Array], tuple[Array, Array]], least: float) -> dict[str, Any]:
    """Boxes of one side that have one of the other's of the same class with IoU of .5: F1 of both counts."""
    hits, counts = 0, 0
    for a, b in pairs:
        sides = [_kept(*decoded(next(iter(side.values()))), least) for side in (a, b)]
        counts += sum(len(side) for side in sides)
        left = list(sides[1])
        for kind, box in sides[0]:
            same = (i for i, (k, o) in enumerate(left) if k == kind and _iou(box, o) >= 0.5)
            found = next(same, None)
            if found is not None:
                del left[found]
                hits += 2
    return {"boxes F1": hits / max(counts, 1), "boxes": counts}


def _kept(held: Array, scores: Array, least: float) -> list[tuple[int, Array]]:
    """Class and box (x, y, width, height) of what stays after suppression."""
    kind, best = scores.argmax(-1), scores.max(-1)
    chosen = cv2.dnn.NMSBoxes(held.tolist(), best.astype(float).tolist(), least, 0.45)
    return [(int(kind[i]), held[i]) for i in np.asarray(chosen, int).reshape(-1)]


def _iou(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[:2] + a[2:], b[:2] + b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    return both / (float(np.prod(a[2:])) + float(np.prod(b[2:])) - both + 1e-9)


def yolov8(data: Path, pairs: Pairs) -> dict[str, Any]:
    def decoded(output: Array) -> tuple[Array, Array]:
        rows = output[0].T
        return np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], 1), rows[:, 4:]

    return boxes(pairs, decoded, 0.25)


def yolox(data: Path, pairs: Pairs) -> dict[str, Any]:
    grid = [
        (x, y, stride) for stride in (8, 16, 32) for y in range(416 // stride) for x in range(416 // stride)
    ]
    cells = np.array(grid, np.float32)

    def decoded(output: Array) -> tuple[Array, Array]:
        rows = output[0]
        middle, size = (rows[:, :2] + cells[:, :2]) * cells[:, 2:], np.exp(rows[:, 2:4]) * cells[:, 2:]
        return np.concatenate([middle - size / 2, size], 1), rows[:, 4:5] * rows[:, 5:]

    return boxes(pairs, decoded, 0.3)


def quarters(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Of pages turned by quarters: the class that most pages of a quarter get counts as right."""
    best = np.array([[int(next(iter(side.values())).argmax()) for side in pair] for pair in pairs])
    turn = np.arange(len(best)) % 4
    right = [np.bincount(best[turn == t, 0]).argmax() for t in range(4)]
    found = (best == np.array(right)[turn][:, None]).mean(0)
    same = float((best[:, 0] == best[:, 1]).mean())
    return {"float": float(found[0]), "program": float(found[1]), "same": same}


def overlap(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Of the pixels above .3 in either side those in both, over all samples."""
    masks = [[next(iter(side.values())) > 0.3 for side in pair] for pair in pairs]
    both = sum(int((a & b).sum()) for a, b in masks)
    return {"IoU": both / max(sum(int((a | b).sum()) for a, b in masks), 1)}


def marked(*names: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Share of characters with the same answer in every one of the outputs."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        same = [np.all([a[n].argmax(-1) == b[n].argmax(-1) for n in names], axis=0).mean() for a, b in pairs]
        return {"same marks": float(np.mean(same))}

    return score


def values(name: str) -> Callable[[Path, Pairs], dict[str, Any]]:
    """Numbers themselves: how far they are off, beside how far apart those of samples are."""

    def score(data: Path, pairs: Pairs) -> dict[str, Any]:
        both = np.array([[np.ravel(side[name]) for side in pair] for pair in pairs])
        off, spread = np.abs(both[:, 0] - both[:, 1]).mean(0), both[:, 0].std(0)
        return {"off": float(off.mean()), "worst": float(np.abs(both[:, 0] - both[:, 1]).max()),
                "deviation of samples": float(spread.mean())}

    return score


def directions(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Embeddings: the cosine of both, and whether the nearest other sample is the same one."""
    both = [np.array([np.ravel(next(iter(pair[i].values()))) for pair in pairs]) for i in (0, 1)]
    one, other = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in both)
    near = [(side @ side.T - 2 * np.eye(len(side))).argmax(1) for side in (one, other)]
    cosine, same = (one * other).sum(1), (near[0] == near[1]).mean()
    found = {"cosine": cosine.mean(), "least": cosine.min(), "the same neighbour": same}
    return {what: float(value) for what, value in found.items()}


def together(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of samples with the same greatest answer in every output, and of such outputs."""
    same = np.array([[a[n].argmax() == b[n].argmax() for n in a] for a, b in pairs])
    return {"same": float(same.all(1).mean()), "outputs": float(same.mean())}
