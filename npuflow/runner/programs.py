"""Programs as backends: command by command on the simulator, or on whole tensors where the graph is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from npuflow.base.errors import UsageError
from npuflow.base.forked import renewed_in_children
from npuflow.input.data.lengths import cut, need_indices, whole_sample
from npuflow.ir.rings import Ring
from npuflow.program.container import Program
from npuflow.program.graph_section import decode_graph
from npuflow.run.state import Pairs, pairs
from npuflow.runner.backend import Dump, Exact
from npuflow.runner.feed import fed, start_of
from npuflow.runner.nan import FLOATS
from npuflow.runner.ports import Array, Port, Sample
from npuflow.runner.simulated import ProgramRunner as Simulation
from npuflow.whole.execute.executor import Executor

REAL = ":f"  # ends the id of an integer tensor's float twin


def ports_of(program: Program) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs of a program under the source model's names. An input that takes codes or pixels is
    given real numbers, or integers, which are codes or pixels already. NaN stays NaN in a type of
    floats only."""
    inputs, lengths = [], program.meta.get("lengths", ())
    axes = {name: axis for one in lengths for name, axis in one["axes"].items()}
    said = {one["input"] for one in lengths}
    for entry in (one for one in program.meta["inputs"] if one["name"] not in said):
        pixels = bool(entry.get("pixels"))
        coded = pixels or bool(entry.get("quant"))
        dtype = "float32" if coded else entry["dtype"]
        loses = dtype in FLOATS and "element" not in (entry.get("quant") or {})
        shape, axis = _free(entry, axes), axes.get(entry["name"])
        inputs.append(Port(entry["name"], dtype, shape, codes=coded, pixels=pixels, loses_nan=loses,
                           steps=axis is not None))
    names = source_names([entry["name"] for entry in program.meta["outputs"]])
    outputs = [
        Port(names[e["name"]], e["dtype"], _free(e, axes), ranked=e["shape"] is not None)
        for e in program.meta["outputs"]
    ]
    return tuple(inputs), tuple(outputs)


def _free(entry: Mapping[str, Any], axes: Mapping[str, int]) -> tuple[int, ...]:
    """A port's shape, with the axis of steps free where a program takes any number of them."""
    axis = axes.get(entry["name"])
    return tuple(-1 if d == axis else size for d, size in enumerate(entry["shape"] or ()))


def source_names(outputs: Sequence[str]) -> dict[str, str]:
    """Value id of an output -> its name in the source model: the float twin "v:f" of an integer tensor "v" is
    what the model calls v."""
    ids = set(outputs)
    plain = {n: n.removesuffix(REAL) for n in outputs}
    return {n: name if name == n or name not in ids else n for n, name in plain.items()}


class _Program:
    """What both kinds share: ports, names, and how samples are fed."""

    exact: Exact

    def __init__(self, program: Program, raw: bool) -> None:
        self.program = program
        self.name = str(program.meta.get("name") or "program")
        self.inputs, self.outputs = ports_of(program)
        self.lengths: Sequence[Mapping[str, Any]] = program.meta.get("lengths", ())
        self.preparation: Mapping[str, Any] | None = program.meta.get("preparation")
        self.notes: tuple[str, ...] = ()
        self.start: Mapping[str, Array] = start_of(program.meta)
        self.rings = tuple(Ring.of(one) for one in program.meta.get("rings", ()))
        self._names = {} if raw else source_names([entry["name"] for entry in program.meta["outputs"]])
        self.state: Pairs = tuple(
            (self._names.get(output, output), name) for output, name in pairs(program.meta.get("state", ()))
        )

    def fed(self, sample: Sample) -> dict[str, Array]:
        entries = self.program.meta["inputs"]
        need_indices(self.program.meta.get("indices", ()), sample)
        return fed(entries, whole_sample(entries, self.lengths, sample) if self.lengths else sample)

    def _cut(self, samples: Sequence[Sample], found: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Outputs under their names, without what lies behind the last step."""
        pairs = zip(samples, found, strict=True)
        return [self._named(cut(self.lengths, one, made) if self.lengths else made) for one, made in pairs]

    def _named(self, found: Mapping[str, Array]) -> dict[str, Array]:
        named = {n: name for n, name in self._names.items() if name == n or name not in found}
        return {named.get(n, n): array for n, array in found.items()}


def filled(samples: Sequence[Sample], sizes: Sequence[int]) -> Iterator[tuple[list[Sample], int]]:
    """Samples in batches of those sizes, and how many are in each: machines and executors are bound to
    numbers of samples, and only to few. A rest is filled up to the next size by its last sample, if that is
    no more than twice as many."""
    at = 0
    while at < len(samples):
        left = min(len(samples) - at, sizes[-1])
        size = max(size for size in sizes if size < 2 * left or size == 1)
        part = list(samples[at : at + min(size, left)])
        yield [*part, *part[-1:] * (size - len(part))], len(part)
        at += len(part)


class SimulatedProgram(_Program):
    """A program command by command, on modelled memories."""

    exact: Exact = "simulator"

    def __init__(self, program: Program, batch: int, raw: bool = False) -> None:
        super().__init__(program, raw)
        self.simulation = Simulation(program, batch)

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        dump = dump if isinstance(dump, bool) else tuple(dump)
        sizes, found = (1, self.simulation.batch), []
        for part, size in filled(samples, sizes):
            found += self.simulation.run_fed(part, dump)[:size]
        return self._cut(samples, found)


class Tensors(_Program):
    """The graph that a program keeps, on whole tensors: the program's integers, without its commands."""

    exact: Exact = "executor"

    def __init__(self, program: Program, batch: int, raw: bool = False) -> None:
        super().__init__(program, raw)
        if not program.graph_bytes:
            raise UsageError(
                "the program keeps no graph to run on whole tensors",
                because="it was built with [program] graph = false, or by an older npuflow",
                hint='exact="simulator" runs its commands; building it again keeps the graph',
                code="NF-RUN-004",
            )
        self.graph = decode_graph(program.graph_bytes)
        self.sizes = sorted({1, batch, *(1 << k for k in range(batch.bit_length()) if 1 << k < batch)})
        self._lock = threading.Lock()
        self._idle: list[Executor] = []
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: executors that threads of the parent use stay with them."""
        self._lock = threading.Lock()

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        keep = (lambda value: True) if dump is True else (set(dump) if dump else None)
        found: list[dict[str, Array]] = []
        with self._executor() as executor:
            for part, size in filled(samples, self.sizes):
                found += executor.run_many(part, keep)[:size]
        return self._cut(samples, found)

    @contextmanager
    def _executor(self) -> Iterator[Executor]:
        """An executor for one run: an idle one, or a new one. A run that fails drops it."""
        with self._lock:
            executor = self._idle.pop() if self._idle else None
        if executor is None:
            numerics = self.program.target.numerics
            executor = Executor(self.graph, numerics, self.sizes[-1], 2 * len(self.sizes))
        yield executor
        with self._lock:
            self._idle.append(executor)
