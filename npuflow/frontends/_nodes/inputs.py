"""Types of a model's inputs, with the sizes that the recipe gives; one error names
all dimensions that stay free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.base.tables_toml import dotted
from npuflow.base.tables_write import key
from npuflow.frontends import TAKEN_AS_ONE, Bindings
from npuflow.ir.types import UNKNOWN, UNRANKED, TensorType
from npuflow.onnx.types import PLAIN, from_proto, is_tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Free:
    """An input whose shape is not fixed: what the file declares, and the shape as far as
    it is known (`UNKNOWN`: not)."""

    name: str
    declared: tuple[str, ...] | None        # None: not even the number of dimensions
    shape: tuple[int, ...] = ()

    def said(self) -> str:
        """The free dimensions with their spelling in the file."""
        if self.declared is None:
            return f'"{self.name}" is declared without a shape'
        open_ = [f"{i} ({self.declared[i]})" for i, size in enumerate(self.shape) if size == UNKNOWN]
        places = f"dimension{'s' if len(open_) > 1 else ''} {', '.join(open_)}"
        return f'"{self.name}" is declared [{", ".join(self.declared)}]: {places}'

    def sizes(self) -> list[str]:
        return ["?" if size == UNKNOWN else str(size) for size in self.shape] or ["?"]


def input_types(
    inputs: Iterable[onnx.ValueInfoProto], bindings: Bindings, notes: list[str], batches: dict[str, Shape]
) -> list[tuple[str, TensorType]]:
    """Every input with its type, static where it is a tensor; a free first dimension is a batch
    of 1 unless bound otherwise. `batches` gets the shapes of inputs whose batch nobody stated."""
    infos = list(inputs)
    known, moved = _named_sizes(infos, bindings), _not_batches(infos)
    found: list[tuple[str, TensorType]] = []
    free: list[Free] = []
    for info in infos:
        made = _typed(info, bindings, known, moved)
        if isinstance(made, Free):
            free.append(made)
        else:
            found.append((info.name, made))
            if _unstated(info, made, bindings, known):
                batches[info.name] = made.shape
                notes.append(
                    f'dimension 0 ({_declared(info)[0]}) of input "{info.name}" is {TAKEN_AS_ONE}'
                )
    if free:
        raise _unbound(free).at(key=dotted(("model", "inputs")))
    return found


def fixed(info: onnx.ValueInfoProto, bindings: Bindings) -> Any:
    """The array of an input that the recipe holds constant."""
    kind = from_proto(info.type)
    shape = bindings.inputs.get(info.name, kind.shape)
    if kind.dtype not in PLAIN or any(d < 0 for d in shape):
        message = f'input "{info.name}" cannot be held constant'
        raise ModelError(
            message, because=f"it is declared [{', '.join(_declared(info))}]", code="NF-MODEL-017",
        ).at(
            value=info.name, key=dotted(("model", "constants", info.name))
        )
    return np.full(shape, bindings.constants[info.name], kind.dtype)


def _named_sizes(infos: Iterable[onnx.ValueInfoProto], bindings: Bindings) -> dict[str, int]:
    """Sizes of named dimensions: those that the recipe names, and those of inputs whose shape it gives."""
    known = dict(bindings.dims)
    stated = {name: (f"dims.{name} = {size}", ("model", "dims", name)) for name, size in known.items()}
    for info in infos:
        wanted, dims = bindings.inputs.get(info.name), _dims(info)
        if wanted is None or dims is None or len(dims) != len(wanted):
            continue
        for axis, (dim, size) in enumerate(zip(dims, wanted, strict=True)):
            name = dim.dim_param
            if name in ("", "?"):
                continue
            if known.setdefault(name, size) != size:
                text, place = stated[name]
                raise ModelError(
                    f'the dimension "{name}" has two sizes: {known[name]} and {size}',
                    because=f'[model] {text}, and inputs gives axis {axis} of "{info.name}" {size}',
                    hint="one size, or leave one of the two out", code="NF-MODEL-353",
                ).at(value=info.name, key=dotted(place))
            text = f'inputs gives axis {axis} of "{info.name}" {size}'
            stated.setdefault(name, (text, ("model", "inputs", info.name)))
    return known


def _not_batches(infos: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """Names of dimensions that stand elsewhere than first: the length of a sequence, a width."""
    return {d.dim_param for info in infos for d in (_dims(info) or ())[1:] if d.dim_param not in ("", "?")}


def another_batch(fault: ModelError, batches: Mapping[str, Shape]) -> ModelError:
    """A fault of shapes in a network whose batch was taken as 1, which may be why."""
    if not batches or fault.code != "NF-MODEL-014":
        return fault
    shapes = ", ".join(f"{key(name)} = [{', '.join(['?', *map(str, s[1:])])}]" for name, s in batches.items())
    names = ", ".join(f'"{name}"' for name in batches)
    fault.because += f"; the batch of {names} is free in the file and was taken as 1"
    also = f"; otherwise: {fault.hint}" if fault.hint else ""
    fault.hint = f"[model] inputs = {{ {shapes} }} with the batch that the network is made for{also}"
    return fault


def _unstated(
    info: onnx.ValueInfoProto, made: TensorType, bindings: Bindings, known: Mapping[str, int]
) -> bool:
    """Whether an input's batch is 1 only because neither file nor recipe says otherwise."""
    dims, kind = _dims(info), from_proto(info.type)
    if not is_tensor(made) or info.name in bindings.inputs or not dims:
        return False
    return kind.shape[0] < 1 and dims[0].dim_param not in known


def _typed(
    info: onnx.ValueInfoProto, bindings: Bindings, known: Mapping[str, int], moved: set[str]
) -> TensorType | Free:
    kind, wanted = from_proto(info.type), bindings.inputs.get(info.name)
    if not is_tensor(kind):
        if wanted is not None:
            place = dotted(("model", "inputs", info.name))
            raise ModelError(
                f'input "{info.name}" is not a tensor and has no shape', code="NF-MODEL-018",
            ).at(value=info.name, key=place)
        return kind
    if wanted is not None:
        return TensorType(_asked(info, kind, wanted), kind.dtype)
    dims = _dims(info)
    if dims is None:
        return Free(info.name, None)
    shape = [
        known.get(d.dim_param, UNKNOWN) if size < 1 else size
        for d, size in zip(dims, kind.shape, strict=True)
    ]
    if shape and shape[0] == UNKNOWN and dims[0].dim_param not in moved:
        shape[0] = 1
    if UNKNOWN in shape:
        return Free(info.name, _declared(info), tuple(shape))
    return TensorType(tuple(shape), kind.dtype)


def _asked(info: onnx.ValueInfoProto, kind: TensorType, wanted: Sequence[int]) -> tuple[int, ...]:
    """The shape that the recipe gives, if the model allows it."""
    message, place = (
        f'input "{info.name}" cannot have the shape {list(wanted)}',
        dotted(("model", "inputs", info.name)),
    )
    empty = [d == 0 for d in kind.shape] if len(kind.shape) == len(wanted) else [False] * len(wanted)
    if any(d < 1 and not (d == 0 and own) for d, own in zip(wanted, empty, strict=True)):
        because = "every dimension holds at least 1, unless the model itself says 0"
        raise ModelError(message, because=because, code="NF-MODEL-019").at(value=info.name, key=place)
    fits = len(wanted) == len(kind.shape) and all(
        d in (w, UNKNOWN, 0) for d, w in zip(kind.shape, wanted, strict=True)
    )
    if kind.shape != UNRANKED and not fits:
        because = f"the model declares [{', '.join(_declared(info))}]"
        hint = "sizes are free only where the model gives a name or none; a `resize` step fits other samples"
        raise ModelError(message, because=because, hint=hint, code="NF-MODEL-019").at(
            value=info.name, key=place
        )
    return tuple(wanted)


def _unbound(free: Sequence[Free]) -> ModelError:
    """One error for all free dimensions of all inputs, with what to write."""
    count = sum(one.shape.count(UNKNOWN) or 1 for one in free)
    shapes = ", ".join(f"{key(one.name)} = [{', '.join(one.sizes())}]" for one in free)
    flags = " ".join(f"--shape {one.name}={','.join(one.sizes())}" for one in free)
    return ModelError(
        f"the model leaves {count} dimension{'s' if count > 1 else ''} of its inputs free",
        because=f"an NPU program has fixed shapes; {'; '.join(one.said() for one in free)}",
        hint=f"[model] inputs = {{ {shapes} }} with a size for each ?, or `npuflow new MODEL {flags}`",
        code="NF-MODEL-020",
    )


def _dims(info: onnx.ValueInfoProto) -> Sequence[Any] | None:
    """The declared dimensions of a tensor; None where there are none."""
    kind = info.type
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    return list(kind.tensor_type.shape.dim)


def _declared(info: onnx.ValueInfoProto) -> tuple[str, ...]:
    """The dimensions as the file spells them; "not given" where it says nothing."""
    return tuple(
        d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "not given")
        for d in _dims(info) or ()
    )
