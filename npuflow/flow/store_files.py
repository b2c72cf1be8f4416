"""Files that appear whole or not at all, and the one error of a disk that cannot take them."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from npuflow.base.digest import Hasher
from npuflow.base.errors import InputError, StoreError

_REFUSED = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EFBIG: "the file system takes no file of this size",
    errno.ENOTDIR: "a file is where a folder should be",
    errno.ENOENT: "the folder cannot be created there",
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""A refusal of these kinds is the disk's, whatever was to be written."""


ROOM = "`npuflow cache gc`, with --max-size 10GB if that is not enough"
_PIECE = 1 << 16
_ZEROS = bytes(_PIECE)


class Unwritable(StoreError):
    """The cache cannot take another file; no step can succeed after this one. `readonly`: it takes none at
    all; it may still be read, as may one whose disk is `full`. `reason`: why, in words."""

    readonly = False
    full = False
    reason = ""


class writing:  # noqa: N801  (a context manager; a generator would cost a step more than its files do)
    """Turn the operating system's refusals into one clear error that names the cache and the remedies."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if not isinstance(fault, OSError) or fault.errno not in _REFUSED:
            return
        room = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        refused = Unwritable(
            f"cannot write to the cache {self.root}: {_REFUSED[fault.errno]}",
            because=str(fault),
            hint=f"{f'make room: {ROOM}; or ' if room else ''}choose another place: --cache "
            "DIR or NPUFLOW_CACHE",
            code="NF-STORE-002",
        )
        refused.readonly = fault.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        refused.full, refused.reason = fault.errno in FULL and not refused.readonly, _REFUSED[fault.errno]
        if not room and not self.root.is_dir():
            refused.exit_code = InputError.exit_code  # a place where no cache can be is the user's choice
        raise refused from fault


_TOKEN = secrets.token_hex(8)
_NUMBER = itertools.count()


def spare(folder: str, prefix: str = "") -> str:
    """A name in `folder` that nothing else has: no other process (a fork has its own
    number), and nothing in this one."""
    return f"{folder}/{prefix}{os.getpid():x}-{_TOKEN}{next(_NUMBER):x}"


def fresh(folder: Path, prefix: str = "") -> Path:
    """`spare` as a path."""
    return Path(spare(str(folder), prefix))


def read(path: str) -> bytes:
    """A small file's bytes, without the ceremony of a file object."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.read(number, _PIECE)
        if len(found) < _PIECE:
            return found
        os.lseek(number, 0, os.SEEK_SET)
        with open(number, "rb", buffering=0, closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


def write(path: str, data: bytes | memoryview) -> None:
    """Write a file that is not there yet."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(number, rest) :]
    finally:
        os.close(number)


def replace(path: str, data: bytes, scratch: str) -> None:
    """Write a file at once, over whatever is there."""
    made = spare(scratch)
    try:
        write(made, data)
        _settle(path, lambda: os.replace(made, path))  # noqa: PTH105
    finally:
        unlink(made)


def create(path: str, data: bytes, scratch: str) -> bool:
    """Write a file at once unless one is there; False if it is."""
    made = spare(scratch)
    try:
        write(made, data)
        try:
            _settle(path, lambda: os.link(made, path))
        except FileExistsError:
            return False
        except OSError as fault:
            if fault.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            # a file system without hard links: the smallest window it allows
            if os.path.exists(path):  # noqa: PTH110
                return False
            os.replace(made, path)  # noqa: PTH105
        return True
    finally:
        unlink(made)


class Counted:
    """A binary file that digests what passes through it; without a file it only digests.

    Pieces of zeros become holes, which take no room on a disk: the key and value caches of a language
    model's samples are mostly empty, and a hundred megabytes each.
    """

    def __init__(self, stream: BinaryIO | None) -> None:
        self._stream, self._hasher, self.size = stream, Hasher("bytes"), 0

    def write(self, data: bytes | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        self._hasher.update(view)
        self.size += len(view)
        if self._stream is not None:
            _write_sparse(self._stream, view)
        return len(view)

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


def _write_sparse(stream: BinaryIO, view: memoryview) -> None:
    """Write all but pieces of zeros; the last piece is written, which makes the file as long as it is."""
    written, last = 0, len(view) - _PIECE
    for at in range(0, last, _PIECE):
        piece = view[at : at + _PIECE]
        if piece[0] or piece[-1] or piece.tobytes() != _ZEROS:
            continue
        if written < at:
            stream.write(view[written:at])
        stream.seek(_PIECE, os.SEEK_CUR)
        written = at + _PIECE
    stream.write(view[written:])


def unlink(path: str) -> None:
    """Remove a file that may be gone. On a read-only file system it was never made."""
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def settle_folder(made: str, path: str) -> bool:
    """Move a finished folder to its place; False if another was there first."""
    try:
        _settle(path, lambda: os.rename(made, path))  # noqa: PTH104
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _settle(path: str, move: Callable[[], None]) -> None:
    for _ in range(8):
        try:
            move()
            return
        except FileNotFoundError:
            # The folder is made on first use; a collection may just have removed it for being empty.
            Path(path).parent.mkdir(parents=True, exist_ok=True)
    move()


def remove(path: Path) -> int:
    """Delete a file or folder; the bytes it held. Something that another process
    removed first is no fault."""
    size = 0
    if path.is_dir() and not path.is_symlink():
        for base, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    # hot: one call per file
                    size += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            size = path.lstat().st_size
            path.unlink()
    return size
