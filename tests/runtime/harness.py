"""The C runtime as a shared library, by ctypes: programs opened, run and compared."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.program.container import Program
from npuflow.runner import raw
from npuflow.runner.feed import container, quantize
from npuflow.runner.raw import DataSlot
from npuflow.sim.machine import SimulatedMachine
from npuflow.whole.export_c.compiler import compilers

ROOT = Path(__file__).parents[2] / "npuflow" / "runtime"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffp-contract=off", "-fPIC", "-shared")
UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
COMPILERS = compilers()
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


class Tensor(ctypes.Structure):
    """`npuflow_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("numbers", ctypes.c_int),
        ("rank", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("elements", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("address", ctypes.c_uint64),
        ("scales", ctypes.c_uint32), ("axis", ctypes.c_int32), ("scale", ctypes.POINTER(ctypes.c_double)),
        ("zero_point", ctypes.POINTER(ctypes.c_int32)), ("least", ctypes.c_int64),
        ("most", ctypes.c_int64), ("rows", ctypes.c_int64), ("state", ctypes.c_int32),
    )

    @property
    def own_name(self) -> str:
        found: bytes = self.name
        return found.decode()


class Error(ctypes.Structure):
    """`npuflow_error`."""

    _fields_ = (
        ("status", ctypes.c_int), ("core", ctypes.c_int), ("command", ctypes.c_longlong),
        ("text", ctypes.c_char * 160),
    )


class Options(ctypes.Structure):
    """`npuflow_options`."""

    _fields_ = (
        ("network", ctypes.c_char_p), ("driver", ctypes.c_void_p), ("context", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("release", ctypes.c_void_p), ("keys", ctypes.c_void_p),
        ("key_count", ctypes.c_uint32), ("crypto", ctypes.c_void_p), ("state_of", ctypes.c_void_p),
    )


class Index(ctypes.Structure):
    """`npuflow_index`."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("position", ctypes.c_uint32), ("most", ctypes.c_uint32),
        ("added", ctypes.c_uint32),
    )


class RuntimeFault(Exception):
    """A status that is not 0."""

    def __init__(self, error: Error) -> None:
        where = f"core {error.core}, command {error.command}"
        super().__init__(f"{error.status}: {error.text.decode()} ({where})")
        self.status = error.status


def library(folder: Path, flags: Iterable[str] = ("-O1",), compiler: str | None = None) -> ctypes.CDLL:
    """The sources compiled."""
    made = folder / "libnpuflow.so"
    sources = sorted(map(str, (ROOT / "src").glob("*.c")))
    words = [compiler or COMPILERS[0], *STRICT, *flags, "-o", str(made), *sources, "-lm"]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:4000]
    return declared(ctypes.CDLL(str(made)))


def declared(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer = ctypes.c_void_p
    for name in ("npuflow_inputs", "npuflow_outputs"):
        getattr(found, name).restype = ctypes.POINTER(Tensor)
        getattr(found, name).argtypes = [pointer, ctypes.POINTER(ctypes.c_uint32)]
    found.npuflow_at.restype = pointer
    found.npuflow_at.argtypes = [pointer, ctypes.POINTER(Tensor)]
    found.npuflow_open.argtypes = [
        pointer, ctypes.c_size_t, ctypes.POINTER(Options), ctypes.POINTER(pointer), ctypes.POINTER(Error)
    ]
    found.npuflow_run.argtypes = [pointer, ctypes.POINTER(Error)]
    found.npuflow_steps.argtypes = [pointer, ctypes.c_uint32, ctypes.c_uint32]
    found.npuflow_output_steps.argtypes = [pointer, ctypes.c_uint32]
    found.npuflow_output_steps.restype = ctypes.c_uint32
    for name in ("npuflow_close", "npuflow_reset"):
        getattr(found, name).argtypes = [pointer]
        getattr(found, name).restype = None
    for name in ("npuflow_quantize", "npuflow_dequantize"):
        getattr(found, name).argtypes = [ctypes.POINTER(Tensor), pointer, pointer]
    found.npuflow_position.argtypes = [pointer, ctypes.POINTER(Index)]
    found.npuflow_trim.argtypes = [pointer, ctypes.c_uint32]
    found.npuflow_network.argtypes = [
        pointer, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t
    ]
    found.npuflow_digest.argtypes = [pointer, ctypes.c_size_t, pointer]
    found.npuflow_memory.argtypes = [pointer]
    found.npuflow_memory.restype = ctypes.c_size_t
    return found


class CProgram:
    """A program in the C runtime; codes in, codes out."""

    def __init__(
        self, found: ctypes.CDLL, file: bytes, network: str | None = None, options: Options | None = None
    ) -> None:
        self.runtime, self.size = found, len(file)
        self.file = np.zeros(len(file) // 8 + 1, np.uint64)          # begins at a multiple of 8 bytes
        self.file.view(np.uint8)[: len(file)] = np.frombuffer(file, np.uint8)
        self.program, error = ctypes.c_void_p(), Error()
        options = options or Options(network.encode() if network else None)
        places = (ctypes.byref(one) for one in (options, self.program, error))
        status = found.npuflow_open(self.file.ctypes.data, self.size, *places)
        if status:
            raise RuntimeFault(error)
        self.inputs, self.outputs = (self._ports(name) for name in ("inputs", "outputs"))

    def _ports(self, side: str) -> dict[str, Tensor]:
        count = ctypes.c_uint32()
        first = getattr(self.runtime, f"npuflow_{side}")(self.program, ctypes.byref(count))
        return {first[i].own_name: first[i] for i in range(count.value)}

    def at(self, port: Tensor) -> np.ndarray:
        """The codes where they lie in DATA."""
        place = self.runtime.npuflow_at(self.program, ctypes.byref(port))
        shape = tuple(port.shape[i] for i in range(port.rank))
        body = (ctypes.c_uint8 * port.bytes).from_address(place)
        return np.frombuffer(body, DTYPES[port.type]).reshape(shape)

    def steps(self, name: str, count: int) -> int:
        """How many steps the next run has; a status."""
        found: int = self.runtime.npuflow_steps(self.program, list(self.inputs).index(name), count)
        return found

    def output_steps(self, name: str) -> int:
        """How many of an output's steps are of the run; 0: it has none."""
        found: int = self.runtime.npuflow_output_steps(self.program, list(self.outputs).index(name))
        return found

    @property
    def index(self) -> Index:
        """Where the next run begins, and how far runs may go."""
        found = Index()
        assert not self.runtime.npuflow_position(self.program, ctypes.byref(found))
        return found

    def trim(self, position: int) -> int:
        """Keep the first tokens; a status."""
        found: int = self.runtime.npuflow_trim(self.program, position)
        return found

    def reset(self) -> None:
        self.runtime.npuflow_reset(self.program)

    def run(self, codes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for name, array in codes.items():
            self.at(self.inputs[name])[...] = array
        error = Error()
        if self.runtime.npuflow_run(self.program, ctypes.byref(error)):
            raise RuntimeFault(error)
        return {name: self.at(port).copy() for name, port in self.outputs.items()}

    def quantize(self, name: str, real: np.ndarray) -> np.ndarray:
        port = self.inputs[name]
        made = np.empty(real.shape, DTYPES[port.type])
        given = np.ascontiguousarray(real, np.float32)
        assert not self.runtime.npuflow_quantize(ctypes.byref(port), given.ctypes.data, made.ctypes.data)
        return made

    def dequantize(self, name: str, codes: np.ndarray) -> np.ndarray:
        port, made = self.outputs[name], np.empty(codes.shape, np.float32)
        given = np.ascontiguousarray(codes)
        assert not self.runtime.npuflow_dequantize(ctypes.byref(port), given.ctypes.data, made.ctypes.data)
        return made

    def close(self) -> None:
        self.runtime.npuflow_close(self.program)
        self.program = ctypes.c_void_p()

    def __enter__(self) -> CProgram:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def codes_of(slot: DataSlot, rng: np.random.Generator, count: int) -> np.ndarray:
    """Samples of an input: codes over their whole range, or patterns of normal numbers."""
    shape = (count, *slot.shape)
    if slot.quant is not None and "element" in slot.quant:
        return quantize(rng.normal(size=shape).astype(np.float32), slot.quant)
    kind = np.iinfo(slot.dtype)
    few = max(int(kind.min), -128), min(int(kind.max), 127)
    low, high = container(slot.quant)[:2] if slot.quant else few
    return rng.integers(low, high, shape, endpoint=True).astype(slot.dtype)


def simulated(program: Program, codes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The codes of the outputs, by name, of samples of all inputs."""
    count = len(next(iter(codes.values())))
    machine = SimulatedMachine(program, count)
    for slot in raw.inputs(program):
        machine.write(slot.value, codes[slot.name])
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            machine.run(step["segment"])
    return {slot.name: machine.read(slot.value) for slot in raw.outputs(program)}


def differing(found: ctypes.CDLL, program: Program, count: int, seed: int = 0) -> tuple[int, int]:
    """How many bytes of the outputs differ from the simulator's, and of how many."""
    rng = np.random.default_rng(seed)
    codes = {slot.name: codes_of(slot, rng, count) for slot in raw.inputs(program)}
    wanted, wrong, of = simulated(program, codes), 0, 0
    with CProgram(found, program.to_bytes()) as one:
        for k in range(count):
            made = one.run({name: array[k] for name, array in codes.items()})
            for name, array in wanted.items():
                wrong += int((made[name].view(np.uint8) != array[k].view(np.uint8)).sum())
                of += array[k].nbytes
    return wrong, of
