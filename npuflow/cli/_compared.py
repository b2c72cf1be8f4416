"""The two sides of `npuflow compare`, read from files or run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from npuflow.base.errors import UsageError
from npuflow.compare.difference import Difference
from npuflow.compare.sides import Side

if TYPE_CHECKING:
    from npuflow.cli._run_model import RunnableModel
    from npuflow.program.container import Program
    from npuflow.program.loop_steps import LoopStep
    from npuflow.sim.made import Tile

REAL = ":f"  # "v:f" is the float twin of the integer tensor "v"
DEQUANTISED = ":dq"  # and "v:dq" what a QDQ model makes of it


@dataclass
class ReadSide(Side):
    """One of the two, and the program that made it, if one did."""

    program: Program | None = None


def sides(
    paths: tuple[Path, Path], inputs: Sequence[Path], everything: bool
) -> tuple[list[ReadSide], list[str]]:
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


@dataclass(frozen=True)
class MadeBy:
    """What made an element: a tile of a program, of a sample, and the steps of loops that its command ran
    for."""

    tile: Tile
    sample: int
    loops: tuple[LoopStep, ...]


def made_by(found: Difference, sides: Sequence[ReadSide]) -> MadeBy | None:
    """The tile of a program that made the first differing element."""
    from npuflow.program.loop_steps import LoopSteps
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
                return MadeBy(made, sample, LoopSteps(side.program).of(made.core, made.command))
    return None


def _shape(program: Program, name: str) -> tuple[int, ...] | None:
    if name in program.taps.values:
        return tuple(program.taps.values[name].shape)
    entry = program.meta["values"].get(name)
    return None if entry is None else tuple(entry["shape"])


def _of_file(arrays: Mapping[str, Any]) -> ReadSide:
    side = ReadSide()
    for name, array in arrays.items():
        (side.codes if array.dtype.kind in "iu" else side.real)[name] = array
    side.order = list(arrays)
    return side


def _of_model(path: Path, model: RunnableModel, arrays: Mapping[str, Any]) -> ReadSide:
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


def _of_program(model: Any, arrays: Mapping[str, Any]) -> ReadSide:
    from npuflow.program.loop_steps import LoopSteps
    from npuflow.runner.feed import dequantize

    program = model.backend.program
    side = ReadSide(leads=True, program=program)
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
    steps = LoopSteps(program)
    every = [*quants, *(name for node in program.meta["nodes"] for name in node.get("outputs", ()))]
    for name in steps.in_order(dict.fromkeys(every)):
        if layer := steps.layer(name):
            for one in (name, name.removesuffix(REAL)):
                side.order.append(one)
                side.layers.setdefault(one, layer)
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
