"""Packages that an installation may lack: imported where they are used, missing ones with how to get them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from npuflow.base.errors import NpuflowError


@contextmanager
def needs(message: str, *, kind: type[NpuflowError], hint: str, code: str) -> Iterator[None]:
    """Around imports: where one fails, that error."""
    try:
        yield
    except ImportError as fault:
        raise kind(message, because=str(fault), hint=hint, code=code) from None
