"""Labels of samples: a .csv of file and label, or COCO annotations."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from npuflow.base.errors import DataError, suggestion
from npuflow.base.paths import not_a_file


def label_file(path: Path) -> dict[str, Any]:
    """Label by file name: second column of a .csv (further ones are left alone),
    boxes of COCO annotations."""
    if not path.is_file():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix.lower() in (".csv", ".json"))
        hint = suggestion(path.name, [name for name in near if name != path.name])
        hint = hint if path.suffix else f'label = "{path.name}" for labels in an array of the samples'
        message, because = not_a_file(path, path.name, "label file")
        raise DataError(message, because=because, hint=hint, code="NF-DATA-036")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise DataError(
            f'the label file "{path.name}" cannot be read', because=str(fault), code="NF-DATA-037",
        ) from fault
    if path.suffix.lower() == ".json":
        return _coco(path, text)
    rows = [row for row in csv.reader(text.splitlines()) if len(row) > 1]
    return {row[0]: label_of(row[1]) for row in rows}


def label_of(text: str) -> Any:
    """An integer class, several accepted ones joined by |, or any other text."""
    parts = text.strip().split("|")
    if all(part.strip().lstrip("-").isdigit() for part in parts):
        numbers = [int(part) for part in parts]
        return numbers[0] if len(numbers) == 1 else numbers
    return text


def _coco(path: Path, text: str) -> dict[str, Any]:
    try:
        coco = json.loads(text)
        boxes: dict[int, list[list[float]]] = {image["id"]: [] for image in coco["images"]}
        kinds = {k: i for i, k in enumerate(sorted({a["category_id"] for a in coco["annotations"]}))}
        for one in coco["annotations"]:
            boxes[one["image_id"]].append([*(float(v) for v in one["bbox"]), kinds[one["category_id"]]])
        return {image["file_name"]: boxes[image["id"]] for image in coco["images"]}
    except (ValueError, KeyError, TypeError) as fault:
        raise DataError(
            f'"{path.name}" is not a COCO annotation file',
            because=f"{type(fault).__name__}: {fault}", code="NF-DATA-038",
        ) from fault


def classes(label: Any) -> tuple[str, ...]:
    """What a label says of the classes in a sample: one, the first of several accepted
    ones, or those of all boxes."""
    if label is None or (isinstance(label, list) and not label):
        return ()
    if isinstance(label, list) and isinstance(label[0], list):
        return tuple(sorted({str(int(box[-1])) for box in label}))
    return (str(label[0] if isinstance(label, list) else label),)
