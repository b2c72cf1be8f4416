"""Models whose large constants are fed to every run: no copy of them is made, and protobuf's
limit of 2 GiB does not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npuflow.ir.types import Array

if TYPE_CHECKING:
    import onnxruntime

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


class FedSession:
    """An onnxruntime session whose constants are given beside every feed. Callers do not see them among the
    inputs."""

    def __init__(self, session: Any, constants: Mapping[str, Array]) -> None:
        self.session, self.constants = session, dict(constants)

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = self.session.run(names, {**feed, **self.constants})
        return found

    def get_inputs(self) -> list[Any]:
        return [port for port in self.session.get_inputs() if port.name not in self.constants]

    def get_outputs(self) -> list[Any]:
        return list(self.session.get_outputs())

    def get_modelmeta(self) -> Any:
        return self.session.get_modelmeta()

    def io_binding(self) -> Any:
        binding = self.session.io_binding()
        for name, array in self.constants.items():
            binding.bind_cpu_input(name, array)
        return binding

    def run_with_iobinding(self, binding: Any) -> None:
        self.session.run_with_iobinding(binding)


def opened(model: SessionModel, options: onnxruntime.SessionOptions) -> Any:
    """A session of the model on the processor; onnxruntime's own errors."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    if isinstance(model, bytes):
        return onnxruntime.InferenceSession(model, options, providers=providers)
    # What a run makes of a large constant, such as the numbers of its codes, is made where it is read, which
    # the order of the file is, and given back at once.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    session = onnxruntime.InferenceSession(model.proto, options, providers=providers)
    return FedSession(session, model.constants)
