"""Samples in zarr stores on disk: arrays or groups of arrays, whose rows lie in chunk files of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from npuflow.base.errors import DataError
from npuflow.input.data.config import DamagedData
from npuflow.ir.types import Array

MARKS = ("zarr.json", ".zarray", ".zgroup")
ABOUT = (*MARKS, ".zattrs", ".zmetadata")


def is_store(path: Path) -> bool:
    """Whether a folder is a zarr array or group (format 2 or 3)."""
    return path.is_dir() and any((path / mark).is_file() for mark in MARKS)


def arrays(path: Path) -> dict[str, Any]:
    """zarr arrays by name, opened but not read; the name is "" where the store is a single array."""
    return _opened(str(path), _stamp(path))


def _stamp(path: Path) -> tuple[int, ...]:
    return tuple(f.stat().st_mtime_ns for f in sorted(path.rglob("*")) if f.name in ABOUT)


@lru_cache(maxsize=4)
def _opened(path: str, stamp: tuple[int, ...]) -> dict[str, Any]:
    import zarr

    try:
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": root}
        return {
            name: array
            for name, array in sorted(root.members(max_depth=None))
            if isinstance(array, zarr.Array)
        }
    except Exception as fault:  # zarr and its codecs raise whatever they like for a damaged store
        raise DamagedData(
            f'"{Path(path).name}" is not a readable zarr store',
            because=_said(fault),
            code="NF-DATA-058",
        ) from fault


class StoreRows(Mapping[str, Array]):
    """The arrays of a store, to be asked for one by one; a row is read from its chunks alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held = arrays(path)

    def __getitem__(self, name: str) -> Array:
        return _Lazy(self.path, name, self.held[name])  # type: ignore[return-value]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class _Lazy:
    """Just enough of an array: indexing reads."""

    def __init__(self, path: Path, name: str, array: Any) -> None:
        self.path, self.name, self.array, self.dtype = path, name, array, array.dtype

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        try:
            return np.asarray(self.array[index])
        except Exception as fault:  # see `_opened`
            where = f'the array "{self.name}" of "{self.path.name}"' if self.name else f'"{self.path.name}"'
            raise DataError(f"{where} is not readable", because=_said(fault), code="NF-DATA-059") from fault


def chunk_files(path: Path, row: int | None) -> tuple[Path, ...]:
    """The metadata files and the chunks that hold a row (None: all of them); the first
    file is the store's own mark."""
    about = _about(path, _stamp(path))
    if row is None:
        return (*about, *(f for f in sorted(path.rglob("*")) if f.is_file() and f.name not in ABOUT))
    found: list[Path] = []
    for name, array in arrays(path).items():
        if array.ndim == 0 or row >= array.shape[0]:
            continue
        sizes = array.shards or array.chunks
        grid = [range(-(-d // c)) for d, c in zip(array.shape[1:], sizes[1:], strict=True)]
        for rest in product(*grid):
            chunk = path / name / array.metadata.encode_chunk_key((row // sizes[0], *rest))
            if chunk.is_file():                       # one that is missing is all fill value
                found.append(chunk)
    return (*about, *found)


@lru_cache(maxsize=4)
def _about(path: Path, stamp: tuple[int, ...]) -> tuple[Path, ...]:
    files = [f for f in sorted(path.rglob("*")) if f.name in ABOUT]
    first = next(path / mark for mark in MARKS if (path / mark).is_file())
    return (first, *(f for f in files if f != first))


def _said(fault: Exception) -> str:
    return str(fault) or type(fault).__name__
