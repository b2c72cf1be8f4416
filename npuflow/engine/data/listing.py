"""Listing a data source: stable sample ids, the files behind each, and how each is read."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, suggestion
from npuflow.base.tables import table_of
from npuflow.engine.data.array import headers, inputs, row_count
from npuflow.engine.data.choose import chosen
from npuflow.engine.data.config import DamagedData, Data, FoundSample
from npuflow.engine.data.image import SUFFIXES as PICTURES
from npuflow.engine.data.labels import label_of
from npuflow.engine.data.python import python_source, read_by
from npuflow.engine.data.steps import applied
from npuflow.engine.data.zarr_store import chunk_files, is_store

ARRAYS = (".npy", ".npz")
LISTS = (".txt", ".lst", ".csv", ".json")
RAW = (".bin", ".raw")
RANDOM_COUNT = 32


def found(data: Data) -> dict[str, FoundSample]:
    """Every chosen sample by id, in order."""
    table = table_of(type(data))
    try:
        listed = _all(data)
    except DataError as fault:
        raise fault.at(key=f"{table}.source") from None
    try:
        _normalizes(data)
    except DataError as fault:
        raise fault.at(key=f"{table}.steps") from None
    try:
        return chosen(listed, data)
    except DataError as fault:
        raise fault.at(key=f"{table}.{'choose' if data.labels is None else 'labels'}") from None


def first_file(data: Data) -> Path | None:
    """The first file of the source, in the order of its samples."""
    return next((path for _, path, _ in paths(data)), None)


def _normalizes(data: Data) -> None:
    """A DataError where numbers per channel do not fit the arrays: said of the first
    file, before any sample is read."""
    given = [step.normalize for step in data.steps if step.normalize is not None]
    if not any(max(len(n.mean), len(n.std)) > 1 for n in given) or data.source.text.startswith(
        ("random", "python:")
    ):
        return
    path = first_file(data)
    if path is None or path.suffix.lower() in PICTURES:
        return
    try:
        found = headers(path)
        names = [""] if "" in found else list(data.arrays.values()) or inputs(path, found, data.label)
    except DataError:
        return                            # reported for the sample
    called = {own: name for name, own in data.arrays.items()}
    for own in names:
        shape, kind = found[own]
        name = called.get(own, own)
        mine = [s.plain() for s in data.steps if not name or s.input in ("", name)]
        if kind.kind in "fiub" and not any(s.get("input") for s in mine if not name):
            try:
                applied(np.zeros(shape[1:] if data.rows else shape, kind), mine, name)
            except DataError as fault:
                fault.because = f"{fault.because} ({path.name})"
                raise


def _all(data: Data) -> dict[str, FoundSample]:
    text = data.source.text
    common = _common(data)
    everything: Iterator[tuple[str, FoundSample]]
    if text == "random":
        everything = _random(data)
    elif text.startswith("python:"):
        everything = python_source(text, data.source.base, data.count, common)
    else:
        files = list(paths(data))
        everything = (
            pair
            for name, path, label in files
            for pair in _file(name, path, label, data, common, len(files) == 1)
        )
    listed = dict(everything)
    if data.class_folders and listed:
        listed = _by_folder(listed)
    if not listed:
        if text.startswith("python:"):
            raise DataError(
                f'"{text}" yields no samples',
                hint="yield a pair (id, arrays) for each sample", code="NF-DATA-039",
            )
        raise DataError(f'"{text}" holds no samples', hint=_supported(), code="NF-DATA-040")
    return listed


def _by_folder(listed: Mapping[str, FoundSample]) -> dict[str, FoundSample]:
    """With the number of the first folder of every name as its label."""
    flat = [name for name in listed if "/" not in name]
    if flat:
        raise DataError(
            f"{len(flat)} of {len(listed)} samples lie in no folder of a class",
            because=f'the first is "{flat[0]}"', hint="class_folders takes SOURCE/CLASS/FILE",
            code="NF-DATA-081",
        )
    kinds = {kind: i for i, kind in enumerate(sorted({name.split("/")[0] for name in listed}))}
    return {name: replace(one, label=kinds[name.split("/")[0]]) for name, one in listed.items()}


def _common(data: Data) -> dict[str, Any]:
    """What concerns every sample; only settings that matter to the bytes."""
    detail: dict[str, Any] = {}
    if data.steps:
        detail["steps"] = [step.plain() for step in data.steps]
    if data.nonfinite != "leave_out":
        detail["nonfinite"] = data.nonfinite
    return detail


def _random(data: Data) -> Iterator[tuple[str, FoundSample]]:
    for index in range(data.count or RANDOM_COUNT):
        yield (
            f"random/{index:05d}",
            FoundSample((), {"kind": "random", "seed": data.seed * 1_000_003 + index}),
        )


def _file(
    name: str, path: Path, label: Any, data: Data, common: Mapping[str, Any], alone: bool
) -> Iterator[tuple[str, FoundSample]]:
    if data.reader is not None:
        yield name, read_by(data.reader.text, data.reader.base, path, common, label)
        return
    if path.suffix.lower() in RAW:
        yield from _raw(name, path, label, data, common)
        return
    if path.suffix.lower() in PICTURES:
        own: dict[str, Any] = {"kind": "picture", **common}
        if data.alpha != "drop":
            own["alpha"] = data.alpha
        if not data.colour:
            own["colour"] = False
        yield name, FoundSample((path,), own, label)
        return
    store = is_store(path)
    arrays: dict[str, Any] = {"kind": "zarr" if store else "arrays", **common}
    if data.arrays:
        arrays["arrays"] = dict(sorted(data.arrays.items()))
    elif path.suffix.lower() != ".npy":
        arrays["label"] = data.label
    if not data.rows:
        yield name, FoundSample(chunk_files(path, None) if store else (path,), arrays, label)
        return
    try:
        count, labels = row_count(path, data)
    except DamagedData:
        if alone:
            raise
        # A sample all the same: reading it says what is wrong.
        yield name, FoundSample(chunk_files(path, None) if store else (path,), arrays, label)
        return
    width = len(str(max(count - 1, 0)))
    for row in range(count):
        held = labels[row] if labels is not None else label
        files = chunk_files(path, row) if store else (path,)
        yield f"{name}#{row:0{width}d}", FoundSample(files, {**arrays, "row": row}, held)


def _raw(
    name: str, path: Path, label: Any, data: Data, common: Mapping[str, Any]
) -> Iterator[tuple[str, FoundSample]]:
    """The samples of a file of plain numbers."""
    if data.raw is None:
        raise DataError(
            f'"{path.name}" holds plain numbers',
            hint='[data.raw] dtype = "float32", shape = [...] says which', code="NF-DATA-082",
        )
    size = np.dtype(data.raw.dtype).itemsize * int(np.prod(data.raw.shape))
    count, rest = divmod(path.stat().st_size, size)
    if rest or not count:
        raise DataError(
            f'"{path.name}" holds {path.stat().st_size} bytes, which are no whole samples',
            because=f"a sample of {data.raw.dtype} {list(data.raw.shape)} takes {size}", code="NF-DATA-083",
        )
    detail = {"kind": "raw", "dtype": data.raw.dtype, "shape": list(data.raw.shape), **common}
    width = len(str(count - 1))
    for row in range(count):
        yield (
            name if count == 1 else f"{name}#{row:0{width}d}",
            FoundSample((path,), {**detail, "row": row}, label),
        )


# --- paths


def paths(data: Data) -> Iterator[tuple[str, Path, Any]]:
    """Name, path and label (None unless a list file states one) of every file of the source."""
    where = data.source.path
    if any(c in str(where) for c in "*?[{"):
        root, files = expand(where)
        yield from ((f.relative_to(root).as_posix(), f, None) for f in files if is_sample(f, data))
    elif is_store(where):
        yield where.name, where, None
    elif where.is_dir():
        files = sorted(f for f in where.rglob("*") if f.is_file() and is_sample(f, data))
        yield from ((f.relative_to(where).as_posix(), f, None) for f in files)
    elif where.is_file():
        if where.suffix.lower() in LISTS:
            yield from _listed(where)
        elif is_sample(where, data):
            yield where.name, where, None
        else:
            raise DataError(
                f'"{data.source.text}" is not a data file that npuflow reads',
                hint=_supported(), code="NF-DATA-041",
            )
    else:
        near = [p.name for p in where.parent.iterdir()] if where.parent.is_dir() else []
        hint = suggestion(where.name, near) or "paths are relative to the recipe"
        raise DataError(
            f'no data at "{data.source.text}"', because=f"looked at {where}", hint=hint, code="NF-DATA-010",
        )


def is_data(path: Path) -> bool:
    return path.suffix.lower() in PICTURES + ARRAYS or is_store(path)


def is_sample(path: Path, data: Data) -> bool:
    """Whether a file of the source is one of its samples."""
    if data.reader is not None:
        return not path.name.startswith(".")
    return is_data(path) or (data.raw is not None and path.suffix.lower() in RAW)


def is_there(path: Path) -> bool:
    return path.is_file() or is_store(path)


def expand(pattern: Path) -> tuple[Path, list[Path]]:
    """Files that match, sorted, and the folder above the first wildcard. `{a,b}`
    alternatives are supported."""
    parts = pattern.parts
    at = next(i for i, part in enumerate(parts) if any(c in part for c in "*?[{"))
    root = Path(*parts[:at])
    rest = "/".join(parts[at:])
    matches = (
        {f for option in _braces(rest) for f in root.glob(option) if f.is_file() or is_store(f)}
        if root.is_dir()
        else set()
    )
    return root, sorted(matches)


def _braces(text: str) -> list[str]:
    inner = re.search(r"\{([^{}]*)\}", text)
    if inner is None:
        return [text]
    head, tail = text[: inner.start()], text[inner.end() :]
    return [full for option in inner[1].split(",") for full in _braces(head + option + tail)]


def _listed(path: Path) -> Iterator[tuple[str, Path, Any]]:
    """A list file: one path a line, relative to it, and a label behind a blank; as .csv with an optional
    header and a label in the second column; as .json paths, {"file", "label"}, or {FILE: LABEL}."""
    lines = _rows(path)
    if lines and path.suffix.lower() == ".csv" and not is_data(Path(lines[0][0])):
        lines = lines[1:]
    missing = [row[0] for row in lines if not is_there(path.parent / row[0])]
    if missing:
        raise DataError(
            f'{len(missing)} of {len(lines)} files of the list "{path.name}" do not exist',
            because=f"the first is {missing[0]}, looked for in {path.parent}", code="NF-DATA-042",
        )
    for row in lines:
        label = row[1] if len(row) > 1 else None
        yield row[0], path.parent / row[0], label_of(label) if isinstance(label, str) else label


def _rows(path: Path) -> list[Sequence[Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise DataError(
            f'"{path.name}" is not a text file of UTF-8', because=str(fault), code="NF-DATA-043",
        ) from fault
    if path.suffix.lower() == ".csv":
        return [row for row in csv.reader(text.splitlines()) if row and row[0].strip()]
    if path.suffix.lower() == ".json":
        return _of_json(path, text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [_row(path.parent, line) for line in lines]


def _row(folder: Path, line: str) -> Sequence[str]:
    """A path, or a path and a label behind the last blank."""
    file, *label = line.rsplit(None, 1)
    return [file, *label] if label and not is_there(folder / line) and is_there(folder / file) else [line]


def _of_json(path: Path, text: str) -> list[Sequence[Any]]:
    try:
        held = json.loads(text)
        pairs = held.items() if isinstance(held, dict) else held
        rows: list[Sequence[Any]] = [_entry(one) for one in pairs]
        if not all(row and isinstance(row[0], str) for row in rows):
            raise ValueError("an entry names no file")
        return rows
    except (ValueError, KeyError, TypeError) as fault:
        raise DataError(
            f'"{path.name}" is not a list of files', because=f"{type(fault).__name__}: {fault}",
            hint='[{"file": "a.png", "label": 3}, ...], ["a.png", ...] or {"a.png": 3}', code="NF-DATA-084",
        ) from fault


def _entry(one: Any) -> Sequence[Any]:
    """File and label of one entry of a .json list."""
    if isinstance(one, dict):
        return [one["file"], *([one["label"]] if "label" in one else [])]
    return [one] if isinstance(one, str) else list(one)


def _supported() -> str:
    kinds = f"pictures ({', '.join(PICTURES)}), .npy, .npz, zarr stores"
    return f"{kinds}, lists of them (.txt, .csv, .json), random, python:module:function"
