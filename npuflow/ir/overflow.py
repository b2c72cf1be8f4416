"""The refusal of a layer whose sums may leave the accumulator."""

from __future__ import annotations

from npuflow.base.errors import TargetError


class Overflow(TargetError):
    """The sums of a layer may leave the accumulator by `excess` bits."""

    def __init__(self, message: str, excess: int, *, hint: str, code: str) -> None:
        super().__init__(message, hint=hint, code=code)
        self.excess = excess
