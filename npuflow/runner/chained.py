"""Networks of one file that feed each other, as one: outputs of some are inputs of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from npuflow.base.errors import DataError, UsageError
from npuflow.ir.rings import Ring
from npuflow.program.container import Program
from npuflow.program.packing.package import Chain
from npuflow.run.state import Pairs
from npuflow.runner.backend import Backend, Dump
from npuflow.runner.ports import Array, Port, Sample

DOT = "."                                 # between a network and what is its own, in "encoder.hidden"


class ChainedModel:
    """A backend that runs networks in turn. Its inputs are those that no network feeds, its outputs those
    that none reads, by their own names; where two networks have one of a name, as "NETWORK.NAME". `dump`
    gives all else as "NETWORK.NAME"."""

    def __init__(self, name: str, backends: Mapping[str, Backend], chain: Chain) -> None:
        self.name, self._all, self._chain = name, dict(backends), chain
        self._own, made = free_ends({key: (b.inputs, b.outputs) for key, b in backends.items()}, chain)
        self._inputs, self._outputs = names_of(self._own), names_of(made)
        self.inputs = _ports(self._own, self._inputs)
        self.outputs = _ports(made, self._outputs)
        self.exact = next(iter(backends.values())).exact
        begin = [one for key, one in backends.items() if self._own[key]]
        self.preparation = begin[0].preparation if len(begin) == 1 else None
        self.notes = tuple(dict.fromkeys(note for one in backends.values() for note in one.notes))
        self.state: Pairs = tuple(
            (self._outputs[key, output], self._inputs[key, given])
            for key, one in backends.items() for output, given in one.state
        )
        self.rings: tuple[Ring, ...] = ()                       # no chain is a language model
        self.start: Mapping[str, Array] = {
            self._inputs[key, given]: array for key, one in backends.items()
            for given, array in one.start.items()
        }

    @property
    def each(self) -> Mapping[str, Backend]:
        """The networks by name, in the order in which they run."""
        return self._all

    def fed(self, sample: Sample) -> dict[str, Array]:
        missing = [port.name for port in self.inputs if port.name not in sample]
        if missing:
            raise DataError(
                f'no data for the input "{missing[0]}"',
                because=f"given: {', '.join(sample) or 'nothing'}", code="NF-DATA-012",
            )
        found: dict[str, Array] = {}
        for key, backend in self._all.items():
            given = {port.name: sample[self._inputs[key, port.name]] for port in self._own[key]}
            blank = [port for port in backend.inputs if port.name not in given]
            if given and all(port.fixed for port in blank):   # checked now: a fault harms no other sample
                whole = backend.fed({**given, **{p.name: np.zeros(p.shape, p.dtype) for p in blank}})
                given = {name: whole[name] for name in given}
            found |= {self._inputs[key, name]: array for name, array in given.items()}
        return found

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        wanted = dump if isinstance(dump, bool) else tuple(dump)
        made: list[dict[tuple[str, str], Array]] = [{} for _ in samples]
        found: list[dict[str, Array]] = [{} for _ in samples]
        for key, backend in self._all.items():
            fed = [backend.fed(self._sample(key, one, way)) for one, way in zip(samples, made, strict=True)]
            ends = {port.name for port in backend.outputs}
            for i, outputs in enumerate(backend.run(fed, _inner(key, wanted, ends))):
                for name, array in outputs.items():
                    made[i][key, name] = array
                    inside = f"{key}{DOT}{name}"
                    if (key, name) in self._outputs:
                        found[i][self._outputs[key, name]] = array
                    elif wanted is True or (wanted and inside in wanted):
                        found[i][inside] = array
        return found

    def _sample(self, key: str, sample: Sample, made: Mapping[tuple[str, str], Array]) -> dict[str, Array]:
        """What a network is fed: inputs of the sample, and outputs of the networks before it."""
        own = {port.name: sample[self._inputs[key, port.name]] for port in self._own[key]}
        before = {name: made[source] for name, source in self._chain.get(key, {}).items()}
        shapes = {port.name: port for port in self._all[key].inputs}
        return {**own, **{name: _fitting(array, shapes[name]) for name, array in before.items()}}

    @property
    def program(self) -> Program:
        """A UsageError: there are several."""
        raise UsageError(
            f"{self.name} holds networks that feed each other", because="tensors are compared of one network",
            hint=f'"FILE.npu#{next(iter(self._all))}" is one', code="NF-RUN-141",
        )


Ports = Mapping[str, Sequence[Port]]


def free_ends(
    ports: Mapping[str, tuple[Sequence[Port], Sequence[Port]]], chain: Chain
) -> tuple[Ports, Ports]:
    """By network the inputs that none feeds, and the outputs that none reads. `ports`: all of them."""
    read = {source for inputs in chain.values() for source in inputs.values()}
    inputs = {key: [p for p in own if p.name not in chain.get(key, ())] for key, (own, _) in ports.items()}
    outputs = {key: [p for p in own if (key, p.name) not in read] for key, (_, own) in ports.items()}
    return inputs, outputs


def names_of(ports: Ports) -> dict[tuple[str, str], str]:
    """By network and port the name outside: its own where no other network has one of that name."""
    count = Counter(port.name for every in ports.values() for port in every)
    return {
        (key, port.name): port.name if count[port.name] == 1 else f"{key}{DOT}{port.name}"
        for key, every in ports.items() for port in every
    }


def _ports(ports: Ports, names: Mapping[tuple[str, str], str]) -> tuple[Port, ...]:
    return tuple(replace(p, name=names[key, p.name]) for key, every in ports.items() for p in every)


def _inner(key: str, wanted: bool | tuple[str, ...], ends: set[str]) -> Dump:
    """What of a network is to be dumped; its outputs come in any case."""
    if isinstance(wanted, bool):
        return wanted
    own = [name.removeprefix(f"{key}{DOT}") for name in wanted if name.startswith(f"{key}{DOT}")]
    return tuple(name for name in own if name not in ends)


def _fitting(array: Array, port: Port) -> Array:
    """An output in an input's shape, which may have other axes of one."""
    if array.shape != port.shape and port.fixed and array.size == int(np.prod(port.shape)):
        return array.reshape(port.shape)
    return array
