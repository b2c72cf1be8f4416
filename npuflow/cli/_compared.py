"""The two sides of `npuflow compare`: tensors as codes and as real numbers, in the network's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from npuflow.base.errors import UsageError
from npuflow.compare.difference import Difference, difference

if TYPE_CHECKING:
    from npuflow.cli._run_model import RunnableModel
    from npuflow.program.container import Program
    from npuflow.sim.made import Tile

REAL = ":f"  # "v:f" is the float twin of the integer tensor "v"
DEQUANTISED = ":dq"  # and "v:dq" what a QDQ model makes of it


@dataclass
class Side:
    """One of the two: named arrays, and what is known of the network that made them."""

    codes: dict[str, Any] = field(default_factory=dict)  # integers
    real: dict[str, Any] = field(default_factory=dict)  # numbers
    quants: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # in the network's order; empty where there is only a file
    layers: dict[str, str] = field(default_factory=dict)  # tensor -> the layer that makes it
    program: Program | None = None

    @property
    def names(self) -> dict[str, None]:
        return dict.fromkeys((*self.order, *self.codes, *self.real))


@dataclass(frozen=True)
class TensorComparison:
    """What `compare` reports of one tensor."""

    difference: Difference
    layer: str = ""


def sides(paths: tuple[Path, Path], inputs: Sequence[Path], everything: bool) -> tuple[list[Side], list[str]]:
    """Both sides, programs and models run on the inputs, which the program among them prepares; and notes."""
    from npuflow.cli._inputs import picture_note, read_npz
    from npuflow.cli._run_model import open_model
    from npuflow.program.packing.package import programs_of
    from npuflow.run.state import pairs

    for path in paths:
        if path.suffix.lower() not in (".npz", ".npu", ".onnx"):
            raise UsageError(
                f'"{path}" cannot be compared', hint="an .npz of arrays, a .npu program or an .onnx model",
                code="NF-USAGE-004",
            )
        if path.suffix != ".npz" and not inputs:
            raise UsageError(f'"{path}" has to be run', hint="give --inputs FILE", code="NF-USAGE-005")
    first = next((p for p in paths if p.suffix == ".npu"), None)
    state = next(iter(programs_of(first).values())).meta.get("state", ()) if first is not None else ()
    held = [
        None if p.suffix == ".npz" else open_model(p, 8, everything, True, pairs(state), _exact(p))
        for p in paths
    ]
    models = [m for m in held if m is not None]
    preparation = next((m.preparation for m in models if m.preparation is not None), None)
    notes = [note for m in models for note in m.notes] + (
        [picture_note(inputs, preparation)] if models else []
    )
    made = [
        _of_file(read_npz(path, ()))
        if model is None
        else _of_model(path, model, _ran(model, inputs, preparation))
        for path, model in zip(paths, held, strict=True)
    ]
    return made, list(dict.fromkeys(n for n in notes if n))


def _exact(path: Path) -> Literal["simulator"] | None:
    """A program's commands are compared, not the graph that it keeps."""
    return "simulator" if path.suffix == ".npu" else None


def compared(first: Side, second: Side, tolerance: float) -> list[TensorComparison]:
    """Every tensor that both have, in the network's order: codes with codes where both hold them, else real
    numbers.
    """
    order = (
        [*first.order, *second.order]
        if first.program is not None or not second.program
        else [*second.order, *first.order]
    )
    names = dict.fromkeys(
        n for n in (*order, *first.names, *second.names) if n in first.names and n in second.names
    )
    found = []
    for name in names:
        pair = _pair(name, first, second)
        if pair is not None:
            a, b, codes = pair
            layer = first.layers.get(name) or second.layers.get(name, "")
            zero = (
                (first.quants.get(name) or second.quants.get(name) or {}).get("zero_point", [0])
                if codes
                else [0]
            )
            same = zero[0] if len(zero) == 1 else 0
            found.append(
                TensorComparison(difference(name, a, b, tolerance=tolerance, codes=codes, zero=same), layer)
            )
    return found


def tile(found: Difference, sides: Sequence[Side]) -> tuple[Tile, int] | None:
    """The tile of a program that made the first differing element, and the sample it is of."""
    from npuflow.sim.made import tile_of

    for side in sides:
        if side.program is None or found.index is None:
            continue
        for name in (found.name, found.name.removesuffix(REAL)):
            shape = _shape(side.program, name)
            if shape is None or len(shape) != len(found.index):
                continue
            sample, within = divmod(found.index[0], shape[0]) if shape else (0, 0)
            made = tile_of(side.program, name, (within, *found.index[1:]) if shape else ())
            if made is not None:
                return made, sample
    return None


def _shape(program: Program, name: str) -> tuple[int, ...] | None:
    if name in program.taps.values:
        return tuple(program.taps.values[name].shape)
    entry = program.meta["values"].get(name)
    return None if entry is None else tuple(entry["shape"])


def _pair(name: str, first: Side, second: Side) -> tuple[Any, Any, bool] | None:
    if (
        name in first.codes
        and name in second.codes
        and _alike(first.quants.get(name), second.quants.get(name))
    ):
        return first.codes[name], second.codes[name], True
    if name in first.real and name in second.real:
        return first.real[name], second.real[name], False
    a, b = (side.codes.get(name, side.real.get(name)) for side in (first, second))
    return None if a is None or b is None else (a, b, False)


def _alike(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> bool:
    """Whether codes of both mean the same, as far as both say what they mean."""
    return a is None or b is None or (a["scale"], a["zero_point"]) == (b["scale"], b["zero_point"])


def _of_file(arrays: Mapping[str, Any]) -> Side:
    side = Side()
    for name, array in arrays.items():
        (side.codes if array.dtype.kind in "iu" else side.real)[name] = array
    side.order = list(arrays)
    return side


def _of_model(path: Path, model: RunnableModel, arrays: Mapping[str, Any]) -> Side:
    if path.suffix == ".npu":
        return _of_program(model, arrays)
    side = _of_file(arrays)
    side.real.update(
        {
            n.removesuffix(DEQUANTISED): side.real[n]
            for n in list(side.real)
            if n.removesuffix(DEQUANTISED) in side.codes
        }
    )
    side.order = []
    for name, layer in _made_by(path):
        side.order.append(name)
        side.layers[name] = layer
    return side


def _made_by(path: Path) -> Iterable[tuple[str, str]]:
    """Tensors of an ONNX file in the order of its nodes, with what makes each."""
    import onnx

    for node in onnx.load(str(path), load_external_data=False).graph.node:
        for name in node.output:
            yield name, f"{node.name or name} ({node.op_type})"


def _of_program(model: Any, arrays: Mapping[str, Any]) -> Side:
    from npuflow.runner.feed import dequantize

    program = model.backend.program
    side = Side(program=program)
    quants = {name: entry.get("quant") for name, entry in program.meta["values"].items()}
    quants |= {name: tapped.quant for name, tapped in program.taps.values.items()}
    for name, array in arrays.items():
        if array.dtype.kind in "iu":
            side.codes[name] = array
            if quants.get(name) is not None:
                side.quants[name] = quants[name]
                side.real.setdefault(name, dequantize(array, quants[name]))
        else:
            side.real[name] = array
            if name.endswith(REAL):  # what the source model calls by the name of the integers
                side.real[name.removesuffix(REAL)] = array
    side.order += [entry["name"] for entry in program.meta["inputs"]]
    for node in program.meta["nodes"]:
        for name in node.get("outputs", ()):
            for one in (name, name.removesuffix(REAL)):
                side.order.append(one)
                side.layers.setdefault(one, f"{node['name']} ({node.get('op', '?')})")
    return side


def _ran(
    model: RunnableModel, inputs: Sequence[Path], preparation: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The outputs for the samples, one after the other."""
    from npuflow.cli._run_samples import run_samples
    from npuflow.runner.ports import joined

    # A program runs samples one by one where a model with a free axis may take them all at
    # once: their outputs join alike.
    return joined(run_samples(model, inputs, preparation)[0])
