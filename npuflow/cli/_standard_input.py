"""Standard input as files: one npz, npy or picture, or several of them laid one behind the other."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np

from npuflow.base.errors import DataError
from npuflow.input.data.array import UNREADABLE
from npuflow.input.data.image import is_picture


def standard_input(folder: Path, note: Callable[[str], None] | None = None) -> list[Path]:
    """What standard input holds, as files in `folder`, in order. `note` is given what is left out."""
    content = sys.stdin.buffer.read()
    if not content:
        raise DataError("standard input is empty", hint="npuflow run PROGRAM - < FILE", code="NF-DATA-069")
    parts = list(split(content))
    if not parts:
        raise DataError(
            "standard input is neither an npz, an npy nor a picture",
            because=f"it begins with {content[:8].hex(' ')}",
            code="NF-DATA-219",
        )
    rest = content[sum(len(part) for _, part in parts) :]
    if note is not None and rest.strip(b"\0 \t\r\n"):
        note(
            f"standard input: the last {len(rest)} bytes are left out: they follow {_count(len(parts))} and "
            f"are none themselves (they begin with {rest[:8].hex(' ')})"
        )
    width, files = len(str(len(parts))), []
    for number, (suffix, part) in enumerate(parts, 1):
        name = "stdin" if len(parts) == 1 else f"stdin_{number:0{width}d}"
        files.append(folder / f"{name}{suffix}")
        files[-1].write_bytes(part)
    return files


def _count(files: int) -> str:
    return "a file" if files == 1 else f"{files} files"


def split(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Suffix and bytes of every file, as far as one follows the other. A file whose format does not say where
    it ends (TIFF, GIF, and whatever is damaged) reaches to the end."""
    at = 0
    while at < len(content):
        found = next((form for form in FORMS if content.startswith(form[0], at)), None)
        if found is None:
            if is_picture(content[at:]):
                yield ".png", content[at:]  # the reader goes by the content
            return
        _, suffix, end_of = found
        end = len(content)
        with suppress(ValueError, IndexError, struct.error):
            end = min(end, end_of(content, at))
        yield suffix, content[at:end]
        at = end


def _npy(content: bytes, at: int) -> int:
    stream = BytesIO(content)
    stream.seek(at)
    try:
        np.load(stream, allow_pickle=False)
    except UNREADABLE:
        return len(content)
    return stream.tell()


def _npz(content: bytes, at: int) -> int:
    """Behind the record of the end, which is where the directory that it speaks of ends (APPNOTE 4.3.16)."""
    end = content.index(b"PK\5\6", at)
    while True:
        size, start, comment = struct.unpack_from("<IIH", content, end + 12)
        if at + start + size == end:
            return end + 22 + int(comment)
        end = content.index(b"PK\5\6", end + 1)


def _png(content: bytes, at: int) -> int:
    at, kind = at + 8, b""
    while kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", content, at)
        at += 12 + size
    return at


def _jpeg(content: bytes, at: int) -> int:
    """Behind the marker EOI, or behind the pictures that the file's own index (MPF) says it carries."""
    at, carried = at + 2, 0
    while (mark := content[at + 1]) != 0xD9:
        if content[at] != 0xFF:
            raise ValueError("no marker")
        if mark == 0xFF:  # a fill byte
            at += 1
            continue
        if mark == 0xE2 and content.startswith(b"MPF\0", at + 4):
            carried = _carried(content, at + 8)
        at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
        while mark == 0xDA:  # coded data, up to a marker that is neither a stuffed byte nor a restart
            at = content.index(b"\xff", at)
            if content[at + 1] != 0 and not 0xD0 <= content[at + 1] <= 0xD7:
                break
            at += 2
    return max(at + 2, carried)


def _carried(content: bytes, head: int) -> int:
    """The end of the last picture of a JPEG's index at `head`: entries of 16 bytes under the tag 0xB002
    (CIPA DC-007, 5.2). Offsets count from there; the first picture's is 0 and means the file's begin."""
    order = "<" if content.startswith(b"II", head) else ">"
    at = head + int(struct.unpack_from(f"{order}I", content, head + 4)[0])
    end = 0
    for entry in range(struct.unpack_from(f"{order}H", content, at)[0]):
        tag, _, size, start = struct.unpack_from(f"{order}HHII", content, at + 2 + 12 * entry)
        for one in range(head + start, head + start + size, 16) if tag == 0xB002 else ():
            length, offset = struct.unpack_from(f"{order}II", content, one + 4)
            end = max(end, head + offset + length if offset else 0)
    return end


def _pnm(content: bytes, at: int) -> int:
    """Behind the samples of one binary image: magic, width, height, maximum, one white space, samples."""
    planes = 3 if content[at + 1 : at + 2] == b"6" else 1
    numbers = list[int]()
    at += 2
    while len(numbers) < 3:
        if content[at : at + 1].isspace():
            at += 1
        elif content[at : at + 1] == b"#":
            at = content.index(b"\n", at)
        else:
            end = at
            while content[end : end + 1].isdigit():
                end += 1
            numbers.append(int(content[at:end]))
            at = end
    width, height, most = numbers
    return at + 1 + width * height * planes * (1 if most < 256 else 2)


def _bmp(content: bytes, at: int) -> int:
    size = int(struct.unpack_from("<I", content, at + 2)[0])
    return at + size if size > 26 else len(content)  # some writers leave it zero


def _riff(content: bytes, at: int) -> int:
    size = int(struct.unpack_from("<I", content, at + 4)[0])
    return at + 8 + size + size % 2


FORMS: tuple[tuple[bytes, str, Callable[[bytes, int], int]], ...] = (
    (b"\x93NUMPY", ".npy", _npy),
    (b"PK\3\4", ".npz", _npz),
    (b"\x89PNG\r\n\x1a\n", ".png", _png),
    (b"\xff\xd8\xff", ".jpg", _jpeg),
    (b"P5", ".pgm", _pnm),
    (b"P6", ".ppm", _pnm),
    (b"BM", ".bmp", _bmp),
    (b"RIFF", ".webp", _riff),
)
"""How a file begins, its suffix, and where one that begins at a place ends."""
