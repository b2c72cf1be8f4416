"""List files: paths with labels, or a file for each of several inputs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from npuflow.base.errors import DataError
from npuflow.input.data.image import SUFFIXES as PICTURES
from npuflow.input.data.labels import label_of
from npuflow.input.data.zarr_store import is_store

ARRAYS = (".npy", ".npz")
LISTS = (".txt", ".lst", ".csv", ".json", ".jsonl")
LABEL = "label"


def is_data(path: Path) -> bool:
    return path.suffix.lower() in PICTURES + ARRAYS or is_store(path)


def is_there(path: Path) -> bool:
    try:
        return path.is_file() or is_store(path)
    except OSError:                       # a line of a text, too long to be the name of a file
        return False


def listed_files(path: Path) -> Iterator[tuple[str, dict[str, Path], Any]]:
    """Name, files by input and label of every entry of a list file, with paths relative to it. The key is ""
    where an entry is a single file.

    One path a line, with a label behind a blank; as .csv with an optional header and a label in the second
    column; as .json paths, {"file", "label"}, or {FILE: LABEL}; as .jsonl one such entry a line. Several
    files an entry: columns of a .csv, or of lines with blanks, whose header names the inputs, or
    {"files": {INPUT: FILE}, "label"} in a .json or .jsonl."""
    entries = _entries(path)
    _all_there(path, [file for files, _ in entries for file in files.values()])
    for files, label in entries:
        real = {key: path.parent / file for key, file in files.items()}
        yield "+".join(files.values()), real, label_of(label) if isinstance(label, str) else label


def _entries(path: Path) -> list[tuple[dict[str, Any], Any]]:
    """Files by input, as they are written, and label of every entry."""
    text, kind = _text(path), path.suffix.lower()
    if kind in (".json", ".jsonl"):
        return _of_json(path, text, lines=kind == ".jsonl")
    if kind == ".csv":
        rows: list[Sequence[str]] = [r for r in csv.reader(text.splitlines()) if r and r[0].strip()]
        several = _columns(path, rows)
        if rows and not several and not is_data(Path(rows[0][0])):
            rows = rows[1:]
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        several = _columns(path, [line.split() for line in lines])
        rows = [] if several else [_row(path.parent, line) for line in lines]
    return several or [({"": row[0]}, row[1] if len(row) > 1 else None) for row in rows]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise DataError(
            f'"{path.name}" is not a text file of UTF-8', because=str(fault), code="NF-DATA-043",
        ) from fault


def _row(folder: Path, line: str) -> Sequence[str]:
    """A path, or a path and a label behind the last blank."""
    file, *label = line.rsplit(None, 1)
    return [file, *label] if label and not is_there(folder / line) and is_there(folder / file) else [line]


def _of_json(path: Path, text: str, lines: bool) -> list[tuple[dict[str, Any], Any]]:
    """`lines`: an entry a line (JSON lines)."""
    try:
        held = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
        if isinstance(held, list) and all(isinstance(one, dict) and _by_input(one) for one in held):
            return [(dict(one["files"]), one.get(LABEL)) for one in held]
        pairs = held.items() if isinstance(held, dict) else held
        rows: list[Sequence[Any]] = [_entry(one) for one in pairs]
        if not all(row and isinstance(row[0], str) for row in rows):
            raise ValueError("an entry names no file")
    except (ValueError, KeyError, TypeError) as fault:
        raise DataError(
            f'"{path.name}" is not a list of files', because=f"{type(fault).__name__}: {fault}",
            hint='[{"file": "a.png", "label": 3}, ...], ["a.png", ...] or {"a.png": 3}', code="NF-DATA-084",
        ) from fault
    return [({"": row[0]}, row[1] if len(row) > 1 else None) for row in rows]


def _entry(one: Any) -> Sequence[Any]:
    """File and label of one entry of a .json list."""
    if isinstance(one, dict):
        return [one["file"], *([one["label"]] if "label" in one else [])]
    return [one] if isinstance(one, str) else list(one)


def _by_input(entry: dict[str, Any]) -> bool:
    files = entry.get("files")
    return isinstance(files, dict) and all(isinstance(file, str) for file in files.values())


def _columns(path: Path, rows: Sequence[Sequence[Any]]) -> list[tuple[dict[str, Any], Any]]:
    """Files by the header's names, and labels, where a second column holds files as well."""
    head, *lines = rows or [[]]
    seconds = (row[1] for row in lines if len(row) > 1)
    if len(head) < 2 or any(is_data(Path(cell)) for cell in head) or not _is_file(path, next(seconds, "")):
        return []
    short = next((row for row in lines if len(row) != len(head)), None)
    if short is not None:
        raise DataError(
            f'a line of the list "{path.name}" has {len(short)} columns, its header {len(head)}',
            because=f"it begins with {short[0]}",
            hint="a line has a file for each input that the header names, and perhaps a label",
            code="NF-DATA-217",
        )
    found = []
    for row in lines:
        cells = dict(zip(head, row, strict=True))
        label = cells.pop(LABEL, None)
        found.append((cells, label))
    return found


def _is_file(path: Path, name: str) -> bool:
    return bool(name.strip()) and is_there(path.parent / name)


def _all_there(path: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if not is_there(path.parent / name)]
    if missing:
        raise DataError(
            f'{len(missing)} of {len(names)} files of the list "{path.name}" do not exist',
            because=f"the first is {missing[0][:120]}, looked for in {path.parent}",
            hint=f'where it is a text for a language model: text = "{path.name}"'
            if path.suffix.lower() == ".txt" and len(missing) == len(names)
            else "",
            code="NF-DATA-042",
        )
