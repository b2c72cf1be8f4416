"""What `run` and `compare` share: programs and models behind one face, outputs to npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, ModelError, UsageError
from npuflow.cli._inputs import Port
from npuflow.engine.pixels import given, pixel_inputs
from npuflow.engine.state import Pairs, state_of

Array = npt.NDArray[Any]
_SATURATES = "onnxruntime's 8-bit kernels saturate on CPUs without VNNI"


class Model(Protocol):
    ports: tuple[Port, ...]
    preparation: Mapping[str, Any] | None     # how pictures become inputs, where the program says so
    notes: tuple[str, ...]                    # what the user should know of how it runs

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]: ...


def open_model(
    path: Path, batch: int = 8, dump: bool = False, raw: bool = False, state: Pairs = ()
) -> Model:
    """A .npu program (on the simulator) or an .onnx model (on onnxruntime). `raw`: values under the program's
    own names. `state`: of an .onnx model that states none itself. Samples of a model with state are steps of
    one sequence.
    """
    if not path.is_file():
        raise UsageError(f'no file "{path}"', code="NF-USAGE-010")
    if path.suffix == ".onnx":
        return _Onnx(path, dump, state)
    return _Npu(path, batch, dump, raw)


class _Npu:
    def __init__(self, path: Path, batch: int, dump: bool, raw: bool) -> None:
        from npuflow.engine.runner import Runner

        self.runner, self.dump, self.raw = Runner(path, batch), dump, raw
        self.state = self.runner.state
        kept = {given for _, given in self.state}
        entries = [e for e in self.runner.program.meta["inputs"] if e["name"] not in kept]
        self.ports = tuple(_port(e) for e in entries)
        self.preparation = self.runner.program.meta.get("preparation")
        self.notes: tuple[str, ...] = _of_state(self.state)

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = self.runner.run_many(samples, dump=self.dump)
        if self.raw or self.dump:
            return found if self.raw else [self._named(one) for one in found]
        kept = {output for output, _ in self.state}
        return [self._named({k: a for k, a in one.items() if k not in kept}) for one in found]

    def _named(self, found: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs under the source model's names: the float twin "v:f" of an integer tensor "v" is what the
        model calls v.
        """
        outputs = {o["name"] for o in self.runner.program.meta["outputs"]}
        twins = {name for name in found if name.endswith(":f") and name in outputs and name[:-2] not in found}
        return {name[:-2] if name in twins else name: array for name, array in found.items()}


def _of_state(state: Pairs) -> tuple[str, ...]:
    if not state:
        return ()
    names = ", ".join(given for _, given in state)
    return (f"samples are steps of one sequence: {names} is kept between runs, zeros at first",)


def _port(entry: Mapping[str, Any]) -> Port:
    """An input that takes codes or pixels is given real numbers, or integers, which are codes or pixels
    already: picture files are real numbers.
    """
    coded = bool(entry.get("quant") or entry.get("pixels"))
    return Port(entry["name"], "float32" if coded else entry["dtype"], tuple(entry["shape"]), codes=coded)


class _Onnx:
    def __init__(self, path: Path, dump: bool, state: Pairs = ()) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4         # what goes wrong is raised, and reported once
        self.preparation: Mapping[str, Any] | None = None
        self.notes: tuple[str, ...] = ()
        if _quantised(path):
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            self.notes = (
                (f"{path.name} runs in floats between its roundings (session.disable_quant_qdq = 1): "
                f"{_SATURATES}"),
            )
        try:
            source = _exposed(path) if dump else str(path)
            self.session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors share no public base class
            raise ModelError(
                f'"{path}" does not load', because=str(error).splitlines()[0], code="NF-MODEL-004",
            ) from error
        self.pixels = pixel_inputs(self.session)
        ports = [self._port(i.name, i.type, i.shape) for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]
        zeros = state_of(self.session)
        self.state = tuple(zeros) or state
        for output, held in self.state:
            if output not in self.outputs or held not in {port.name for port in ports}:
                raise UsageError(
                    f'the model has no output "{output}" or no input "{held}" to keep as state',
                    because=f"outputs {', '.join(self.outputs)}; inputs {', '.join(p.name for p in ports)}",
                    code="NF-USAGE-082",
                )
        kept = {given for _, given in self.state}
        self.hidden = set() if dump else {output for output, _ in self.state}
        self.ports = tuple(port for port in ports if port.name not in kept)
        self.held = {
            port.name: np.full(port.shape, zeros.get((output, port.name), 0), port.dtype)
            for output, given in self.state
            for port in ports
            if port.name == given
        }
        self.notes += _of_state(self.state)

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = []
        for sample in samples:
            made = self._one({**self.held, **self._fed(sample)})
            self.held = {given: made[output] for output, given in self.state}
            found.append({name: array for name, array in made.items() if name not in self.hidden})
        return found

    def _one(self, fed: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(self.outputs, self.session.run(None, fed), strict=True))
        except Exception as error:  # as above
            raise DataError(
                "onnxruntime rejects the inputs of the model",
                because=str(error).splitlines()[0],
                code="NF-DATA-011",
            ) from error

    def _port(self, name: str, kind: str, shape: Sequence[Any]) -> Port:
        pixels = name in self.pixels
        return Port(name, "float32" if pixels else _numpy(kind), tuple(map(_dim, shape)), codes=pixels)

    def _fed(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        fed = dict(sample)
        fed.update(
            {
                name: given(fed[name], one, dtype, name)
                for name, (one, dtype) in self.pixels.items()
                if name in fed
            }
        )
        return fed


def _quantised(path: Path) -> bool:
    """Whether an .onnx file rounds with QuantizeLinear; one that does not load is
    left to the session's message."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError):
        return False
    return any(node.op_type == "QuantizeLinear" for node in model.graph.node)


def _exposed(path: Path) -> bytes:
    """The model with every tensor that a node makes as an output; types are left to onnxruntime."""
    import onnx

    model = onnx.load(str(path))
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    return bytes(model.SerializeToString())


def _numpy(kind: str) -> str:
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64", "string": "str"}.get(inner, inner)


def _dim(d: Any) -> int:
    return d if isinstance(d, int) else -1


def save_outputs(
    path: Path, outputs: Sequence[Mapping[str, Array]], stacked: bool
) -> dict[str, tuple[int, ...]]:
    """One npz; several samples are joined. Returns the shapes."""
    arrays = (
        joined(outputs)
        if stacked
        else {name: np.asarray(array) for name, array in (outputs or [{}])[0].items()}
    )
    try:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f'cannot write "{path}": {error.strerror}', code="NF-USAGE-025") from error
    return {name: tuple(a.shape) for name, a in arrays.items()}


def joined(outputs: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Samples concatenated along the first axis; an output whose other dimensions depend on the
    data is kept sample by sample."""
    found: dict[str, Array] = {}
    for name in outputs[0] if outputs else ():
        parts = [np.atleast_1d(np.asarray(one[name])) for one in outputs]
        if len({part.shape[1:] for part in parts}) == 1:
            found[name] = np.concatenate(parts)
        else:
            found.update({f"{name}[{i}]": part for i, part in enumerate(parts)})
    return found
