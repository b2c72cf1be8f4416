"""Runs .pte files whose partitions are .npu programs: ExecuTorch's Python runtime with npuflow as delegate.

The delegate is `delegate.cpp`, compiled once for an installed ExecuTorch against the headers that its wheel
ships. It hands programs and tensors to functions of this process: npuflow's executor, which computes the same
bits as the simulator.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.apps.executorch.backend import NpuflowBackend
from npuflow.base.digest import digest
from npuflow.base.errors import BuildError, DataError
from npuflow.flow.recipe_cache import cache_folder
from npuflow.flow.store_files import replace
from npuflow.runner.backend import Exact
from npuflow.runner.opening import check_exact
from npuflow.runner.ports import Port
from npuflow.runner.runner import Runner

LOG = logging.getLogger("npuflow.executorch")
SOURCE = Path(__file__).with_name("delegate.cpp")
COMPILERS = ("c++", "g++", "clang++")
OPEN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
)
CLOSE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@dataclass(frozen=True)
class PteMethod:
    """A method of a .pte file. ExecuTorch's own method does not keep the file that it reads from."""

    program: Any
    method: Any

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, as `executorch.runtime.Method.execute` gives them, of tensors in any order of
        dimensions. What stops a program is the cause of the error."""
        with _with_cause():
            return list(self.method.execute([_plain(one) for one in inputs]))

    def __call__(self, *inputs: Any) -> list[Any]:
        return self.execute(inputs)


def _plain(one: Any) -> Any:
    """A tensor whose bytes lie in the order of its shape: ExecuTorch copies bytes, however they lie."""
    return one.contiguous() if hasattr(one, "contiguous") else one


def load(path: str | Path | bytes, method: str = "forward", *, exact: Exact | None = None) -> PteMethod:
    """A method of a .pte file: `load("net.pte")(x)`. `exact`: "executor" computes a program on whole tensors,
    "simulator" runs its commands; both give the same bits. DataError of what is no .pte file, or has no such
    method; UsageError of another `exact`."""
    from executorch.runtime import Runtime

    register(exact)
    source = path if isinstance(path, bytes) else _read(Path(path))
    name = "the bytes" if isinstance(path, bytes) else str(path)
    with _with_cause():
        program = _program(Runtime.get(), source, name)
        known = sorted(program.method_names)
        if method not in known:
            raise DataError(
                f'{name} has no method "{method}"', because=f"known: {', '.join(known)}", code="NF-DATA-330"
            )
        return PteMethod(program, program.load_method(method))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise DataError(
            f"{path} cannot be read", because=fault.strerror or str(fault), code="NF-DATA-329"
        ) from None


def _program(loader: Any, source: bytes, name: str) -> Any:
    try:
        return loader.load_program(source)
    except RuntimeError as fault:
        raise DataError(
            f"{name} is no .pte file", because=f"ExecuTorch says: {fault}",
            hint="to_edge_transform_and_lower(...).to_executorch().buffer is what such a file holds",
            code="NF-DATA-331",
        ) from None


@contextmanager
def _with_cause() -> Iterator[None]:
    """ExecuTorch's errors have a number alone: what stopped a program becomes their cause."""
    _DELEGATE.fault = None
    try:
        yield
    except RuntimeError as error:
        if _DELEGATE.fault is None:
            raise
        raise error from _DELEGATE.fault


def register(exact: Exact | None = None) -> None:
    """Makes npuflow the delegate of this process: .pte files that ExecuTorch loads from now on find it.
    UsageError of another `exact`."""
    check_exact(exact)
    _DELEGATE.exact = exact
    _registered()


@cache
def _registered() -> ctypes.CDLL:
    library = ctypes.CDLL(str(built()))
    failed = library.npuflow_register(*_DELEGATE.functions)
    if failed:
        raise BuildError(
            f"ExecuTorch does not register {NpuflowBackend.__name__}", because=f"its error code is {failed}",
            code="NF-RUN-121",
        )
    return library


def built(folder: Path | None = None) -> Path:
    """The compiled delegate, in `folder` or the user's cache: compiled where it is not there yet."""
    package = _package()
    key = digest({"source": SOURCE.read_text(), "executorch": version("executorch"), "at": str(package)})
    place = folder or cache_folder(None, None, Path.cwd()) / "executorch"
    path = place / f"delegate-{key.split(':')[-1]}.so"
    if not path.is_file():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "delegate.so"
            _compile(package, made)
            replace(str(path), made.read_bytes(), str(place))
    return path


def _package() -> Path:
    import executorch.exir

    return Path(executorch.exir.__file__).parent.parent


def _compile(package: Path, made: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise BuildError(
            "the delegate of ExecuTorch needs a C++ compiler",
            because=f"none of {', '.join(COMPILERS)} is there", hint="apt-get install g++, or CXX=...",
            code="NF-RUN-122",
        )
    headers, libraries = package / "include", package / "lib"
    c10 = headers / "executorch" / "runtime" / "core" / "portable_type" / "c10"
    command = [
        *compiler.split(), "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{headers}", f"-I{c10}",
        "-DC10_USING_CUSTOM_GENERATED_MACROS", str(SOURCE), "-o", str(made), f"-L{libraries}", "-lexecutorch",
        f"-Wl,-rpath,{libraries}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(
            "the delegate of ExecuTorch does not compile", because=done.stderr.strip()[:2000],
            hint=f"headers of executorch {version('executorch')} in {headers}", code="NF-RUN-123",
        )


@dataclass
class _Delegate:
    """The delegate's functions, and the programs that they opened, by handle."""

    exact: Exact | None = None
    runners: dict[int, Runner] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)
    opened: int = 0
    fault: Exception | None = None        # what stopped the last program

    def __post_init__(self) -> None:
        self.functions = OPEN(self.open), RUN(self.run), CLOSE(self.close)

    def open(self, program: int, size: int) -> int:
        try:
            runner = Runner(ctypes.string_at(program, size), exact=self.exact)
        except Exception as fault:        # no exception may leave a function that C++ calls
            self.fault = fault
            LOG.error("a program of the .pte file cannot be opened: %s", fault)
            return 0
        with self.lock:
            self.opened += 1
            self.runners[self.opened] = runner
            return self.opened

    def run(self, handle: int, count: int, data: Any, sizes: Any) -> int:
        try:
            runner = self.runners[handle]
            ports = (*runner.inputs, *runner.outputs)
            arrays = _arrays(ports, [(data[i] or 0, sizes[i]) for i in range(count)])
            inputs = len(runner.inputs)
            found = runner.run({port.name: arrays[i] for i, port in enumerate(runner.inputs)})
            for port, array in zip(runner.outputs, arrays[inputs:], strict=True):
                array[...] = np.asarray(found[port.name]).reshape(array.shape)
        except Exception as fault:
            self.fault = fault
            LOG.error("a program of the .pte file cannot run: %s", fault)
            return 1
        return 0

    def close(self, handle: int) -> None:
        runner = self.runners.pop(handle, None)
        if runner is not None:
            runner.close()


def _arrays(ports: Sequence[Port], buffers: Sequence[tuple[int, int]]) -> list[Any]:
    """ExecuTorch's buffers as arrays, in place."""
    sizes = [int(np.prod(port.shape, dtype=np.int64)) * np.dtype(port.dtype).itemsize for port in ports]
    if sizes != [size for _, size in buffers]:
        raise DataError(
            "the tensors are not those that the program was compiled for",
            because=f"bytes of inputs and outputs: {[size for _, size in buffers]}; the program's: {sizes}",
            code="NF-RUN-124",
        )
    return [
        np.frombuffer(_bytes(at, size), port.dtype).reshape(port.shape)
        if size else np.empty(port.shape, port.dtype)
        for port, (at, size) in zip(ports, buffers, strict=True)
    ]


def _bytes(at: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(at)


_DELEGATE = _Delegate()
