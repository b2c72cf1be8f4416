"""What a board gave: codes of the tensors' own types, or the real numbers that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuflow.base.errors import DataError
from npuflow.checks.board.golden import Array, Golden
from npuflow.input.data.array import UNREADABLE, unreadable
from npuflow.program.meta import CONTAINERS


def dumps(golden: Golden, place: Path) -> dict[str, Array]:
    """An npz, or a folder of npz, npy and raw files named as in the manifest: arrays [samples, *shape] of
    the tensors' types, or of a float type where the dump holds real numbers. Other types are a DataError."""
    paths = sorted(p for p in place.iterdir() if p.is_file()) if place.is_dir() else [place]
    names = {stem: name for name, stem in golden.files.items()}
    found: dict[str, Array] = {}
    for path in paths:
        if not path.is_file():
            raise DataError(
                f'no dump "{path}"',
                hint="--dump PATH: an npz, or a folder of npy, npz or raw files that golden.json names",
                code="NF-DATA-092",
            )
        try:
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as held:
                    found.update({n: held[n] for n in held.files if n in golden.tensors})
            elif path.stem in names or path.stem in golden.tensors:
                name = names.get(path.stem, path.stem)
                found[name] = _one(path, golden.tensors[name])
        except UNREADABLE as error:
            raise DataError(
                f'the dump "{path}" cannot be read', because=unreadable(error), code="NF-DATA-199"
            ) from error
    if not found:
        first = next(iter(golden.files.items()), ("", ""))
        raise DataError(
            f'"{place}" holds none of the program\'s tensors',
            because=f'an npz has its tensors by name, "{first[0]}", a folder as {first[1]}.bin or .npy',
            hint="golden.json has the names of all",
            code="NF-DATA-200",
        )
    likes = golden.tensors
    return {n: _typed(n, _shaped(n, array, likes[n]), likes[n]) for n, array in found.items()}


def _one(path: Path, like: Array) -> Array:
    if path.suffix == ".npy":
        return np.asarray(np.load(path, allow_pickle=False))
    body = path.read_bytes()
    item = CONTAINERS.get(like.dtype.name, like.dtype.itemsize)
    if len(body) % item:
        raise DataError(f'"{path}" has {len(body)} bytes, elements have {item}', code="NF-DATA-093")
    return np.frombuffer(body, like.dtype.newbyteorder("<")).astype(like.dtype)


def _shaped(name: str, array: Array, like: Array) -> Array:
    """All samples, or the first only."""
    each = like[0].size
    if array.size % max(each, 1) or array.size // max(each, 1) not in range(1, len(like) + 1):
        raise DataError(
            f'the dump of "{name}" has {array.size} elements; a sample has {each}',
            hint="a raw file holds the bytes of codes; real numbers go into an npy or npz file",
            code="NF-DATA-095",
        )
    return array.reshape(-1, *like.shape[1:])


def _typed(name: str, array: Array, like: Array) -> Array:
    """Codes of the tensor's type, of either byte order, or real numbers: nothing is cast."""
    if array.dtype.kind == "f":
        return array
    if array.dtype.kind == like.dtype.kind and array.dtype.itemsize == like.dtype.itemsize:
        return array.astype(like.dtype, copy=False)
    raise DataError(
        f'the dump of "{name}" holds {array.dtype}, the tensor has codes of {like.dtype}',
        because=_reason(array, like[: len(array)]),
        hint=f"dump codes as {like.dtype}, or the real numbers, scale * (code - zero point), as float32",
        code="NF-DATA-240",
    )


def _reason(array: Array, right: Array) -> str:
    """What the numbers of another integer type have to do with the right codes."""
    if array.dtype.kind not in "iu":
        return ""
    apart = array.astype(np.int64) - right.astype(np.int64)
    if not apart.any():
        return "its numbers are the right codes in another type"
    if array.dtype.itemsize != right.dtype.itemsize:
        return ""
    if np.array_equal(array.view(right.dtype), right):
        return f"signed and unsigned are exchanged: its bytes read as {right.dtype} are the right codes"
    half = 1 << 8 * right.dtype.itemsize - 1
    if np.all(apart == half) or np.all(apart == -half):
        way = "above" if apart.flat[0] > 0 else "below"
        return f"signed and unsigned are exchanged: its numbers lie {half} {way} the right codes"
    return ""
