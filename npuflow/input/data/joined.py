"""Joins samples with outputs of other components: rows of one position belong to one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import AbsentError, DataError
from npuflow.input.data.array import headers, load, row_count
from npuflow.input.data.config import Beside, Data, FoundSample
from npuflow.ir.types import Array

POSITION, COUNT = "npuflow:position", "npuflow:count"
"""Arrays of a file of outputs: by row the position of its sample, and how many samples there are."""


def with_places(
    arrays: Mapping[str, Array], places: Sequence[tuple[int, int]], labels: Sequence[Any]
) -> dict[str, Array]:
    """The arrays of a file of outputs: by name [rows, ...], their places, and labels where all have one."""
    found = dict(arrays)
    if labels and all(label is not None for label in labels):
        held = np.asarray(labels)
        if held.dtype.kind not in "fiubU":
            raise DataError(
                "labels of this kind are not handed on to other components",
                because=f"the first is {labels[0]!r}; numbers, equally long lists of them and text are",
                hint="the component that reads the outputs may name samples of its own, with labels",
                code="NF-DATA-280",
            )
        found["label"] = held
    count = {of for _, of in places}
    return {
        **found, POSITION: np.array([at for at, _ in places], np.int64), COUNT: np.array([*count], np.int64),
    }


def placed(listed: Mapping[str, FoundSample], data: Data) -> dict[str, FoundSample]:
    """Samples with their places among those that all components begin with, and with the inputs of
    `[data] beside`. Samples that one of the files lacks, as they could not be read there, are left out."""
    own = _places(data.source.path, len(listed)) if data.rows else None
    known = own if own is not None else [(i, len(listed)) for i in range(len(listed))]
    found = {                              # `replace` takes thrice as long, and there may be many
        name: FoundSample(one.files, one.detail, one.label, at)
        for (name, one), at in zip(listed.items(), known, strict=True)
    }
    for other in data.beside:
        found = _joined(found, other, data.source.text)
    return found


def _places(path: Path, rows: int) -> list[tuple[int, int]] | None:
    """The places of the rows of a file of outputs; None of any other file."""
    if path.suffix.lower() != ".npz" or not path.is_file() or POSITION not in headers(path):
        return None
    held = load(path)
    (count,) = held[COUNT].tolist()
    positions = held[POSITION].tolist()
    return [(at, count) for at in positions] if len(positions) == rows else None


def _joined(found: Mapping[str, FoundSample], other: Beside, source: str) -> dict[str, FoundSample]:
    """Each sample with the row that a file has for it."""
    path = other.source.path
    if not path.is_file():
        raise AbsentError(
            f'no outputs of another component at "{other.source.text}"', because=f"looked at {path}",
            hint="npuflow build RECIPE.toml builds the components in turn", code="NF-DATA-281",
        )
    rows, _ = row_count(path, Data(other.source, arrays=dict(other.arrays)))
    places = _places(path, rows)
    if places is None:
        raise DataError(
            f'"{other.source.text}" is no file of a component\'s outputs',
            because=f"it has no array {POSITION}, which says whose row is whose", code="NF-DATA-282",
        )
    counts = {of for _, of in (one.place for one in found.values() if one.place is not None)}
    if counts and counts != {places[0][1]}:
        raise DataError(
            f'"{source}" has {counts.pop()} samples, the component "{path.parent.name}" has {places[0][1]}',
            because="samples of one position belong together, so there are as many in both",
            hint="name sources of one length", code="NF-DATA-283",
        )
    row_at = {at: row for row, (at, _) in enumerate(places)}
    joined = {
        name: _with_row(one, path, other.arrays, row_at[one.place[0]])
        for name, one in found.items() if one.place is not None and one.place[0] in row_at
    }
    if not joined:
        raise DataError(
            f'no sample of "{source}" is among those of the component "{path.parent.name}"',
            because=f"it took {len(places)} of {places[0][1]}", code="NF-DATA-284",
            hint="let [data] count and seed be the same in both",
        )
    return joined


def _with_row(one: FoundSample, path: Path, arrays: Mapping[str, str], row: int) -> FoundSample:
    """A sample of several files: what it was, and a row for each further input."""
    detail = dict(one.detail)
    parts = (
        list(detail["inputs"]) if detail["kind"] == "files"
        else [{"input": "", "files": len(one.files), **detail}]
    )
    for name, array in sorted(arrays.items()):
        parts.append({
            "input": name, "files": 1, "kind": "arrays", "arrays": {name: array}, "row": row,
        })
    whole: dict[str, Any] = {"kind": "files", "inputs": parts, "row": row}
    if "nonfinite" in detail:
        whole["nonfinite"] = detail["nonfinite"]
    return replace(one, files=(*one.files, *[path] * len(arrays)), detail=whole)
