"""Listing a data source: stable sample ids, the files behind each, how each is read, and which are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.digest import digest
from npuflow.base.errors import AbsentError, DataError, suggestion
from npuflow.base.paths import kind_of
from npuflow.base.tables import table_of
from npuflow.input.data.array import headers, inputs, row_count
from npuflow.input.data.config import DamagedData, Data, FoundSample
from npuflow.input.data.image import SUFFIXES as PICTURES
from npuflow.input.data.joined import placed
from npuflow.input.data.labels import classes, label_file
from npuflow.input.data.lists import LISTS, is_data, listed_files
from npuflow.input.data.patterns import WILD, expand
from npuflow.input.data.python import python_source, read_by
from npuflow.input.data.steps import applied
from npuflow.input.data.text import found_text
from npuflow.input.data.zarr_store import chunk_files, is_store
from npuflow.input.text.model import TextModel


def chosen(listed: dict[str, FoundSample], data: Data) -> dict[str, FoundSample]:
    """At most `count` of them. The choice looks at ids and classes only, so that a new
    file displaces few of the old."""
    if data.choose == "balanced":
        listed = _labelled(listed, data)
    elif data.labels is not None:
        label_file(data.labels.path)          # a balanced choice alone needs it, but it must be there
    if data.count is None or data.count >= len(listed):
        return listed
    names = list(listed)
    if data.choose == "first":
        return {name: listed[name] for name in names[: data.count]}
    rank = {name: digest([data.seed, name]) for name in names}
    order = sorted(names, key=rank.__getitem__)
    kept = set(order[: data.count] if data.choose == "random" else balanced(order, listed, data.count))
    return {name: listed[name] for name in names if name in kept}


def balanced(order: list[str], listed: Mapping[str, FoundSample], count: int) -> list[str]:
    """Again and again the next sample of the class that has fewest; one without classes
    counts as a class of its own."""
    kinds = {name: classes(listed[name].label) or ("",) for name in order}
    waiting: dict[str, list[str]] = {}
    for name in reversed(order):
        for kind in kinds[name]:
            waiting.setdefault(kind, []).append(name)
    have: Counter[str] = Counter()
    taken: dict[str, None] = {}
    while len(taken) < count and waiting:
        kind = min(waiting, key=lambda k: (have[k], k))
        name = waiting[kind].pop()
        if not waiting[kind]:
            del waiting[kind]
        if name not in taken:
            taken[name] = None
            have.update(kinds[name])
    return list(taken)


def _labelled(listed: dict[str, FoundSample], data: Data) -> dict[str, FoundSample]:
    """With the labels of the label file; without one, those that the data themselves hold."""
    from dataclasses import replace

    if data.labels is not None:
        known: dict[str, Any] = label_file(data.labels.path)
        listed = {name: replace(one, label=known.get(name, one.label)) for name, one in listed.items()}
    if all(one.label is None for one in listed.values()):
        raise DataError(
            'choose = "balanced" needs labels, and no sample has one',
            because=f"samples are called {next(iter(listed), 'nothing')}" if data.labels is not None else "",
            hint='labels = "labels.csv" (file, label) or COCO annotations (.json), a list file with labels, '
            'a label array',
            code="NF-DATA-027",
        )
    return listed


RAW = (".bin", ".raw")
RANDOM_COUNT = 32


def found(data: Data, model: TextModel | None = None) -> dict[str, FoundSample]:
    """Every chosen sample by id, in order. `model`: whose tokens texts become."""
    table = table_of(type(data))
    if data.text is not None:
        try:
            return found_text(data, data.text, model, lambda listed: chosen(listed, data))
        except DataError as fault:
            raise fault.at(key=f"{table}.text") from None
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
        files = list(entries(data))
        everything = (pair for row in files for pair in _entry(*row, data, common, len(files) == 1))
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
    return placed(listed, data)


def _entry(
    name: str, files: Mapping[str, Path], label: Any, data: Data, common: Mapping[str, Any], alone: bool
) -> Iterator[tuple[str, FoundSample]]:
    """The samples of one entry of the source: of a file, or of a file for each of several inputs."""
    if "" in files:
        yield from _file(name, files[""], label, data, common, alone)
    else:
        yield _of_inputs(name, files, label, data, common)


def _of_inputs(
    name: str, files: Mapping[str, Path], label: Any, data: Data, common: Mapping[str, Any]
) -> tuple[str, FoundSample]:
    """A sample of several files, each of which is one input's."""
    whole, found, parts = replace(data, rows=False), list[Path](), list[dict[str, Any]]()
    for key, path in files.items():
        _, one = next(iter(_file(name, path, None, whole, common, False)))
        parts.append({"input": key, "files": len(one.files), **one.detail})
        found.extend(one.files)
    detail = {"kind": "files", "inputs": parts}
    if "nonfinite" in common:
        detail["nonfinite"] = common["nonfinite"]
    return name, FoundSample(tuple(found), detail, label)


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
    """Name, path and label (None unless a list file states one) of every file of the source that is a sample
    of its own."""
    yield from ((name, files[""], label) for name, files, label in entries(data) if "" in files)


def entries(data: Data) -> Iterator[tuple[str, Mapping[str, Path], Any]]:
    """Name, files by input ("" for a single file) and label of every entry of the source."""
    where = data.source.path
    if any(c in str(where) for c in WILD):
        root, files = expand(where)
        yield from ((f.relative_to(root).as_posix(), {"": f}, None) for f in files if is_sample(f, data))
    elif is_store(where):
        yield where.name, {"": where}, None
    elif where.is_dir():
        files = sorted(f for f in where.rglob("*") if f.is_file() and is_sample(f, data))
        yield from ((f.relative_to(where).as_posix(), {"": f}, None) for f in files)
    elif where.is_file():
        if where.suffix.lower() in LISTS:
            yield from listed_files(where)
        elif is_sample(where, data):
            yield where.name, {"": where}, None
        else:
            raise DataError(
                f'"{data.source.text}" is not a data file that npuflow reads',
                hint='[data.raw] dtype = "int16", shape = [1, 16000] says how to read plain numbers'
                if where.suffix.lower() in RAW
                else _supported(),
                code="NF-DATA-041",
            )
    else:
        if kind := kind_of(where):
            raise AbsentError(
                f'"{data.source.text}" is no file or folder of samples', because=f"{where} is {kind}",
                hint=_supported(), code="NF-DATA-233",
            )
        near = [p.name for p in where.parent.iterdir()] if where.parent.is_dir() else []
        hint = suggestion(where.name, near) or "paths are relative to the recipe"
        raise AbsentError(
            f'no data at "{data.source.text}"', because=f"looked at {where}", hint=hint, code="NF-DATA-010",
        )


def is_sample(path: Path, data: Data) -> bool:
    """Whether a file of the source is one of its samples."""
    if data.reader is not None:
        return not path.name.startswith(".")
    return is_data(path) or (data.raw is not None and path.suffix.lower() in RAW)


def _supported() -> str:
    kinds = f"pictures ({', '.join(PICTURES)}), .npy, .npz, zarr stores"
    return f"{kinds}, lists of them (.txt, .csv, .json, .jsonl), random, python:module:function"
