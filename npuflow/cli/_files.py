"""Files that a verb writes where the user says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npuflow.base.errors import UsageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A UsageError (NF-USAGE-025) where the body cannot write to `path`."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f'cannot write "{path}"', because=error.strerror or str(error), code="NF-USAGE-025"
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Write a whole file."""
    with writing(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
