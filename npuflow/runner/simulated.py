"""A whole program from named inputs to named outputs: NPU segments on the simulator,
the rest on onnxruntime."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.base.forked import renewed_in_children
from npuflow.base.wording import first_line
from npuflow.hw.rows import check_rows
from npuflow.input.data.lengths import need_indices, steps_of_sample, whole_sample
from npuflow.onnx.session import opened
from npuflow.program.container import Program, load_program
from npuflow.program.counts import rounds_at
from npuflow.program.order import order_of
from npuflow.run.driver import RunPart, driven
from npuflow.run.state import Steps, pairs
from npuflow.runner.feed import dequantize, fed, quantize, start_of
from npuflow.sim.machine import SimulatedMachine
from npuflow.sim.shadow import Shadow

Array = npt.NDArray[Any]


_Batch = list[Array]                     # of every sample
# samples at a time, the values that are watched, and the rounds that loops run
_Kind = tuple[int, tuple[str, ...], tuple[int, ...]]
# of idle machines: a full batch and a rest suffice, and memories are large
KINDS = 2


class ProgramRunner:
    """Runs samples through a program, at most `batch` at a time. Sessions, decoded
    words and plans are made once.

    A program may keep state from run to run. Samples that lack the inputs of the state are steps of one
    sequence, in order, which `reset` ends; `steps` gives further sequences, one for each thread or stream.
    Samples that have these inputs do not depend on each other.

    Any number of threads may share a runner: each run takes a simulated machine of its own from a pool,
    which holds as many as have run at once, and the kernels release the interpreter lock. `shadows` is of
    the calling thread's last dump.
    """

    def __init__(self, program: Program | str | os.PathLike[str], batch: int = 8) -> None:
        self.program = program if isinstance(program, Program) else load_program(program)
        self.batch = batch
        self.order = order_of(self.program)
        self.state = pairs(self.program.meta.get("state", ()))
        self.lengths: Sequence[Mapping[str, Any]] = self.program.meta.get("lengths", ())
        self.indices: Sequence[Mapping[str, Any]] = self.program.meta.get("indices", ())
        self._start = start_of(self.program.meta)
        self._own = self.steps()
        self._lock = threading.Lock()
        self._idle: dict[_Kind, list[SimulatedMachine]] = {}  # the kind that was used last comes last
        self._sessions: dict[int, Any] = {}
        self._shown = threading.local()
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: machines that threads of the parent use stay with them."""
        self._lock = threading.Lock()

    @property
    def shadows(self) -> Mapping[str, Shadow]:
        """What taps showed of the last batch that this thread dumped."""
        found: Mapping[str, Shadow] = getattr(self._shown, "shadows", {})
        return found

    def forget(self) -> None:
        """Drop the tensors that dumps of this thread and idle machines still hold."""
        self._shown.shadows = {}
        with self._lock:
            for machine in chain(*self._idle.values()):
                machine.seen, machine.shadows = {}, {}

    def run(self, inputs: Mapping[str, Array], dump: bool | Iterable[str] = False) -> dict[str, Array]:
        """One sample: outputs by name, and with `dump` every integer tensor seen whole and every
        host value (or those named)."""
        return self.run_many([inputs], dump)[0]

    def run_many(
        self, samples: Sequence[Mapping[str, Array]], dump: bool | Iterable[str] = False
    ) -> list[dict[str, Array]]:
        """The same for many samples, in order."""
        if self.state and any(name not in sample for sample in samples for _, name in self.state):
            return [self._own.run(sample, dump) for sample in samples]
        entries = self.program.meta["inputs"]
        if self.lengths:                     # outputs are of the most steps, as those of the graph are
            samples = [whole_sample(entries, self.lengths, sample) for sample in samples]
        return self.run_fed([fed(entries, sample) for sample in samples], dump)

    def run_fed(
        self, samples: Sequence[Mapping[str, Array]], dump: bool | Iterable[str] = False
    ) -> list[dict[str, Array]]:
        """`run_many` of inputs that are already as the program stores them."""
        found: list[dict[str, Array]] = []
        for part in self._batches(samples):
            found += self._together(part, dump)
        return found

    def _batches(self, samples: Sequence[Mapping[str, Array]]) -> Iterator[list[Mapping[str, Array]]]:
        """At most so many at a time, all at the same index."""
        for _, alike in groupby(samples, lambda sample: tuple(steps_of_sample(self.indices, sample).items())):
            part = list(alike)
            yield from (part[at : at + self.batch] for at in range(0, len(part), self.batch))

    def stream(
        self, samples: Iterable[Mapping[str, Array]], dump: bool | Iterable[str] = False
    ) -> Iterator[dict[str, Array]]:
        """Outputs sample by sample, computed `batch` at a time."""
        waiting: list[Mapping[str, Array]] = []
        for sample in samples:
            waiting.append(sample)
            if len(waiting) == self.batch:
                yield from self.run_many(waiting, dump)
                waiting.clear()
        yield from self.run_many(waiting, dump)

    def steps(self) -> Steps:
        """A sequence of runs with a state of its own."""
        return Steps(lambda sample, dump: self.run_many([sample], dump)[0], self.state, self._start)

    def reset(self) -> None:
        """The next run begins a sequence."""
        self._own.reset()

    def _together(
        self, samples: Sequence[Mapping[str, Array]], dump: bool | Iterable[str]
    ) -> list[dict[str, Array]]:
        meta = self.program.meta
        names = list(dict.fromkeys((*meta["values"], *self.program.taps.values))) if dump else []
        watch = tuple(names if dump is True else [n for n in (dump or ()) if n in names])
        with self._machine(samples, watch) as machine:
            return self._through(machine, [dict(sample) for sample in samples], dump)

    def _through(
        self, machine: SimulatedMachine, samples: list[dict[str, Array]], dump: bool | Iterable[str]
    ) -> list[dict[str, Array]]:
        """Run one batch on a machine that nobody else uses meanwhile."""
        meta = self.program.meta
        machine.forget()
        self._shown.shadows = machine.shadows
        count, given = len(samples), {name: [sample[name] for sample in samples] for name in samples[0]}
        for name in meta.get("cleared", ()):
            entry = meta["values"][name]
            machine.write(name, quantize(np.zeros(entry["shape"], np.float32), entry["quant"]))
        for name in [entry["name"] for entry in meta["inputs"] if entry["name"] in meta["values"]]:
            machine.write(name, np.stack(given[name]))
        outputs = [o["name"] for o in meta["outputs"]]
        named = {*outputs, *(() if dump is True else dump or ())}
        steps = meta["steps"]
        parts = [RunPart(_reads(step), partial(self._step, step, machine, count)) for step in steps]
        found = driven(parts, given, lambda name: dump is True or name in named)
        whole = {n: s.array for n, s in machine.shadows.items() if n not in machine.seen and s.seen.all()}
        for name, array in (*machine.seen.items(), *whole.items()):
            if dump is True or name in named:
                found.setdefault(name, list(array))
        found |= self._gathered(outputs, machine, found)
        return [{name: arrays[b] for name, arrays in found.items()} for b in range(count)]

    def _step(
        self, step: Mapping[str, Any], machine: SimulatedMachine, count: int, values: Mapping[str, _Batch]
    ) -> dict[str, _Batch]:
        """What a step of the host makes of a batch, and what it reads of DATA."""
        if step["kind"] == "npu":
            machine.run(step["segment"])
            return {}
        made = self._gathered(_reads(step), machine, values)
        read = {name: made[name] if name in made else values[name] for name in _reads(step)}
        made |= self._host(step, count, read) if step["kind"] == "host" else self._converted(step, read)
        for name in made:
            if name in self.program.meta["values"] and name not in read:
                machine.write(name, np.stack(made[name]))
        return made

    def _host(self, step: Mapping[str, Any], count: int, read: Mapping[str, _Batch]) -> dict[str, _Batch]:
        session = self._session(step["model"])
        names, rows = list(step["outputs"]), []
        for b in range(count):
            try:
                rows.append(session.run(names, {name: arrays[b] for name, arrays in read.items()}))
            except Exception as error:  # onnxruntime's errors share no public base class
                said = first_line(error)
                raise ModelError(
                    f"host model {step['model']} failed: {said}", code="NF-PROGRAM-017",
                ) from error
        return {name: [row[k] for row in rows] for k, name in enumerate(names)}

    def _converted(self, step: Mapping[str, Any], read: Mapping[str, _Batch]) -> dict[str, _Batch]:
        convert = quantize if step["kind"] == "quantize" else dequantize
        arrays = read[step["value"]]
        for array in arrays:
            check_rows(array, step.get("rows", 0), step["value"], step.get("parts", ()))
        return {step["out"]: [convert(array, step["quant"]) for array in arrays]}

    def _gathered(
        self, names: Iterable[str], machine: SimulatedMachine, values: Mapping[str, _Batch]
    ) -> dict[str, _Batch]:
        """Values that lie in DATA, of those that the host does not know."""
        missing = [name for name in names if name not in values]
        for name in missing:
            if name not in self.program.meta["values"]:
                raise ModelError(f"no step produces the value {name!r}", code="NF-PROGRAM-018")
        return {name: list(machine.read(name)) for name in missing}

    @contextmanager
    def _machine(
        self, samples: Sequence[Mapping[str, Array]], watch: tuple[str, ...]
    ) -> Iterator[SimulatedMachine]:
        """A machine for one run: an idle one, or a new one. A run that fails leaves it in an
        unknown state: it is dropped. Samples that run together run the steps of the longest; where
        one looks inside, all steps run, and caches are read whole."""
        batch, program, order = len(samples), self.program, self.order
        rounds: tuple[int, ...] = ()
        if read := (*(() if watch else self.lengths), *self.indices):
            for sample in samples:
                need_indices(self.indices, sample)
            each = [steps_of_sample(read, sample) for sample in samples]
            most = {name: max(one[name] for one in each) for name in each[0]}
            rounds = rounds_at(program.meta, program.stored, most, bool(watch))
        kind = batch, watch, rounds
        with self._lock:
            idle = self._idle.get(kind)
            machine = idle.pop() if idle else None
        if machine is None:
            if rounds:
                program = program.at(most, bool(watch))
                order = order_of(program)
            machine = SimulatedMachine(program, batch, watch=watch, order=order)
        yield machine
        with self._lock:
            self._idle[kind] = [*self._idle.pop(kind, ()), machine]
            while len(self._idle) > KINDS:
                self._idle.pop(next(iter(self._idle)))

    def _session(self, index: int) -> Any:
        """A host part's session, made once; onnxruntime lets threads share it."""
        with self._lock:
            if index not in self._sessions:
                try:
                    self._sessions[index] = opened(self.program.hosts[index])
                except Exception as error:  # onnxruntime's errors share no public base class
                    said = first_line(error)
                    raise ModelError(
                        f"host model {index} cannot run: {said}", code="NF-PROGRAM-020",
                    ) from error
            return self._sessions[index]


def _reads(step: Mapping[str, Any]) -> tuple[str, ...]:
    """Values that the host knows, or reads of DATA, for a step."""
    return tuple(step["inputs"]) if step["kind"] == "host" else (step["value"],) if "value" in step else ()
