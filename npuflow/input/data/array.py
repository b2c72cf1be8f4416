"""Samples in npy, npz and zarr files: rows of arrays, without reading what is not asked for."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, meant
from npuflow.input.data import zarr_store
from npuflow.input.data.config import DamagedData, Data
from npuflow.ir.types import Array

Header = tuple[tuple[int, ...], np.dtype[Any]]
# what numpy raises for files that are damaged or of another kind
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def row_count(path: Path, data: Data) -> tuple[int, list[Any] | None]:
    """Number of samples in the file, and their labels if it holds any. Only headers and labels are read."""
    found = headers(path)
    labels: list[Any] | None = None
    if "" in found:
        wanted = [""]
    else:
        wanted = list(data.arrays.values()) or inputs(path, found, data.label)
        _need(path, wanted, found)
        if data.label in found and data.label not in wanted:
            labels = np.asarray(load(path)[data.label][...]).tolist()
    counts = {name: found[name][0][0] for name in wanted if found[name][0]}
    if len(counts) < len(wanted):
        scalar = next(name for name in wanted if not found[name][0])
        raise DataError(
            f'"{path.name}": the array "{scalar}" is a scalar and has no rows',
            hint="[data] arrays picks others", code="NF-DATA-020",
        )
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(
            f'the arrays of "{path.name}" have different numbers of rows: {listed}',
            hint="[data] arrays picks those that are inputs; rows = false takes a file as one sample",
            code="NF-DATA-021",
        )
    count = next(iter(counts.values()), 0)
    if labels is not None and len(labels) != count:
        raise DataError(f'"{path.name}" has {count} samples and {len(labels)} labels', code="NF-DATA-022")
    return count, labels


def inputs(path: Path, found: Mapping[str, Header], label: str | None) -> list[str]:
    """The arrays that can be model inputs when the recipe names none: numbers, and not the labels."""
    numbers = [name for name, (_, kind) in found.items() if name != label and kind.kind in "fiub"]
    if not numbers and any(name != label for name in found):
        others = ", ".join(f'"{name}" {_held(kind)}' for name, (_, kind) in found.items() if name != label)
        raise DataError(
            f'"{path.name}" holds no array of numbers',
            because=others,
            hint='text is for [data] arrays = { INPUT = "NAME" } and models with text inputs; else turn it '
            'into numbers first',
            code="NF-DATA-023",
        )
    return numbers


def _held(kind: np.dtype[Any]) -> str:
    if kind.kind == "O":
        return "holds Python objects, which are never loaded"
    return f"holds text ({kind})" if kind.kind in "US" else f"is {kind}"


def headers(path: Path) -> dict[str, Header]:
    """Array name -> shape and dtype; the name is "" where the file is a single array."""
    if zarr_store.is_store(path):
        return {
            name: (tuple(array.shape), np.dtype(array.dtype))
            for name, array in zarr_store.arrays(path).items()
        }
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                return {"": _header(file)}
        found = {}
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".npy"):
                    with archive.open(member) as inner:
                        found[member.removesuffix(".npy")] = _header(inner)
        return found
    except UNREADABLE as fault:
        raise DamagedData(
            f'"{path.name}" is not a readable array file', because=unreadable(fault), code="NF-DATA-024",
        ) from fault


def _header(file: Any) -> Header:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return tuple(shape), np.dtype(kind)


def unreadable(fault: Exception) -> str:
    """Why numpy cannot read a file. It takes what it does not know for pickled objects."""
    if "pickle" in str(fault).lower():
        return "it is no file of numpy's, or it holds Python objects instead of numbers"
    return str(fault) or type(fault).__name__


def load(path: Path) -> Mapping[str, Array]:
    """The arrays of a file; of an npz or a zarr store each is read when asked for. Never unpickles."""
    if zarr_store.is_store(path):
        return zarr_store.StoreRows(path)
    try:
        loaded = np.load(path, mmap_mode="r" if path.suffix.lower() == ".npy" else None, allow_pickle=False)
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as fault:
        raise DamagedData(
            f'"{path.name}" is not a readable array file', because=str(fault), code="NF-DATA-024",
        ) from fault
    return {"": loaded} if isinstance(loaded, np.ndarray) else loaded


class FileRows:
    """Rows of array files, each array read once however many of its rows are wanted."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._arrays: dict[str, Array] = {}
        self._file: Mapping[str, Array] = {}

    def sample(self, path: Path, detail: Mapping[str, Any]) -> dict[str, Array]:
        """The arrays of one sample by model input."""
        if path != self._path:
            self._path, self._file, self._arrays = path, load(path), {}
        named: Mapping[str, str] = detail.get("arrays") or {n: n for n in self._inputs(path, detail)}
        _need(path, list(named.values()), self._file)
        row = detail.get("row")
        return {name: self._take(path, source, row) for name, source in named.items()}

    def _inputs(self, path: Path, detail: Mapping[str, Any]) -> list[str]:
        return [""] if "" in self._file else inputs(path, headers(path), detail.get("label"))

    def _take(self, path: Path, name: str, row: int | None) -> Array:
        if name not in self._arrays:
            try:
                self._arrays[name] = self._file[name]
            except (ValueError, zipfile.BadZipFile, EOFError, OSError) as fault:
                raise DataError(
                    f'the array "{name}" of "{path.name}" is not readable',
                    because=str(fault), code="NF-DATA-025",
                ) from fault
        array = self._arrays[name]
        return np.array(array if row is None else array[row])


def _need(path: Path, wanted: list[str], held: Any) -> None:
    for name in wanted:
        if name not in held:
            raise DataError(
                f'"{path.name}" has no array "{name}"',
                because=f"it holds {', '.join(held) or 'nothing'}",
                hint=meant(name, list(held)), code="NF-DATA-026",
            )
