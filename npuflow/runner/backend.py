"""What runs samples: the contract that the runner knows of programs and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from npuflow.ir.rings import Ring
from npuflow.run.state import Pairs
from npuflow.runner.ports import Array, Port, Sample

Exact = Literal["executor", "simulator", "onnxruntime"]
Dump = bool | Iterable[str]


class Backend(Protocol):
    """Any number of threads may call `run` and `fed` at the same time."""

    name: str
    exact: Exact  # who computes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    preparation: Mapping[str, Any] | None  # how pictures become inputs, where the program says so
    notes: tuple[str, ...]  # what the user should know of how it runs
    state: Pairs  # outputs of a run that are inputs of the next
    rings: tuple[Ring, ...]  # what states are that keep the newest rows alone

    @property
    def start(self) -> Mapping[str, Array]:
        """What the inputs that hold state have at first."""

    def fed(self, sample: Sample) -> dict[str, Array]:
        """A sample in the form that it is run in, checked. What is in that form already is not copied."""

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        """Outputs of samples that `fed` gave; with `dump` also inner tensors: all, or those named."""
