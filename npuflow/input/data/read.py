"""Reading listed samples: geometry is done, bytes are kept, and a broken file is a sample that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.input.data.array import FileRows
from npuflow.input.data.config import InputSample
from npuflow.input.data.image import decode
from npuflow.input.data.python import UnreadableFile, python_samples, read_file
from npuflow.input.data.steps import applied, finished, grey, of_picture, split
from npuflow.input.data.text import KIND, fed
from npuflow.ir.types import Array, TensorType

Listed = tuple[tuple[Path, ...], Mapping[str, Any]]     # the files and the detail of a `Found`


def samples(listed: Mapping[str, Listed]) -> Iterator[tuple[str, InputSample]]:
    """Every listed sample, one at a time; rows of one file share its decoding."""
    rows = FileRows()
    pending: dict[tuple[Path, str, str], set[str]] = {}
    for name, (files, detail) in listed.items():
        kind = detail["kind"]
        if kind == "random":
            yield name, InputSample(noise=int(detail["seed"]))
        elif kind == KIND:
            yield name, InputSample(fed(detail))
        elif kind == "python":
            pending.setdefault((files[0], detail["module"], detail["function"]), set()).add(name)
        elif kind == "files":
            yield name, _sound(name, _together(files, detail, rows), detail)
        else:
            yield name, _sound(name, _one(files, detail, rows), detail)
    for (path, _, _), names in pending.items():
        detail = listed[next(iter(names))][1]
        for name, made in python_samples(path, detail, names):
            yield name, _sound(name, _sample(made, detail, picture=False), detail)


def prepared(path: Path, preparation: Mapping[str, Any], name: str, kind: TensorType) -> Array:
    """A picture as the recipe that a program was built from feeds it (`Preparation.plain`)."""
    pixels = decode(path, preparation["alpha"], preparation["colour"])
    return prepared_pixels(pixels, preparation, name, kind)


def prepared_pixels(pixels: Array, preparation: Mapping[str, Any], name: str, kind: TensorType) -> Array:
    """The same for a decoded picture, [H, W] or [H, W, 3]."""
    first, rest = split(of_picture(preparation["steps"]))
    if preparation["colour"] and pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, 2)
    single = len(kind.shape) == 4 and 1 in (kind.shape[1], kind.shape[3])
    if single and pixels.ndim == 3 and not any("channels" in step for step in preparation["steps"]):
        pixels = grey(pixels)                 # the recipe fed arrays of one channel
    pixels = applied(pixels, first, name)
    if _channels_last(kind.shape) and not any("layout" in step for step in rest):
        rest = [*rest, {"layout": "nhwc"}]    # the recipe fed arrays [H, W, C]
    return InputSample({name: pixels}, tuple(rest), picture=True).feed({name: kind})[name]


def _channels_last(shape: Sequence[int]) -> bool:
    """Whether a picture fits an input with its channels in the last axis only."""
    return len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)


def _one(files: tuple[Path, ...], detail: Mapping[str, Any], rows: FileRows) -> InputSample:
    """A sample of one file."""
    if detail["kind"] == "reader":
        try:
            arrays = read_file(files[0], files[1], detail)
        except UnreadableFile as fault:
            return InputSample(broken=str(fault))
        return _sample(arrays, detail, picture=False)
    return _read(files[0], detail, rows)


def _together(files: tuple[Path, ...], detail: Mapping[str, Any], rows: FileRows) -> InputSample:
    """A sample of a file for each input; all steps are done, as they differ with the kind of file."""
    arrays: dict[str, Array] = {}
    at = 0
    for part in detail["inputs"]:
        name, own = part["input"], files[at : at + part["files"]]
        at += part["files"]
        read = _one(own, part, rows)
        if read.broken:
            return read
        if not name:                      # a sample of its own, beside which others have inputs
            try:
                arrays |= {k: finished(a, read.steps, k, read.picture) for k, a in read.arrays.items()}
            except DataError as fault:
                return InputSample(broken=str(fault))
            continue
        if len(read.arrays) != 1:
            held = ", ".join(read.arrays) or "none"
            return InputSample(broken=f'"{own[0].name}" holds not one array for "{name}" but {held}')
        try:
            array = next(iter(read.arrays.values()))
            arrays[name] = finished(array, read.steps, name, read.picture)
        except DataError as fault:
            return InputSample(broken=str(fault))
    return InputSample(arrays)


def _read(path: Path, detail: Mapping[str, Any], rows: FileRows) -> InputSample:
    try:
        if detail["kind"] == "picture":
            array = decode(path, detail.get("alpha", "drop"), detail.get("colour", True))
            return _sample({"": array}, detail, picture=True)
        if detail["kind"] == "raw":
            return _sample({"": _plain_numbers(path, detail)}, detail, picture=False)
        # of a store the first file is the mark in its folder
        where = path.parent if detail["kind"] == "zarr" else path
        return _sample(rows.sample(where, detail), detail, picture=False)
    except DataError as fault:
        return InputSample(broken=str(fault))


def _plain_numbers(path: Path, detail: Mapping[str, Any]) -> Array:
    """One sample of a .bin or .raw file."""
    kind, shape = np.dtype(detail["dtype"]).newbyteorder("<"), tuple(detail["shape"])
    count = int(np.prod(shape))
    try:
        held = np.fromfile(path, kind, count, offset=detail["row"] * count * kind.itemsize)
        return held.reshape(shape).astype(detail["dtype"])
    except (OSError, ValueError) as fault:
        raise DataError(f'"{path.name}" cannot be read', because=str(fault), code="NF-DATA-085") from fault


def _sound(name: str, sample: InputSample, detail: Mapping[str, Any]) -> InputSample:
    """A sample with NaN or infinity in it becomes one that is left out, or an error:
    it would spoil every range."""
    policy = detail.get("nonfinite", "leave_out")
    if policy == "keep":
        return sample
    for key, array in sample.arrays.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        counts = " and ".join(
            text for number, text in ((nan, f"{nan} NaN"), (inf, f"{inf} infinities")) if number
        )
        held = f'the array "{key}" holds' if key else "it holds"
        reason = f"{held} {counts} of {array.size} values"
        if policy == "error":
            raise DataError(
                f'the sample "{name}" is not finite', because=reason,
                hint='[data] nonfinite = "leave_out" goes on without it, "keep" feeds it as it is',
                code="NF-DATA-053",
            ).at(item=name)
        return InputSample(broken=f'{reason}; [data] nonfinite = "keep" would feed it as it is')
    return sample


def _sample(arrays: Mapping[str, Array], detail: Mapping[str, Any], picture: bool) -> InputSample:
    steps = detail.get("steps", ())
    first, rest = split(of_picture(steps) if picture else steps)
    if "" in arrays and any(step.get("input") for step in first):
        first, rest = [], [*first, *rest]  # which model input this array is for is known when it is fed
    return InputSample(
        {name: applied(array, first, name) for name, array in arrays.items()}, tuple(rest), picture
    )
