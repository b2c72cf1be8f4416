"""Models whose large constants are fed to every run, past protobuf's limit of 2 GiB.
No copy of the constants is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]      # not from `ir`, which no runner of programs loads

MOST = (1 << 31) - (1 << 24)              # bytes of constants that one model holds beside its nodes
FED = 1 << 20                             # bytes from which constants of a larger one are fed to it
LEAST = 256                               # bytes below which none is, whatever the limit: shapes, bounds


def fed_from(held: int, most: int = MOST) -> int:
    """Bytes from which a constant is fed, where `held` bytes of them are to be run and a session may copy
    `most`; 0: none is."""
    return max(LEAST, FED * most // MOST) if held > most else 0


@dataclass(frozen=True)
class FedModel:
    """ONNX bytes, and constants that are inputs of the model, by name: arrays that may be mapped from files.
    `digests`: of the constants, by name."""

    proto: bytes
    constants: Mapping[str, Array]
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Of everything together."""
        return len(self.proto) + sum(array.nbytes for array in self.constants.values())


SessionModel = bytes | FedModel
"""What a session is made of."""


def taken_apart(model: SessionModel) -> tuple[Any, dict[str, Array]]:
    """The ModelProto, and the constants that it is fed."""
    import onnx

    whole = FedModel(model, {}) if isinstance(model, bytes) else model
    return onnx.load_from_string(whole.proto), dict(whole.constants)
