"""What `run` and `compare` share: programs and models behind one face, inputs from files, outputs to npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, ModelError, UsageError
from npuflow.engine.data.read import prepared
from npuflow.engine.data.steps import OPERATIONS
from npuflow.engine.pixels import given, pixel_inputs
from npuflow.ir.types import TensorType

Array = npt.NDArray[Any]
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

_SATURATES = "onnxruntime's 8-bit kernels saturate on CPUs without VNNI"


@dataclass(frozen=True)
class Port:
    """A named input with its numpy dtype and shape (-1: free)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    codes: bool = False       # whether integers are codes already: they keep their type


class Model(Protocol):
    ports: tuple[Port, ...]
    preparation: Mapping[str, Any] | None     # how pictures become inputs, where the program says so
    notes: tuple[str, ...]                    # what the user should know of how it runs

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]: ...


def open_model(path: Path, batch: int = 8, dump: bool = False, raw: bool = False) -> Model:
    """A .npu program (on the simulator) or an .onnx model (on onnxruntime). `raw`: values under the program's
    own names.
    """
    if not path.is_file():
        raise UsageError(f'no file "{path}"', code="NF-USAGE-010")
    if path.suffix == ".onnx":
        return _Onnx(path, dump)
    return _Npu(path, batch, dump, raw)


class _Npu:
    def __init__(self, path: Path, batch: int, dump: bool, raw: bool) -> None:
        from npuflow.engine.runner import Runner

        self.runner, self.dump, self.raw = Runner(path, batch), dump, raw
        entries = self.runner.program.meta["inputs"]
        self.ports = tuple(_port(e) for e in entries)
        self.preparation = self.runner.program.meta.get("preparation")
        self.notes: tuple[str, ...] = ()

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = self.runner.run_many(samples, dump=self.dump)
        return found if self.raw else [self._named(one) for one in found]

    def _named(self, found: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs under the source model's names: the float twin "v:f" of an integer tensor "v" is what the
        model calls v.
        """
        outputs = {o["name"] for o in self.runner.program.meta["outputs"]}
        twins = {name for name in found if name.endswith(":f") and name in outputs and name[:-2] not in found}
        return {name[:-2] if name in twins else name: array for name, array in found.items()}


def _port(entry: Mapping[str, Any]) -> Port:
    """An input that takes codes or pixels is given real numbers, or integers, which are codes or pixels
    already: picture files are real numbers.
    """
    coded = bool(entry.get("quant") or entry.get("pixels"))
    return Port(entry["name"], "float32" if coded else entry["dtype"], tuple(entry["shape"]), codes=coded)


class _Onnx:
    def __init__(self, path: Path, dump: bool) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4         # what goes wrong is raised, and told once
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
        self.ports = tuple(self._port(i.name, i.type, i.shape) for i in self.session.get_inputs())
        self.outputs = [o.name for o in self.session.get_outputs()]

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        try:
            return [
                dict(zip(self.outputs, self.session.run(None, self._fed(s)), strict=True)) for s in samples
            ]
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


def load_inputs(
    paths: Sequence[Path], ports: Sequence[Port], preparation: Mapping[str, Any] | None = None
) -> tuple[list[dict[str, Array]], bool]:
    """Samples by input name, and whether the arrays held several of them along a leading axis.

    Pictures go through the steps of `preparation`, as the recipe fed them; arrays are taken as they are.
    """
    arrays: dict[str, Array] = {}
    for path, port in zip(paths, [*ports, *[None] * len(paths)], strict=False):
        if path.suffix == ".npz":
            arrays.update(read_npz(path, ports))
        elif port is None:
            raise UsageError(
                f"{len(paths)} input files for {len(ports)} inputs",
                hint="an npz holds all of them by name", code="NF-USAGE-021",
            )
        else:
            arrays[port.name] = _npy(path) if path.suffix == ".npy" else _picture(path, port, preparation)
    counts = set()
    for port in ports:
        if port.name not in arrays:
            raise DataError(
                f'no data for the input "{port.name}"',
                because=f"given: {', '.join(arrays) or 'nothing'}", code="NF-DATA-012",
            )
        counts.add(_count(arrays[port.name], port))
    if len(counts) > 1:
        raise DataError(
            f"the inputs hold different numbers of samples: {', '.join(map(str, sorted(map(str, counts))))}",
            code="NF-DATA-013",
        )
    count = counts.pop() if counts else None
    if count is None:
        return [{p.name: _shaped(arrays[p.name], p) for p in ports}], False
    return [{p.name: _shaped(arrays[p.name][i], p) for p in ports} for i in range(count)], True


def _count(array: Array, port: Port) -> int | None:
    """How many samples an array holds; None for exactly one, of the port's own shape."""
    shape, want = array.shape, port.shape
    if len(shape) == len(want) and all(w in (-1, s) for s, w in zip(shape, want, strict=True)):
        return None
    if (
        len(shape) == len(want)
        and want[:1] == (1,)
        and all(w in (-1, s) for s, w in zip(shape[1:], want[1:], strict=True))
    ):
        return int(shape[0])
    if len(shape) == len(want) + 1 and all(w in (-1, s) for s, w in zip(shape[1:], want, strict=True)):
        return int(shape[0])
    raise DataError(
        f'the input "{port.name}" has shape {shape}; the model expects {want}', code="NF-DATA-014"
    )


def _shaped(array: Array, port: Port) -> Array:
    array = array.reshape((1, *array.shape)) if array.ndim == len(port.shape) - 1 else array
    if port.dtype == "str":
        return array
    if array.dtype.kind not in "biuf":
        raise DataError(
            f'the input "{port.name}" holds {array.dtype}; the model expects {port.dtype}',
            code="NF-DATA-015",
        )
    return array if port.codes and array.dtype.kind in "iu" else array.astype(port.dtype, copy=False)


def read_npz(path: Path, ports: Sequence[Port]) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f'"{path}" is not a readable npz', because=str(error), code="NF-DATA-016") from error
    if len(ports) == 1 and len(found) == 1:
        return {ports[0].name: next(iter(found.values()))}
    return found


def _npy(path: Path) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f'"{path}" is not a readable npy', because=str(error), code="NF-DATA-017") from error
    return loaded


def picture_note(paths: Sequence[Path], preparation: Mapping[str, Any] | None) -> str:
    """What is done to pictures, or that nothing is; nothing to say without one."""
    if not any(path.suffix.lower() in PICTURES for path in paths):
        return ""
    if preparation is None:
        return (
            "no preprocessing is stated: pictures are resized and fed as 0..255 RGB; for other values give "
            "an npy"
        )
    names = [next(n for n in OPERATIONS if n in step) for step in preparation["steps"]]
    return f"pictures are prepared by the recipe's steps: {', '.join(names)}"


def _picture(path: Path, port: Port, preparation: Mapping[str, Any] | None) -> Array:
    """A picture prepared as the program says; else resized to the input, 0..255, in the
    layout that its shape shows."""
    if path.suffix.lower() not in PICTURES:
        raise UsageError(f'"{path}": inputs are npz, npy or pictures', code="NF-USAGE-022")
    if preparation is not None:
        return prepared(path, preparation, port.name, TensorType(port.shape, port.dtype))
    from PIL import Image

    from npuflow.engine.data.image import decode

    planes = port.shape[1] if len(port.shape) == 4 else 0
    first = planes in (1, 3)
    if len(port.shape) != 4 or not (first or port.shape[3] in (1, 3)):
        raise UsageError(
            f'the input "{port.name}" {port.shape} is not a picture',
            hint="give it as npy",
            code="NF-USAGE-023",
        )
    height, width = port.shape[2:] if first else port.shape[1:3]
    if height < 1 or width < 1:
        message = f'the input "{port.name}" has no fixed size to resize a picture to'
        raise UsageError(message, because=f"its shape is {list(port.shape)}, -1 is free",
                         hint="give an npz or npy, or bind the dimension: [model] inputs in a recipe",
                         code="NF-USAGE-024")
    colours = planes if first else port.shape[3]
    picture = Image.fromarray(np.asarray(decode(path)).astype(np.uint8)).convert(
        "RGB" if colours == 3 else "L"
    )
    pixels = np.asarray(picture.resize((width, height))).reshape(height, width, colours)
    return (pixels.transpose(2, 0, 1) if first else pixels)[None].astype(np.float32)


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
