"""Where a page over a cache is served, for links in a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE = "view.json"


@contextmanager
def announced(root: Path, address: str) -> Iterator[None]:
    """While the page is served, the cache says where."""
    path = root / FILE
    with suppress(OSError):  # a cache that cannot be written can still be looked at
        path.write_text(json.dumps({"address": address, "pid": os.getpid()}), encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(path.read_text("utf-8"))["pid"] == os.getpid():
                path.unlink()


def address(root: Path) -> str | None:
    """The address of a page that is being served over this cache on this machine."""
    with suppress(OSError, ValueError, KeyError):
        said = json.loads((root / FILE).read_text("utf-8"))
        os.kill(int(said["pid"]), 0)
        return str(said["address"])
    return None
