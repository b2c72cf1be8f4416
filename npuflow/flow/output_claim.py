"""One build at a time writes into an output folder: a second one waits, and says for whom."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = ".npuflow-build"
"""The file that a build holds locked in its output folder, with who it is. The system unlocks it for a build
that dies."""
PAUSE = 0.2
_HELD: dict[tuple[str, int], int] = {}
"""(folder, thread) -> how often it is claimed there: a claim inside a claim is the same one."""


@contextmanager
def claimed(folder: Path, waits: Callable[[str, str], None]) -> Iterator[None]:
    """Have an output folder for this build alone while the block runs. `waits` gets, once, that another
    build is waited for, and what to do about it. A folder in which no file can be locked is not claimed."""
    mine = (str(folder.absolute()), threading.get_ident())
    if mine in _HELD:
        yield
        return
    made = _missing(folder)
    number = _locked(folder, waits)
    _HELD[mine] = 1
    try:
        yield
    finally:
        del _HELD[mine]
        if number is not None:
            with suppress(OSError):
                (folder / NAME).unlink()
            os.close(number)
        for one in made:  # a build that gave no product leaves no folder
            with suppress(OSError):
                one.rmdir()


def _missing(folder: Path) -> list[Path]:
    """The folder and those above it that are not there, the innermost first."""
    return [one for one in (folder.absolute(), *folder.absolute().parents) if not one.exists()]


def _locked(folder: Path, waits: Callable[[str, str], None]) -> int | None:
    """The open lock file; None where there can be none, which whoever writes there will report."""
    told = False
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # another build has just removed the empty folder
            time.sleep(PAUSE)
            continue
        except OSError:
            return None
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still(folder / NAME, number):
                os.ftruncate(number, 0)
                os.pwrite(number, _owner(), 0)
                return number
        except OSError as fault:
            if fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return number  # locked, if without a name
            if fault.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                os.close(number)
                return None
            if not told:
                told = True
                text = f"another build is writing to {folder}{_known(number)}: this one waits for its end"
                waits(text, "its products are then replaced; to keep both: --out DIR for one of them")
        except BaseException:
            os.close(number)
            raise
        os.close(number)
        time.sleep(PAUSE)


def _still(path: Path, number: int) -> bool:
    """Whether the file that was locked is the one that others will find."""
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except OSError:
        return False


def _owner() -> bytes:
    body = {"pid": os.getpid(), "host": socket.gethostname(), "began": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps(body).encode()


def _known(number: int) -> str:
    """Who holds the lock, as far as it says."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = json.loads(os.pread(number, 4096, 0))
        return f" (process {body['pid']} on {body['host']}, began {body['began']})"
    return ""
