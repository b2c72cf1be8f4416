"""A file of a checkpoint, mapped: reads within its bounds, or a ModelError that says where it ends."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.types import Array


class MappedFile:
    """The bytes of a file. `at`: where the next number or string is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                self.map: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except OSError as fault:
            raise ModelError(
                f"{path.name} cannot be read", because=fault.strerror or str(fault), code="NF-MODEL-001",
            ).at(file=str(path)) from fault

    def fail(self, because: str, hint: str = "is the file whole? download it again") -> NoReturn:
        raise ModelError(
            f"{self.path.name} is damaged", because=because, hint=hint, code="NF-MODEL-440"
        ).at(file=str(self.path))

    def unread(self, name: str, kind: str, known: Sequence[str], hint: str) -> NoReturn:
        """The error of a type that npuflow does not read."""
        raise ModelError(
            f'the tensor "{name}" is stored as {kind}, which npuflow does not read',
            because=f"it reads {', '.join(known)}", hint=hint, code="NF-MODEL-442",
        ).at(file=str(self.path))

    def take(self, count: int, what: str) -> int:
        """Where the next `count` bytes begin; the place moves behind them."""
        if count > self.size - self.at:
            self.fail(
                f"{what} at byte {self.at:,} has {count:,} bytes, and the file ends at byte {self.size:,}"
            )
        start, self.at = self.at, self.at + count
        return start

    def number(self, form: str, what: str) -> Any:
        """A number by a character of `struct`, little-endian."""
        return struct.unpack_from(f"<{form}", self.map, self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        """A string behind its length of 64 bits."""
        count = self.number("Q", f"the length of {what}")
        start = self.take(count, what)
        return bytes(self.map[start : start + count]).decode("utf-8", "replace")

    def array(self, form: str, count: int, what: str) -> Array:
        """Numbers of one type."""
        start = self.take(np.dtype(form).itemsize * count, what)
        return np.frombuffer(self.map, form, count, start)

    def part(self, start: int, count: int, what: str) -> Array:
        """Bytes, mapped."""
        if start < 0 or count < 0 or start + count > self.size:
            self.fail(
                f"{what} lies at bytes {start:,} to {start + count:,}, and the file ends at byte "
                f"{self.size:,}"
            )
        return np.frombuffer(self.map, np.uint8, count, start)
