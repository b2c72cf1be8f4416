"""Inputs of a program or model from files: arrays by name, pictures, and which files make which sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, UsageError
from npuflow.base.wording import counted
from npuflow.cli._input_files import PICTURES as PICTURES
from npuflow.input.data.array import UNREADABLE, unreadable
from npuflow.input.data.read import prepared
from npuflow.input.data.steps import OPERATIONS
from npuflow.input.given import converted
from npuflow.ir.types import TensorType
from npuflow.runner.ports import Port as Port
from npuflow.runner.ports import batches

Array = npt.NDArray[Any]
UNNAMED = "arr_0"  # what numpy.savez calls an array that is given without a name


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
                f"{counted(len(paths), 'input file')} for {counted(len(ports), 'input')}",
                hint="an npz holds all of them by name", code="NF-USAGE-021",
            )
        else:
            arrays[port.name] = read_npy(path) if path.suffix == ".npy" else _picture(path, port, preparation)
    counts = set()
    for port in ports:
        if port.name not in arrays:
            raise DataError(
                f'no data for the input "{port.name}"',
                because=f"given: {', '.join(arrays) or 'nothing'}, in {', '.join(map(str, paths))}",
                hint=_order(ports),
                code="NF-DATA-012",
            )
        arrays[port.name] = batches(arrays[port.name], port.shape)
        counts.add(_count(arrays[port.name], port, _order(ports)))
    if len(counts) > 1:
        raise DataError(
            f"the inputs hold different numbers of samples: {', '.join(map(str, sorted(map(str, counts))))}",
            code="NF-DATA-013",
        )
    count = counts.pop() if counts else None
    if count == 0:
        raise DataError(
            f"{', '.join(map(str, paths))} holds no sample",
            because=f"the first axis of {', '.join(port.name for port in ports)} has size 0",
            code="NF-DATA-232",
        )
    if count is None:
        return [{p.name: _shaped(arrays[p.name], p) for p in ports}], False
    return [{p.name: _shaped(arrays[p.name][i], p) for p in ports} for i in range(count)], True


def _order(ports: Sequence[Port]) -> str:
    """Which file is which input, where there are several."""
    names = ", ".join(port.name for port in ports)
    return f"files are inputs in this order: {names}; an npz has them by name" if len(ports) > 1 else ""


def _count(array: Array, port: Port, order: str = "") -> int | None:
    """How many samples an array holds; None for exactly one, of the port's own shape."""
    shape, want = array.shape, port.shape
    if _shaped_as(shape, want):
        return None
    if want[:1] == (1,) and _shaped_as(shape, want[1:]):
        return None
    if want[:1] == (1,) and shape and _shaped_as(shape[1:], want[1:]):
        return int(shape[0])
    if shape and _shaped_as(shape[1:], want):
        return int(shape[0])
    raise DataError(
        f'the input "{port.name}" has shape {shape}; the model expects {want}',
        because="an array holds one sample of that shape, or several along a first axis",
        hint=order or _whole(shape, want),
        code="NF-DATA-014",
    )


def _whole(shape: tuple[int, ...], want: tuple[int, ...]) -> str:
    """What to try with an array of another shape."""
    if want[:1] > (1,) and _shaped_as(shape[1:], want[1:]):
        return f"the program runs batches of {want[0]}: give a multiple of {want[0]} rows"
    return "give the array that shape: arrays are taken as they are, pictures are prepared"


def _shaped_as(shape: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether an array's shape is what an input wants, -1 for any size."""
    return len(shape) == len(want) and all(w in (-1, s) for s, w in zip(shape, want, strict=True))


def _shaped(array: Array, port: Port) -> Array:
    array = array.reshape((1, *array.shape)) if array.ndim == len(port.shape) - 1 else array
    if port.dtype == "str":
        return array
    if array.dtype.kind not in "biuf":
        raise DataError(
            f'the input "{port.name}" holds {array.dtype}; the model expects {port.dtype}',
            code="NF-DATA-015",
        )
    return array if port.codes and array.dtype.kind in "iu" else converted(port.name, array, port.dtype)


def read_npz(path: Path, ports: Sequence[Port]) -> dict[str, Array]:
    """The arrays of an npz by name. `ports`: the inputs that they are for; none: they are for none. An array
    that was saved without a name is the only input's; DataError where no name is an input's."""
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except UNREADABLE as error:
        raise DataError(
            f'"{path}" is not a readable npz', because=unreadable(error), code="NF-DATA-016"
        ) from error
    if len(ports) == 1 and list(found) == [UNNAMED]:
        return {ports[0].name: found[UNNAMED]}
    if ports and found and not any(port.name in found for port in ports):
        (name, *rest), want = found, ", ".join(f'"{port.name}"' for port in ports)
        raise DataError(
            f'"{path}" holds none of the inputs {want}' if len(ports) > 1 else
            f'"{path}" does not hold the input {want}',
            because=f"its arrays are named {', '.join((name, *rest))}",
            hint=f"numpy.savez(file, **{{{want}: array}}) names it; an npy has no name"
            if len(ports) == 1 else "an npz has the arrays under the names of the inputs",
            code="NF-DATA-231",
        )
    return found


def read_npy(path: Path) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(
            f'"{path}" is not a readable npy', because=unreadable(error), code="NF-DATA-017"
        ) from error
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

    from npuflow.input.data.image import decode

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
    batch = (pixels.transpose(2, 0, 1) if first else pixels)[None]
    return batch if port.pixels else batch.astype(np.float32)
