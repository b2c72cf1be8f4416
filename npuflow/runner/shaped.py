"""One network at several shapes: programs of one file, of which the shapes of a sample choose one.
What the network keeps from run to run is that of all: any of the programs takes what another one left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuflow.base.errors import UsageError
from npuflow.program.container import Program
from npuflow.program.packing.package import unlisted
from npuflow.run.state import Pairs
from npuflow.runner.backend import Backend, Dump
from npuflow.runner.ports import Array, Port, Sample


def one_network(backends: Mapping[str, Backend]) -> bool:
    """Whether these are one network at several shapes: equal names and types of inputs and outputs, inputs of
    as many dimensions, no two of equal shapes, and the same state."""
    kinds = {
        (*((p.name, p.dtype, len(p.shape)) for p in b.inputs), *((p.name, p.dtype) for p in b.outputs))
        for b in backends.values()
    }
    shapes = {tuple(p.shape for p in b.inputs) for b in backends.values()}
    return len(kinds) == 1 and len(shapes) == len(backends) and _one_state(list(backends.values()))


def _one_state(backends: Sequence[Backend]) -> bool:
    """Whether all keep the same: equal pairs, of equal types, which begin with equal codes."""
    first = backends[0]
    for other in backends[1:]:
        if (other.state, other.rings) != (first.state, first.rings):
            return False
        if other.start.keys() != first.start.keys():
            return False
        if not all(np.array_equal(first.start[n], array) for n, array in other.start.items()):
            return False
        if _state_types(first) != _state_types(other):
            return False
    return True


def _state_types(backend: Backend) -> list[Any]:
    """What the codes of a program's state stand for, by input; nothing of a model in floats."""
    program = getattr(backend, "program", None)
    held = {name for _, name in backend.state}
    entries = [] if program is None else program.meta["inputs"]
    return [(e["name"], e["dtype"], e["shape"], e.get("quant")) for e in entries if e["name"] in held]


class ShapedModel:
    """A backend that hands every sample to the one of its shapes."""

    def __init__(self, name: str, backends: Mapping[str, Backend]) -> None:
        self.name, self._all = name, tuple(backends.values())
        first = self._all[0]
        self.exact, self.preparation, self.notes = first.exact, first.preparation, first.notes
        self.inputs = tuple(_common([b.inputs[i] for b in self._all]) for i in range(len(first.inputs)))
        self.outputs = tuple(_common([b.outputs[i] for b in self._all]) for i in range(len(first.outputs)))
        self.state: Pairs = first.state
        self.rings = first.rings
        self.start: Mapping[str, Array] = first.start
        self._ran: tuple[Backend, ...] = ()

    @property
    def each(self) -> tuple[Backend, ...]:
        """The backends, one for each shape."""
        return self._all

    def fed(self, sample: Sample) -> dict[str, Array]:
        return self._of(sample).fed(sample)

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        dump = dump if isinstance(dump, bool) else tuple(dump)
        chosen = [self._of(sample) for sample in samples]
        found: list[dict[str, Any]] = [{} for _ in samples]
        self._ran = tuple(dict.fromkeys((*self._ran, *chosen)))
        for backend in dict.fromkeys(chosen):
            places = [i for i, one in enumerate(chosen) if one is backend]
            for i, made in zip(places, backend.run([samples[i] for i in places], dump), strict=True):
                found[i] = made
        return found

    @property
    def program(self) -> Program:
        """The program of the shape that was run; a UsageError where samples of several shapes were."""
        if len(self._ran) != 1:
            raise UsageError(
                "the samples have several shapes", because="tensors are compared at one shape of a network",
                hint="compare the samples of each shape apart", code="NF-USAGE-244",
            )
        program: Program = self._ran[0].program  # type: ignore[attr-defined]
        return program

    def _of(self, sample: Sample) -> Backend:
        """The program of these shapes; where a name is missing, the first one reports it."""
        names = [port.name for port in self.inputs]
        if any(name not in sample for name in names):
            return self._all[0]
        given = {name: np.shape(sample[name]) for name in names}
        for backend in self._all:
            if all(tuple(given[port.name]) == port.shape for port in backend.inputs):
                return backend
        raise unlisted(given, [{p.name: p.shape for p in b.inputs} for b in self._all])


def _common(ports: Sequence[Port]) -> Port:
    """A port whose dimensions are free where they differ."""
    if len({len(port.shape) for port in ports}) > 1:
        return replace(ports[0], shape=(), ranked=False)
    sizes = zip(*(port.shape for port in ports), strict=True)
    return replace(ports[0], shape=tuple(s[0] if len(set(s)) == 1 else -1 for s in sizes))
