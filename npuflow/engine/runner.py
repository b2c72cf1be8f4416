"""A whole program from named inputs to named outputs: NPU segments on the simulator,
the rest on onnxruntime."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, ModelError
from npuflow.engine.pixels import Pixels, given
from npuflow.engine.program.container import Program, load_program
from npuflow.engine.sim.machine import Machine
from npuflow.engine.sim.order import order_of
from npuflow.engine.sim.shadow import Shadow
from npuflow.engine.state import pairs

if TYPE_CHECKING:
    import onnxruntime

Array = npt.NDArray[Any]


_Kind = tuple[int, tuple[str, ...]]      # samples at a time, and the values that are watched
# of idle machines: a full batch and a rest suffice, and memories are large
KINDS = 2


class Runner:
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
        self._own = Steps(self)
        self._lock = threading.Lock()
        self._idle: dict[_Kind, list[Machine]] = {}  # the kind that was used last comes last
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        self._shown = threading.local()

    @property
    def shadows(self) -> Mapping[str, Shadow]:
        """What taps showed of the last batch that this thread dumped."""
        found: Mapping[str, Shadow] = getattr(self._shown, "shadows", {})
        return found

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
        found: list[dict[str, Array]] = []
        for start in range(0, len(samples), self.batch):
            found += self._together(samples[start : start + self.batch], dump)
        return found

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
        return Steps(self)

    def reset(self) -> None:
        """The next run begins a sequence."""
        self._own.reset()

    def _together(
        self, samples: Sequence[Mapping[str, Array]], dump: bool | Iterable[str]
    ) -> list[dict[str, Array]]:
        meta = self.program.meta
        names = list(dict.fromkeys((*meta["values"], *self.program.taps.values))) if dump else []
        watch = tuple(names if dump is True else [n for n in (dump or ()) if n in names])
        values = [self._fed(sample) for sample in samples]
        with self._machine(len(samples), watch) as machine:
            return self._through(machine, values, dump)

    def _through(
        self, machine: Machine, values: list[dict[str, Array]], dump: bool | Iterable[str]
    ) -> list[dict[str, Array]]:
        """Run one batch on a machine that nobody else uses meanwhile."""
        meta = self.program.meta
        machine.forget()
        self._shown.shadows = machine.shadows
        for name in [entry["name"] for entry in meta["inputs"] if entry["name"] in meta["values"]]:
            machine.write(name, np.stack([v[name] for v in values]))
        last = self._last_reads()
        for i, step in enumerate(meta["steps"]):
            self._step(step, machine, values)
            if not dump:
                for stale in [n for n in values[0] if last.get(n, -1) <= i]:
                    for v in values:
                        v.pop(stale, None)
        whole = {
            n: s.array.copy() for n, s in machine.shadows.items() if n not in machine.seen and s.seen.all()
        }
        for name, array in (*machine.seen.items(), *whole.items()):
            for v, sample in zip(values, array, strict=True):
                v.setdefault(name, sample)
        outputs = [o["name"] for o in meta["outputs"]]
        wanted = None if dump is True else {*outputs, *(dump or ())}
        for name in outputs:
            self._gather(name, machine, values)
        return [{k: a for k, a in v.items() if wanted is None or k in wanted} for v in values]

    def _last_reads(self) -> dict[str, int]:
        """Value -> the last step that reads it on the host; outputs are read after all of them."""
        last: dict[str, int] = {}
        for i, step in enumerate(self.program.meta["steps"]):
            for name in (
                step["inputs"] if step["kind"] == "host" else [step["value"]] if "value" in step else []
            ):
                last[name] = i
        for entry in self.program.meta["outputs"]:
            last[entry["name"]] = len(self.program.meta["steps"])
        return last

    def _step(self, step: Mapping[str, Any], machine: Machine, values: list[dict[str, Array]]) -> None:
        kind = step["kind"]
        if kind == "npu":
            machine.run(step["segment"])
        elif kind == "host":
            for name in step["inputs"]:
                self._gather(name, machine, values)
            session = self._session(step["model"])
            for v in values:
                try:
                    results = session.run(list(step["outputs"]), {name: v[name] for name in step["inputs"]})
                except Exception as error:  # onnxruntime's errors share no public base class
                    said = str(error).splitlines()[0]
                    raise ModelError(
                        f"host model {step['model']} failed: {said}", code="NF-PROGRAM-017",
                    ) from error
                v.update(zip(step["outputs"], results, strict=True))
            self._deliver(step["outputs"], machine, values)
        else:
            self._gather(step["value"], machine, values)
            convert = quantize if kind == "quantize" else dequantize
            for v in values:
                v[step["out"]] = convert(v[step["value"]], step["quant"])
            self._deliver([step["out"]], machine, values)

    def _gather(self, name: str, machine: Machine, values: list[dict[str, Array]]) -> None:
        """Make a value that lies in DATA known to the host."""
        if name in values[0]:
            return
        if name not in self.program.meta["values"]:
            raise ModelError(f"no step produces the value {name!r}", code="NF-PROGRAM-018")
        for v, sample in zip(values, machine.read(name), strict=True):
            v[name] = sample

    def _deliver(self, names: Iterable[str], machine: Machine, values: list[dict[str, Array]]) -> None:
        for name in names:
            if name in self.program.meta["values"]:
                machine.write(name, np.stack([v[name] for v in values]))

    def _fed(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        found = {}
        for entry in self.program.meta["inputs"]:
            name, shape = entry["name"], tuple(entry["shape"])
            if name not in sample:
                raise DataError(
                    f'no data for the input "{name}"',
                    because=f"given: {', '.join(sample) or 'nothing'}", code="NF-DATA-012",
                )
            array = np.asarray(sample[name])
            if array.ndim != len(shape) or any(
                want not in (-1, have) for have, want in zip(array.shape, shape, strict=True)
            ):
                raise DataError(
                    f'the input "{name}" has shape {array.shape}, the program expects {shape}',
                    code="NF-DATA-014",
                )
            if entry.get("pixels"):
                array = given(array, Pixels.read(entry["pixels"]), entry["dtype"], name)
            # real numbers for an input that takes codes
            elif entry.get("quant") and array.dtype.kind == "f":
                array = quantize(array, entry["quant"])
            elif entry.get("quant") and array.size:
                lo, hi, _ = container(entry["quant"])
                if int(array.min()) < lo or int(array.max()) > hi:
                    raise DataError(
                        f'the input "{name}" has codes {array.min()}..{array.max()}, its type has {lo}..{hi}',
                        code="NF-DATA-060",
                    )
            try:
                found[name] = (
                    array if entry["dtype"] == "string" else array.astype(entry["dtype"], copy=False)
                )
            except TypeError as error:
                raise ModelError(
                    f'the input "{name}" has the dtype {entry["dtype"]!r}',
                    code="NF-PROGRAM-019",
                ) from error
        return found

    @contextmanager
    def _machine(self, batch: int, watch: tuple[str, ...]) -> Iterator[Machine]:
        """A machine for one run: an idle one, or a new one. A run that fails leaves it in an
        unknown state: it is dropped."""
        kind = batch, watch
        with self._lock:
            idle = self._idle.get(kind)
            machine = idle.pop() if idle else None
        if machine is None:
            machine = Machine(self.program, batch, watch=watch, order=self.order)
        yield machine
        with self._lock:
            self._idle[kind] = [*self._idle.pop(kind, ()), machine]
            while len(self._idle) > KINDS:
                self._idle.pop(next(iter(self._idle)))

    def _session(self, index: int) -> onnxruntime.InferenceSession:
        """A host part's session, made once; onnxruntime lets threads share it."""
        with self._lock:
            if index not in self._sessions:
                self._sessions[index] = _opened(self.program.hosts[index], index)
            return self._sessions[index]


class Steps:
    """One sequence of runs of a program: what the state holds between them, zeros at first."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.held: dict[str, Array] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what came before."""
        ports = {entry["name"]: entry for entry in self.runner.program.meta["inputs"]}
        for _, name in self.runner.state:
            real, quant = np.zeros(ports[name]["shape"], np.float32), ports[name].get("quant")
            self.held[name] = quantize(real, quant) if quant else real.astype(ports[name]["dtype"])

    def run(self, sample: Mapping[str, Array], dump: bool | Iterable[str] = False) -> dict[str, Array]:
        """One step. State that the sample itself has replaces what is kept."""
        (found,) = self.runner.run_many([{**self.held, **sample}], dump)
        self.held = {name: found[output] for output, name in self.runner.state}
        return found


def _opened(model: bytes, index: int) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4                         # what goes wrong is raised, and reported once
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no public base class
        raise ModelError(
            f"host model {index} cannot run: {str(error).splitlines()[0]}", code="NF-PROGRAM-020",
        ) from error


def quantize(real: Array, quant: Mapping[str, Any]) -> Array:
    """The container integers of a float array: nearest, ties to even, in float64;
    NaN becomes the zero point."""
    scale, zero = (
        _along(quant, "scale", np.float64, real.shape),
        _along(quant, "zero_point", np.int64, real.shape),
    )
    lo, hi, dtype = container(quant)
    codes = real.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        np.divide(codes, scale, out=codes)
    unknown = np.isnan(codes)
    if unknown.any():
        codes[unknown] = 0.0
    np.rint(codes, out=codes)                          # IEEE: ties to even
    np.add(np.maximum(np.minimum(codes, 2.0**40), -(2.0**40)), zero, out=codes)
    return np.asarray(np.minimum(np.maximum(codes, lo), hi).astype(dtype))


def dequantize(stored: Array, quant: Mapping[str, Any]) -> Array:
    """float32(scale * (q - zero point)), the product in float64."""
    scale, zero = (
        _along(quant, "scale", np.float64, stored.shape),
        _along(quant, "zero_point", np.int64, stored.shape),
    )
    return np.asarray(((stored.astype(np.int64) - zero) * scale).astype(np.float32))


def container(quant: Mapping[str, Any]) -> tuple[int, int, str]:
    """Smallest and largest code, and the dtype that holds them."""
    bits, signed = quant["bits"], quant["signed"]
    width = next(w for w in (8, 16, 32) if bits <= w)
    if signed:
        return -(1 << (bits - 1)) + int(bool(quant.get("narrow"))), (1 << (bits - 1)) - 1, f"int{width}"
    return 0, (1 << bits) - 1, f"uint{width}"


def _along(quant: Mapping[str, Any], name: str, dtype: type, shape: tuple[int, ...]) -> Array:
    """A per-tensor number, or per-channel numbers shaped to broadcast along their axis."""
    numbers: Array = np.asarray(quant[name], dtype)
    axis = quant.get("axis")
    if axis is None or numbers.size == 1:
        return numbers.reshape(-1)[:1].reshape(())
    numbers = np.repeat(numbers, quant.get("group") or 1)
    if axis >= len(shape) or numbers.size != shape[axis]:
        raise ModelError(
            f"{numbers.size} numbers for dimension {axis} of a value of shape {shape}", code="NF-PROGRAM-021",
        )
    return numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))])
