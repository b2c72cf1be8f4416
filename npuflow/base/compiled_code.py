"""Machine code of compiled functions, cached for the user by the content of their source files.

numba keeps code beside a source file, and takes it while that file has not changed. A function that is
compiled in may lie elsewhere, and another environment or checkout has other files with the same content.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import IO, Any

import numba
from numba.core import caching

from npuflow.base.digest import digest, digest_file
from npuflow.base.memo_file import user_folder

KEPT_DAYS = 60                            # that code of other sources stays, after it was made


def folder() -> Path:
    """The cache of machine code; what is missing there is compiled again."""
    return user_folder("npuflow-kernels")


def machine_code(function: FunctionType, files: Iterable[Path], **options: Any) -> Callable[..., Any]:
    """The function, to be compiled by numba for the types that it is called with. `files`: all that its code
    comes from. Where NUMBA_CACHE_DIR is set, or the user's cache cannot be written, numba decides."""
    config: Any = numba.config
    usual = getattr(config, "CACHE_LOCATOR_CLASSES", None)
    if usual is not None and not usual and not config.CACHE_DIR:
        function.__dict__["files"] = tuple(sorted(files))
        config.CACHE_LOCATOR_CLASSES = ",".join([f"{__name__}.{ByContent.__name__}", *_USUAL])
    compile_: Any = numba.njit
    try:
        made: Callable[..., Any] = compile_(cache=True, nogil=True, **options)(function)
    finally:
        if usual is not None:
            config.CACHE_LOCATOR_CLASSES = usual
    kept: Any = getattr(made, "_cache", None)
    if kept is not None:
        kept.save_overload = _alone(kept.save_overload)
    return made


def _alone(save: Callable[..., None]) -> Callable[..., None]:
    """Save under a lock that all processes share. numba reads an index, takes the next free file name and
    writes both. Without a lock, two processes that compile for different types take the same file name.
    Where another process stands still with the lock, nothing is saved: the code is compiled again."""

    def saved(*args: Any) -> None:
        with ExitStack() as held:
            with suppress(ImportError, OSError, RuntimeError):      # no locks here, or no folder for one
                if not _locked(held.enter_context((folder() / "lock").open("a"))):
                    return
            save(*args)

    return saved


WAITED = 10.0                             # seconds for the lock; a save takes milliseconds
_IN_VAIN: list[bool] = []
"""Not empty: this process has waited for it in vain, and waits no more."""


def _locked(file: IO[str]) -> bool:
    """Whether no other process has the lock, or leaves it soon."""
    import fcntl

    until = time.monotonic() + (0.0 if _IN_VAIN else WAITED)
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                _IN_VAIN.append(True)
                return False
            time.sleep(0.02)
        else:
            return True


_USUAL = ("InTreeCacheLocator", "UserWideCacheLocator")
_Base: Any = getattr(caching, _USUAL[0], object)          # numba 0.61 has no such choice


class ByContent(_Base):  # type: ignore[misc]
    """A folder for a module and the content of the files that its code comes from."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self.stamp = digest([_content(path) for path in function.files])
        self.path = folder() / f"{function.__module__}-{self.stamp.rpartition(':')[2][:20]}"

    @classmethod
    def from_function(cls, function: Any, file: str) -> ByContent | None:
        """None: numba's own places are tried next."""
        if not hasattr(function, "files"):
            return None
        try:
            found = cls(function, file)
            known = found.path.exists()
            found.ensure_cache_path()
            if not known:
                _forget_old()
        except (OSError, RuntimeError):   # it cannot be written, or the user has no home
            return None
        return found

    def get_cache_path(self) -> str:
        return str(self.path)

    def get_source_stamp(self) -> str:
        return self.stamp


@cache
def _content(path: Path) -> str:
    return digest_file(path)


def _forget_old() -> None:
    oldest = time.time() - KEPT_DAYS * 86400
    for path in folder().iterdir():
        if path.is_dir() and path.stat().st_mtime < oldest:
            shutil.rmtree(path, ignore_errors=True)
