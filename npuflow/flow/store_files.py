"""Files that appear whole or not at all, and the one error of a disk that cannot take them."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from npuflow.base.errors import StoreError

_REFUSED = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EFBIG: "the file system takes no file of this size",
    errno.ENOTDIR: "a file stands where a folder should be",
    errno.ENOENT: "the folder cannot be made there",
}


class Unwritable(StoreError):
    """The cache cannot take another file; no step can succeed after this one."""


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one clear error that names the cache and the remedies."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in _REFUSED:
            raise
        raise Unwritable(
            f"cannot write to the cache {root}: {_REFUSED[fault.errno]}",
            because=str(fault),
            hint="make room with `npuflow cache gc`, or choose another place: --cache DIR or NPUFLOW_CACHE",
            code="NF-STORE-002",
        ) from fault


def fresh(folder: Path, prefix: str = "") -> Path:
    """A name in `folder` that nothing else has."""
    return folder / f"{prefix}{os.getpid():x}-{secrets.token_hex(8)}"


def replace(path: Path, data: bytes, scratch: Path) -> None:
    """Write a file at once, over whatever is there."""
    made = fresh(scratch)
    try:
        made.write_bytes(data)
        _settle(path, lambda: made.replace(path))
    finally:
        made.unlink(missing_ok=True)


def create(path: Path, data: bytes, scratch: Path) -> bool:
    """Write a file at once unless one is there; False if it is."""
    made = fresh(scratch)
    try:
        with open(made, "xb", buffering=0) as file:  # noqa: PTH123 (hot: one call a step)
            file.write(data)
        try:
            _settle(path, lambda: os.link(made, path))
        except FileExistsError:
            return False
        except OSError as fault:
            if fault.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            if path.exists():  # a file system without hard links: the smallest window it allows
                return False
            made.replace(path)
        return True
    finally:
        made.unlink(missing_ok=True)


def settle_folder(made: Path, path: Path) -> bool:
    """Move a finished folder to its place; False if another was there first."""
    try:
        _settle(path, lambda: made.rename(path))
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _settle(path: Path, move: object) -> None:
    for _ in range(8):
        try:
            move()  # type: ignore[operator]
            return
        except FileNotFoundError:
            # The folder is made on first use; a collection may just have removed it for being empty.
            path.parent.mkdir(parents=True, exist_ok=True)
    move()  # type: ignore[operator]


def remove(path: Path) -> int:
    """Delete a file or folder; the bytes it held. Something that another process removed first is no fault."""
    size = 0
    if path.is_dir() and not path.is_symlink():
        for base, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    size += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 (hot: one call per file)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            size = path.lstat().st_size
        path.unlink(missing_ok=True)
    return size
