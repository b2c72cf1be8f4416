"""npz files of a store: written array by array, read from checked bytes, without zipfile's cost per member.

They are what numpy writes, npy files that a zip archive holds uncompressed, and `numpy.load` opens them. An
archive that a person made, compressed or not, is read as well.
"""

from __future__ import annotations

import io
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from npuflow.base.files import ByteSink

Array = np.ndarray[Any, Any]

_LOCAL, _CENTRAL, _END = "<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"
_VERSION, _DAY = 20, 0x21  # of the zip format; the first day that it knows
_ALIGN, _ALIGNED = 64, 1 << 16  # bytes: the alignment of large arrays, and the size from which one is large
_PADDING = 0xD935  # the extra field by which archives align their members
_MOST = 1 << 31  # bytes, and below them numbers of members, that need no zip64
_MANY = 1 << 15
# Headers as numpy writes them. It reads them through Python's compiler, which CPython 3.11 lets fail where
# threads use it at once: SystemError, "AST constructor recursion depth mismatch".
_PLAIN = re.compile(
    rb"\x93NUMPY(?:\x01\x00..|[\x02\x03]\x00....)\{"
    rb"'descr': '(?P<descr>[<>|](?:b1|[iu][1248]|f[248]|c8|c16))', "
    rb"'fortran_order': (?P<fortran>True|False), 'shape': \((?P<shape>(?:\d+, )*(?:\d+,?)?)\), \} *\n",
    re.DOTALL,
)


def write(arrays: Mapping[str, Array], sink: ByteSink) -> None:
    """Write the arrays, each with its name as a member; no copy of them is made."""
    if len(arrays) > _MANY or sum(array.nbytes for array in arrays.values()) > _MOST:
        _write_large(arrays, sink)
        return
    at, central = 0, []
    for key, array in arrays.items():
        name = member(key).encode()
        head = _header(array.dtype.str, array.shape)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        check, size = zlib.crc32(data, zlib.crc32(head)), len(head) + len(data)
        facts = (0, 0, 0, _DAY, check, size, size, len(name))  # no flags, stored, at midnight
        extra = _padding(at + 30 + len(name) + len(head)) if len(data) >= _ALIGNED else b""
        sink.write(struct.pack(_LOCAL, b"PK\3\4", _VERSION, *facts, len(extra)) + name + extra + head)
        sink.write(data)
        central.append(
            struct.pack(_CENTRAL, b"PK\1\2", _VERSION, _VERSION, *facts, 0, 0, 0, 0, 0, at) + name
        )
        at += 30 + len(name) + len(extra) + size
    listed = b"".join(central)
    count = len(central)
    sink.write(listed + struct.pack(_END, b"PK\5\6", 0, 0, count, count, len(listed), at, 0))


def _padding(place: int) -> bytes:
    """The extra field that moves what lies at a place to an aligned one: arrays are mapped where they lie."""
    size = -(place + 4) % _ALIGN
    return struct.pack("<2H", _PADDING, size) + bytes(size)


def _write_large(arrays: Mapping[str, Array], sink: ByteSink) -> None:
    class Stream(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            sink.write(data)
            return len(data)

    with zipfile.ZipFile(Stream(), "w", zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(member(key)), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)


def mapped(path: Path) -> mmap.mmap:
    """A checked file's bytes: what is written to them stays in this process."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def read(data: bytes | mmap.mmap, keys: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names from a file's checked bytes: copies, or, of a mapped file, large ones where
    they lie."""
    found: dict[str, Array] = {}
    file: Any = io.BytesIO(data) if isinstance(data, bytes) else data  # a map reads as an open file does
    with zipfile.ZipFile(file) as archive:
        for key in keys:
            info = archive.getinfo(member(key))
            if info.compress_type == zipfile.ZIP_STORED:
                name, extra = struct.unpack_from("<2H", data, info.header_offset + 26)
                start = info.header_offset + 30 + name + extra
                found[key] = _parsed(memoryview(data)[start : start + info.file_size])
            else:
                with archive.open(info) as packed:
                    found[key] = np.lib.format.read_array(packed, allow_pickle=False)
    return found


def _parsed(npy: memoryview) -> Array:
    """The array of an npy file's bytes: a copy, or, of a large one of a mapped file, these bytes."""
    wide = npy[6] > 1  # npy 2.0 and later
    size = struct.unpack_from("<I" if wide else "<H", npy, 8)[0]
    start = (12 if wide else 10) + size
    shape, fortran, dtype = _parsed_header(bytes(npy[:start]))
    if dtype.hasobject:
        raise ValueError("an array of objects")
    count = int(np.prod(shape, dtype=np.int64))
    flat = np.frombuffer(npy, dtype, count, start) if count else np.zeros(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    stays = isinstance(npy.obj, mmap.mmap) and array.nbytes >= _ALIGNED and array.flags.aligned
    return array if stays else array.copy(order="K")


@lru_cache(maxsize=4096)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    facts = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, facts)
    return out.getvalue()


@lru_cache(maxsize=4096)
def _parsed_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    plain = _PLAIN.fullmatch(head)
    if plain is not None:
        sizes = tuple(int(size) for size in plain["shape"].split(b",") if size.strip())
        return sizes, plain["fortran"] == b"True", np.dtype(plain["descr"].decode())
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    reads = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return reads(stream)


def member(key: str) -> str:
    """The file in the archive of an array, whose name can be any text."""
    return (quoted(key) or "array") + ".npy"


def quoted(key: str) -> str:
    """A name with nothing in it that a path may not have."""
    return quote(key, safe=" :,;=+@()[]")
