"""From a file, bytes or a program to the backend that runs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from npuflow.base.errors import UsageError, Where
from npuflow.base.paths import absent
from npuflow.checkpoints import is_checkpoint
from npuflow.frontends import Bindings, main_files
from npuflow.input.sources import gathered
from npuflow.program.container import MAGIC, Program
from npuflow.program.packing.package import Package, load_file, load_network, of_bytes
from npuflow.program.seal import Key, check_sealed
from npuflow.runner.backend import Backend, Exact
from npuflow.runner.chained import ChainedModel
from npuflow.runner.contexts import ContextBackend, context_model_of
from npuflow.runner.onnx_model import OnnxModel, stated_model
from npuflow.runner.programs import SimulatedProgram, Tensors
from npuflow.runner.shaped import ShapedModel, one_network

if TYPE_CHECKING:
    import onnx

Source = Program | str | os.PathLike[str] | bytes | bytearray | memoryview
TFLITE = b"TFL3"  # at byte 4 of a .tflite file


def opened(
    source: Source | Package,
    exact: Exact | None = None,
    *,
    batch: int = 8,
    threads: int = 1,
    dump: bool = False,
    raw: bool = False,
    dims: Mapping[str, int] | None = None,
) -> Backend:
    """A program (.npu), a model of onnxruntime's (.onnx, also QDQ; .tflite), or one with EPContext nodes.
    `exact`: what computes programs; None: their graphs on whole tensors if kept, else their commands. `raw`:
    values under a program's own ids. `dump`: a model is to show its inner tensors too. `dims`: sizes that a
    checkpoint leaves open."""
    check_exact(exact)
    if dims and not _leaves_sizes(source):
        raise UsageError(
            f"the model has sizes of its own, and takes no {', '.join(dims)}",
            because="only checkpoints (a .gguf file, a folder) leave it open",
            hint="[model] dims of the recipe states it for a program", code="NF-RUN-082",
        )
    if isinstance(source, bytes | bytearray | memoryview):
        return _of_bytes(bytes(source), exact, batch, threads, dump, raw)
    if isinstance(source, Program):
        return _program(source, exact, batch, raw)
    if isinstance(source, Package):
        return _package(source, "the file", exact, batch, raw)
    path = Path(source)
    if path.suffix.lower() == ".toml" and path.is_file():
        raise UsageError(
            f'"{path.name}" is a recipe, which is built before it runs',
            hint=f"npuflow build {path} makes a .npu, which runs",
            code="NF-RUN-048",
        )
    if path.is_dir() and not any((path / name).is_file() for name in main_files()):
        raise UsageError(
            f'"{path}" is a folder', hint="a .npu, .onnx or .tflite file runs", code="NF-RUN-049"
        )
    if not path.is_file() and ".npu#" in path.name:
        return _program(load_network(path), exact, batch, raw)
    if path.is_dir():
        _no_program(exact, path.name)
        return OnnxModel(runnable(path, dims), path.name, threads, dump)
    if not path.is_file():
        raise absent(path)
    if path.suffix.lower() == ".npu" or _starts(path) == MAGIC:
        loaded = load_file(path)
        if isinstance(loaded, Package):
            return _package(loaded, path.name, exact, batch, raw)
        return _program(loaded, exact, batch, raw)
    if (model := context_model_of(path)) is not None:
        return _contexts(model, path, exact, batch, threads)
    _no_program(exact, path.name)
    if path.suffix.lower() == ".onnx":
        return OnnxModel(path, path.name, threads, dump)
    return OnnxModel(runnable(path, dims), path.name, threads, dump)


def check_exact(exact: str | None) -> None:
    """UsageError of another name than those that `opened` takes."""
    if exact not in (None, *get_args(Exact)):
        raise UsageError(
            f'exact="{exact}" is not known', hint=", ".join(map(repr, get_args(Exact))), code="NF-RUN-045"
        )


def trusted(source: Source | Package, keys: Key | Sequence[Key]) -> Program | Package:
    """What a .npu file or its bytes hold, sealed with one of the public keys; anything else is an error."""
    given = [keys] if isinstance(keys, str | os.PathLike) else [*keys]
    if not given:
        raise UsageError("no key to require a seal of is given", code="NF-RUN-131")
    if isinstance(source, bytes | bytearray | memoryview) and bytes(source[: len(MAGIC)]) == MAGIC:
        data = bytes(source)
        check_sealed(data, given, Where())
        return of_bytes(data)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.is_file() and ".npu#" in path.name:
            return load_network(path, given)
        if not path.exists():
            raise absent(path)
        if path.is_file() and _starts(path) == MAGIC:
            return load_file(path, given)
    raise UsageError(
        "a seal is required, and only .npu files have one",
        because=f"{source} is none" if isinstance(source, str | os.PathLike) else "this is no such file",
        hint="npuflow seal FILE.npu --key KEY, and run that file", code="NF-RUN-132",
    )


def runnable(path: Path, dims: Mapping[str, int] | None = None) -> bytes:
    """A model of another format as ONNX: what its front end reads, with the codes that it states."""
    _, reader, source = gathered(path)
    return stated_model(reader.read(source, Bindings(dims=dims or {})))


def _leaves_sizes(source: Source | Package) -> bool:
    """Whether it is a checkpoint; or nothing, which is an error of its own."""
    if isinstance(source, Program | Package | bytes | bytearray | memoryview):
        return False
    return is_checkpoint(Path(source)) or not Path(source).exists()


def _starts(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(MAGIC))


def _of_bytes(data: bytes, exact: Exact | None, batch: int, threads: int, dump: bool, raw: bool) -> Backend:
    if data.startswith(MAGIC):
        loaded = of_bytes(data)
        if isinstance(loaded, Package):
            return _package(loaded, "the file", exact, batch, raw)
        return _program(loaded, exact, batch, raw)
    if (model := context_model_of(data)) is not None:
        return _contexts(model, None, exact, batch, threads)
    _no_program(exact, "the model")
    if data[4:8] != TFLITE:
        return OnnxModel(data, "model", threads, dump)
    with tempfile.TemporaryDirectory(prefix="npuflow-") as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        return opened(path, exact, threads=threads, dump=dump)


def _program(program: Program, exact: Exact | None, batch: int, raw: bool) -> Backend:
    chosen = exact or ("executor" if program.graph_bytes else "simulator")
    _no_model(chosen)
    return Tensors(program, batch, raw) if chosen == "executor" else SimulatedProgram(program, batch, raw)


def _contexts(
    model: onnx.ModelProto, path: Path | None, exact: Exact | None, batch: int, threads: int
) -> Backend:
    """A model with programs in EPContext nodes."""
    _no_model(exact)
    return ContextBackend(model, path, exact=exact, batch=batch, threads=threads)


def _no_model(exact: Exact | None) -> None:
    if exact == "onnxruntime":
        raise UsageError(
            f'exact="{exact}" is of models',
            hint='a program is run by "executor" or "simulator"',
            code="NF-RUN-006",
        )


def _package(package: Package, name: str, exact: Exact | None, batch: int, raw: bool) -> Backend:
    """One network at several shapes, or networks that feed each other; others are run by name."""
    backends = {key: _program(one, exact, batch, raw) for key, one in package.networks.items()}
    if package.chain:
        return ChainedModel(name, backends, package.chain)
    if not one_network(backends):
        (first, *_), known = package.networks, ", ".join(package.networks)
        raise UsageError(
            f"{name} holds several networks: {known}", hint=f'"FILE.npu#{first}" is one of them',
            code="NF-USAGE-164",
        )
    return ShapedModel(name, backends)


def _no_program(exact: Exact | None, name: str) -> None:
    if exact not in (None, "onnxruntime"):
        raise UsageError(
            f'exact="{exact}" is of programs; {name} is a model and runs on onnxruntime',
            hint="build it, and run the .npu",
            code="NF-RUN-006",
        )
