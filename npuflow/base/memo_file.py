"""Memo files: JSON below a line that names its maker and its digest. Whatever does not match is no memo.

What holds for any cache is kept for the user, too, so that the first build into a new cache finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from npuflow.base.digest import bytes_digest

DAY = 86_400                              # seconds


def read_memo(path: Path, maker: str) -> Any:
    """What this maker wrote there; None if there is no such file, or it is another's, or damaged."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        return json.loads(body) if head.decode() == f"{maker} {bytes_digest(body)}" else None
    except (OSError, ValueError):
        return None


def user_folder(name: str) -> Path:
    """A folder of this user's cache, for what can be made again. RuntimeError: the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name


def _mine(name: str) -> Path | None:
    """Where processes of this user keep a memo that any of them may use; None: the user has no home."""
    try:
        return user_folder("npuflow-memo") / name
    except RuntimeError:
        return None


def read_shared(path: Path, maker: str) -> Any:
    """What this maker wrote there, or else what it wrote last under this name for the user."""
    found, mine = read_memo(path, maker), _mine(path.name)
    return read_memo(mine, maker) if found is None and mine is not None else found


def write_shared(path: Path, maker: str, value: Any) -> bool:
    """Write a value there and for the user; False if it cannot be written there."""
    data, mine = _bytes(maker, value), _mine(path.name)
    if mine is not None and not _holds_more(mine, maker, len(data)):
        _write(mine, data)
    return _write(path, data)


def _holds_more(path: Path, maker: str, size: int) -> bool:
    """Whether a memo of today is this maker's and far larger: who saw little does not replace it."""
    try:
        found = path.stat()
        with path.open("rb") as file:
            head = file.readline(1000).decode()
    except (OSError, ValueError):
        return False
    return head.startswith(f"{maker} ") and found.st_size > 2 * size and time.time() - found.st_mtime < DAY


def made_once(name: str, maker: str, make: Callable[[], Any]) -> Any:
    """A value that depends on its maker alone: made by one process of the user."""
    path = _mine(name)
    found = None if path is None else read_memo(path, maker)
    if found is None:
        found = make()
        if path is not None:
            write_memo(path, maker, found)
    return found


def write_memo(path: Path, maker: str, value: Any) -> bool:
    """Write a value so that the file appears whole or not at all; False if it cannot be written."""
    return _write(path, _bytes(maker, value))


def _bytes(maker: str, value: Any) -> bytes:
    body = json.dumps(value, separators=(",", ":")).encode()
    return f"{maker} {bytes_digest(body)}\n".encode() + body


def _write(path: Path, data: bytes) -> bool:
    made = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(data)
        made.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()
        return False
    return True


def maker_of(sources: Iterable[Path]) -> str:
    """A maker by its source files and the Python whose syntax it reads."""
    found = bytes_digest(b"\0".join(path.read_bytes() for path in sources))
    return f"{found}/{sys.version_info[0]}.{sys.version_info[1]}"
