"""The public runner: a program or a model with named tensors, called directly, as futures, or in batches."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from npuflow.base.errors import DataError, UsageError
from npuflow.base.forked import renewed_in_children
from npuflow.input.given import mapping
from npuflow.program.packing.package import Package
from npuflow.program.seal import Key
from npuflow.run.state import Steps
from npuflow.runner.backend import Dump, Exact
from npuflow.runner.language import TokenModel
from npuflow.runner.nan import Nan, NanCheck
from npuflow.runner.opening import Source, opened, trusted
from npuflow.runner.ports import Array, Port, joined, none_of, rows, written
from npuflow.runner.preprocess import Prepare, Preprocess, preparation_of
from npuflow.runner.programs import SimulatedProgram, Tensors
from npuflow.runner.requests import Outputs, Requests, closed_runner, outcomes
from npuflow.runner.sessions import TokenSession
from npuflow.runner.steps import state_and_start

Inputs = Mapping[str, Any]


class Runner:
    """Runs a program (`.npu`) or a model (ONNX, QDQ ONNX, TFLite) from named inputs to named outputs.

    `exact`: "executor" computes a program on whole tensors from the graph that it keeps, "simulator" runs its
    commands on modelled memories; both give the same bits. None takes the executor where there is a graph.
    Models run on onnxruntime.
    `batch`: samples that are computed together at most. `workers`: threads of `submit`; `linger`: seconds
    that they wait for a batch to fill. `limit`: requests that may wait; 0: any number.
    `preprocess`: inputs are pictures or stored arrays; True applies the steps of the program's recipe, a list
    gives steps as `[[data.steps]]` has them.
    `state`: output -> input, what is carried from one run to the next, of a model that does not state it
    itself. Samples that lack these inputs are steps of one sequence, which `reset` ends; `steps` gives
    further sequences. Requests of `submit` do not follow each other: they begin with zeros.
    `nan`: integers have no NaN. "warn" says once of every input that loses some; "refuse": a DataError
    (NF-DATA-230) for NaN in any input; "allow": neither.
    `dims`: sizes that a checkpoint leaves open, as `[model] dims` has them.
    `require_key`: a public key (a file, or "ed25519:..."), or several: the model must be a `.npu` that
    `npuflow seal` has sealed with one of them.

    Any number of threads may share a runner. After `close`, or the end of its `with` block, whatever runs
    samples raises UsageError (NF-RUN-007); `inputs`, `outputs` and `buffers` still answer.
    A runner may be copied and pickled; the copy has threads and a sequence of its own. In a forked process it
    goes on, with new threads; what the parent submitted raises UsageError (NF-RUN-050) there.
    """

    def __init__(
        self,
        model: Source | Package,
        batch: int = 8,
        *,
        exact: Exact | None = None,
        preprocess: Preprocess = False,
        state: Mapping[str, str] | None = None,
        workers: int = 1,
        linger: float = 0.0,
        limit: int = 0,
        threads: int = 1,
        dump: bool = False,
        nan: Nan = "warn",
        dims: Mapping[str, int] | None = None,
        require_key: Key | Sequence[Key] | None = None,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "model": model, "batch": batch, "exact": exact, "preprocess": preprocess, "state": state,
            "workers": workers, "linger": linger, "limit": limit, "threads": threads, "dump": dump,
            "nan": nan, "dims": dims, "require_key": require_key,
        }
        if batch < 1 or workers < 1:
            raise UsageError("batch and workers are at least 1", code="NF-RUN-011")
        if linger < 0 or limit < 0:
            raise UsageError("linger and limit are at least 0", code="NF-RUN-047")
        held = model if require_key is None else trusted(model, require_key)
        self.backend = opened(held, exact, batch=batch, threads=threads, dump=dump, dims=dims)
        self.batch, self.workers, self.linger, self.limit = batch, workers, linger, limit
        preparation = preparation_of(preprocess, self.backend.preparation)
        self._prepare = None if preparation is None else Prepare(preparation, self.backend.inputs)
        self.nan = NanCheck(self.inputs, nan)  # its `tell` is given what is said
        self.state, self._start = state_and_start(self.backend, state or {})
        self._own = self.steps()
        self._lock = threading.Lock()
        self._queue: Requests | None = None
        self._closed = False
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: a lock of its own, and threads with its first request."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """What opens it again: its arguments. A program goes along whole, other files by their full path."""
        self._open()
        source, key = self._arguments["model"], self._arguments["require_key"]
        if isinstance(self.backend, SimulatedProgram | Tensors):
            source, key = self.backend.program, None
        elif isinstance(source, str | os.PathLike):
            source = str(Path(source).resolve())
        elif not isinstance(source, Package):
            source = bytes(source)
        return {**self._arguments, "model": source, "require_key": key}

    def __setstate__(self, arguments: Mapping[str, Any]) -> None:
        self.__init__(**arguments)  # type: ignore[misc]

    def __repr__(self) -> str:
        ends = (", ".join(f"{p.name} {p.dtype} {list(p.shape)}" for p in ports) for ports in
                (self.inputs, self.outputs))
        return f"<Runner of {self.name} on {self.exact}: {' -> '.join(ends)}>"

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def exact(self) -> Exact:
        """What computes: "executor", "simulator" or "onnxruntime"."""
        return self.backend.exact

    @property
    def inputs(self) -> tuple[Port, ...]:
        return self.backend.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self.backend.outputs

    def run(
        self,
        inputs: Inputs,
        *,
        out: Mapping[str, Array] | None = None,
        dump: Dump = False,
    ) -> Outputs:
        """One sample: outputs by name. `out`: arrays that outputs are written into (`buffers` makes them).
        `dump`: also inner tensors, all or those named.

        An input may be any array of numbers that numpy reads in place (buffers, `__array__`); it is not
        copied where its type is the input's.
        """
        return written(self.run_many([inputs], dump)[0], out)

    def run_many(self, samples: Sequence[Inputs], dump: Dump = False) -> list[Outputs]:
        """Many samples, `batch` at a time; outputs in order."""
        self._open()
        samples, dump = [mapping(one) for one in samples], _named(dump)
        if any(name not in one for one in samples for _, name in self.state):
            return [self._own.run(one, dump) for one in samples]
        found: list[Outputs] = []
        for start in range(0, len(samples), self.batch):
            part = [self._sample(one) for one in samples[start : start + self.batch]]
            found += self._run(part, dump)
        return found

    def run_batch(self, inputs: Inputs, *, out: Mapping[str, Array] | None = None) -> Outputs:
        """Samples along the first axis of every input; outputs likewise. No sample at all gives outputs with
        a first axis of 0."""
        self._open()
        samples = rows(mapping(inputs), self.inputs)
        found = joined(self.run_many(samples)) if samples else none_of(self.outputs)
        return written(found, out)

    def stream(self, samples: Iterable[Inputs], dump: Dump = False) -> Iterator[Outputs]:
        """Outputs sample by sample, computed `batch` at a time."""
        self._open()
        dump = _named(dump)
        waiting: list[Inputs] = []
        for sample in samples:
            waiting.append(sample)
            if len(waiting) == self.batch:
                yield from self.run_many(waiting, dump)
                waiting.clear()
        yield from self.run_many(waiting, dump)

    def submit(self, inputs: Inputs, timeout: float | None = None) -> Future[Outputs]:
        """One sample, later: a future. Requests that wait together are computed together. After `timeout`
        seconds the future raises TimeoutError, and a request that still waits is not computed. Inputs are
        read when it is computed: leave the arrays as they are until then."""
        return self._requests().submit(inputs, timeout)

    async def run_async(self, inputs: Inputs, timeout: float | None = None) -> Outputs:
        """`submit` for asyncio."""
        return await asyncio.wrap_future(self.submit(inputs, timeout))

    def outcomes(self, samples: Sequence[Inputs]) -> list[Outputs | Exception]:
        """Samples of different callers, computed together as those of `submit` are: the outputs of each, or
        its fault, which harms no other."""
        self._open()
        return outcomes(lambda part: self._run(part, False), self._request, samples)

    def buffers(self, samples: int | None = None) -> dict[str, Array]:
        """Arrays for `out`, one of each output; with `samples`, for so many in `run_batch`."""
        found = {}
        for port in self.outputs:
            if not port.fixed:
                raise DataError(
                    f'the output "{port.name}" has no fixed shape',
                    because=f"it is {port.shape}",
                    code="NF-RUN-012",
                )
            shape = port.shape
            if samples is not None:
                shape = (samples * shape[0], *shape[1:]) if shape else (samples,)
            found[port.name] = np.zeros(shape, port.dtype)
        return found

    def steps(self) -> Steps:
        """A further sequence of runs with a state of its own; `run` and `reset` as here."""
        return Steps(self._step, self.state, self._start)

    def session(self, saved: str | os.PathLike[str] | None = None) -> TokenSession:
        """A further sequence of tokens with a cache of its own, of a language model: `append`, `trim`, `fork`
        and `save`. `saved`: a file that `save` wrote, to go on from there. Weights are shared by all."""
        self._open()
        made = TokenSession(TokenModel.of(self.backend, self.state, self._start), self._step)
        if saved is not None:
            made.load(saved)
        return made

    def reset(self, **start: Array) -> None:
        """The next run begins a sequence: its state is zeros, but for the inputs that are given."""
        self._own.reset(**start)

    def close(self, finish: bool = True) -> None:
        """The end of the runner and of the threads of `submit`; a second call does nothing. `finish`: what
        waits is computed first, else it is cancelled."""
        with self._lock:
            queue, self._queue, self._closed = self._queue, None, True
        if queue is not None:
            queue.close(finish)

    @property
    def requests(self) -> Requests:
        """The queue behind `submit`."""
        return self._requests()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(finish=kind is None)

    def _requests(self) -> Requests:
        with self._lock:
            self._open()
            if self._queue is None:
                self._queue = Requests(
                    lambda samples: self._run(samples, False),
                    self._request,
                    batch=self.batch,
                    workers=self.workers,
                    linger=self.linger,
                    limit=self.limit,
                )
            return self._queue

    def _open(self) -> None:
        """UsageError where the runner is closed."""
        if self._closed:
            raise closed_runner()

    def _step(self, sample: Inputs, dump: Dump) -> Outputs:
        """One run of a sequence."""
        self._open()
        return self._run([self._sample(sample)], _named(dump))[0]

    def _run(self, samples: Sequence[Mapping[str, Array]], dump: Dump) -> list[Outputs]:
        found = self.backend.run(samples, dump)
        for name in (dump if isinstance(dump, tuple) and found else ()):
            if name not in found[0]:
                raise UsageError(
                    f'there is no tensor "{name}" to dump', hint="dump=True gives all", code="NF-RUN-044"
                )
        return found

    def _request(self, inputs: Inputs) -> dict[str, Array]:
        """What the backend is fed of a sample that follows no other."""
        return self._sample({**self._start, **mapping(inputs)})

    def _sample(self, inputs: Inputs) -> dict[str, Array]:
        """What the backend is fed: preprocessed and checked."""
        given = inputs if self._prepare is None else self._prepare(inputs)
        unknown = [name for name in given if name not in {port.name for port in self.inputs}]
        if unknown:
            raise DataError(
                f'there is no input "{unknown[0]}"',
                because=f"inputs: {', '.join(port.name for port in self.inputs)}",
                code="NF-RUN-014",
            )
        self.nan(given)
        return self.backend.fed(given)


def _named(dump: Dump) -> bool | tuple[str, ...]:
    return dump if isinstance(dump, bool) else (dump,) if isinstance(dump, str) else tuple(dump)
