"""Arrays on disk: small ones in one npz file, large ones in zarr, both verified before a byte is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.digest import Hasher
from npuflow.base.errors import StoreError
from npuflow.base.mapped import forget
from npuflow.flow import store_npz
from npuflow.flow.store_files import Counted
from npuflow.flow.store_manifest import bytes_digest, file_digest

Array = np.ndarray[Any, Any]
Files = dict[str, tuple[int, str]]
Verified = Callable[[str], bytes]  # path inside the object -> its checked bytes

SMALL = 1 << 22  # bytes of an array up to which it goes into the entry's npz file
CHUNK = 1 << 22
MAPPED = 1 << 20  # bytes from which an array that is to be mapped is a file of its own
_KINDS = "biufc"
_GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}\n'
_RESERVED = ("zarr.json", ".", "..")  # what an array in a group or a file cannot be called
_LONGEST = 200


def write_arrays(
    folder: Path | None, name: str, arrays: Mapping[str, Array], mapped: bool = False
) -> tuple[dict[str, Any], Files]:
    """Write the arrays of one entry; return their members and the files that hold them.

    Small ones share NAME.npz, each large one is an array of the zarr group NAME.zarr. `mapped`: each large
    one is a file NAME.npy/ARRAY.npy. One array without a name is NAME.zarr or NAME.npy itself.
    """
    members: dict[str, Any] = {}
    files: Files = {}
    small: dict[str, Array] = {}
    for key in sorted(arrays):
        array = _plain(key, arrays[key])
        members[key] = one = {
            "dtype": array.dtype.str, "shape": list(array.shape), "digest": _content(array)
        }
        if mapped and array.nbytes >= MAPPED:
            one["npy"] = place = f"{name}.npy/{_file(key)}.npy" if key else f"{name}.npy"
            if folder is not None:
                files[place] = _write_npy(folder / place, array)
            forget(array)
        elif array.nbytes <= SMALL or array.ndim == 0:
            small[key] = array
            one["npz"] = f"{name}.npz"
        else:
            one["zarr"] = place = f"{name}.zarr/{_file(key)}" if key else f"{name}.zarr"
            if folder is not None:
                files |= _write_zarr(folder / place, place, array.dtype, array.shape, [array])
                files |= _write_group(folder, name) if key else {}
    if folder is not None and (small or not members):
        files[f"{name}.npz"] = _write_npz(folder / f"{name}.npz", small)
    return members, files


def _write_npz(path: Path, arrays: Mapping[str, Array]) -> tuple[int, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        sink = Counted(file)
        store_npz.write(arrays, sink)
    return sink.size, sink.hexdigest()


def _write_group(folder: Path, name: str) -> Files:
    """What makes the large arrays of an entry a zarr group, once."""
    place = f"{name}.zarr/zarr.json"
    if not (folder / place).exists():
        (folder / place).write_bytes(_GROUP)
    return {place: (len(_GROUP), bytes_digest(_GROUP))}


def write_blocks(
    path: Path | None, place: str, dtype: str, shape: tuple[int, ...], blocks: Iterable[Array]
) -> tuple[dict[str, Any], Files]:
    """Write one array that arrives in consecutive blocks of its first axis."""
    kind = np.dtype(dtype).newbyteorder("<")
    hasher = _array_hasher(kind, shape)

    def checked() -> Iterable[Array]:
        rows = 0
        for block in blocks:
            array = np.ascontiguousarray(block, dtype=kind)
            if array.shape[1:] != shape[1:]:
                raise StoreError(
                    f"a block of shape {array.shape} does not fit an array of shape {shape}",
                    code="NF-STORE-008",
                )
            rows += array.shape[0]
            _feed(hasher, array)
            yield array
        if rows != shape[0]:
            raise StoreError(f"the blocks hold {rows} rows, the array has {shape[0]}", code="NF-STORE-009")

    files: Files = {}
    if path is None:
        for _ in checked():
            pass
    else:
        files = _write_zarr(path, place, kind, shape, checked())
    member = {"dtype": kind.str, "shape": list(shape), "digest": hasher.hexdigest(), "zarr": place}
    return {"": member}, files


def _write_npy(path: Path, array: Array) -> tuple[int, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return file_digest(path)


def open_npy(path: Path) -> Array:
    """An array in a checked file, mapped: only what is looked at comes into memory."""
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _plain(key: str, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in _KINDS:
        hint = "an array has numbers or booleans, not text or objects"
        raise StoreError(f"array {key!r} has dtype {array.dtype}", hint=hint, code="NF-STORE-010")
    return array if array.dtype.byteorder in "<|=" else array.astype(array.dtype.newbyteorder("<"))


def _array_hasher(dtype: np.dtype[Any], shape: Iterable[int]) -> Hasher:
    return Hasher(f"array {dtype.newbyteorder('<').str} {'x'.join(map(str, shape))}")


def _feed(hasher: Hasher, array: Array) -> None:
    """Digest C-order bytes without ever holding a second copy of a large array."""
    if array.flags.c_contiguous:
        hasher.update(array.reshape(-1).view(np.uint8).data)
        return
    step = max(1, CHUNK * max(1, array.shape[0]) // max(1, array.nbytes))
    for start in range(0, array.shape[0], step):
        hasher.update(array[start : start + step].tobytes())


def _content(array: Array) -> str:
    """Equal to `base.digest.digest_array`: dtype, shape, little-endian C-order bytes."""
    hasher = _array_hasher(array.dtype, array.shape)
    _feed(hasher, array)
    return hasher.hexdigest()


def _file(key: str) -> str:
    """The name in a folder of an array, which can have any text for a name."""
    name = store_npz.quoted(key)
    return bytes_digest(key.encode()).partition(":")[2] if len(name) > _LONGEST or name in _RESERVED else name


def _chunks(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    chunk = [max(1, size) for size in shape]
    for axis in range(len(chunk)):
        rest = int(np.prod(chunk[axis + 1 :], dtype=np.int64)) * dtype.itemsize
        chunk[axis] = max(1, min(chunk[axis], CHUNK // max(1, rest)))
        if chunk[axis] > 1:
            break
    return tuple(chunk)


def _write_zarr(
    path: Path, place: str, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[Array]
) -> Files:
    import zarr
    from zarr.codecs import BloscCodec, BloscShuffle

    path.mkdir(parents=True)
    chunk = _chunks(dtype, shape)
    codec = BloscCodec(cname="lz4", clevel=3, shuffle=BloscShuffle.shuffle)
    # Empty chunks are written: a chunk that is not there is then always a loss, never a run of zeros.
    array: Any = zarr.create_array(
        str(path),
        shape=shape,
        dtype=dtype,
        chunks=chunk,
        compressors=codec,
        config={"write_empty_chunks": True},
    )
    row, pending = 0, np.empty((0, *shape[1:]), dtype)
    for block in blocks:
        pending = np.concatenate([pending, block]) if pending.shape[0] else block
        whole = pending.shape[0] - pending.shape[0] % chunk[0]
        if whole:
            array[row : row + whole] = pending[:whole]
            row, pending = row + whole, pending[whole:]
    if pending.shape[0]:
        array[row : row + pending.shape[0]] = pending
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {f"{place}/{one.relative_to(path).as_posix()}": file_digest(one) for one in files}
