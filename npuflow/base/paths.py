"""What lies at a path that names no file, for messages: a folder, a device, a link to nothing."""

from __future__ import annotations

import stat
from pathlib import Path

from npuflow.base.errors import UsageError

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
)


def kind_of(path: Path) -> str:
    """ "a device", "a pipe", "a folder", "a link to ..., which is not there"; nothing for a file, or where
    nothing is."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return f"a link to {path.readlink()}, which is not there" if path.is_symlink() else ""
    return next((what for holds, what in _KINDS if holds(mode)), "")


def not_a_file(path: Path, text: str, what: str = "file") -> tuple[str, str]:
    """Message and reason where `path`, written as `text`, is no file."""
    kind = kind_of(path)
    if kind:
        return f'"{text}" is no {what}', f"{path} is {kind}"
    return f'no {what} "{text}"', f"looked at {path}"


def absent(path: Path, hint: str = "") -> UsageError:
    """The error for a path of the command line that is no file."""
    message, because = not_a_file(path, str(path))
    return UsageError(message, because=because if kind_of(path) else "", hint=hint, code="NF-USAGE-010")
