"""Memo files: JSON below a line that names its maker and its digest. Whatever does not match is no memo."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from npuflow.base.digest import bytes_digest


def read_memo(path: Path, maker: str) -> Any:
    """What this maker wrote there; None if there is no such file, or it is another's, or damaged."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        return json.loads(body) if head.decode() == f"{maker} {bytes_digest(body)}" else None
    except (OSError, ValueError):
        return None


def write_memo(path: Path, maker: str, value: Any) -> bool:
    """Write a value so that the file appears whole or not at all; False if it cannot be written."""
    body = json.dumps(value, separators=(",", ":")).encode()
    made = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(f"{maker} {bytes_digest(body)}\n".encode() + body)
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
