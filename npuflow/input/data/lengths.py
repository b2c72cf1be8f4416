"""Sequences of any length in a range: samples are filled up to the most steps, and outputs cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.step_count import StepCount

if TYPE_CHECKING:  # who runs programs fills samples, and loads no graphs
    from npuflow.ir.types import Array

Entry = Mapping[str, Any]


def filled(array: Array, axis: int, most: int, zero: float = 0) -> Array:
    """An array with filling behind its last step."""
    missing = most - array.shape[axis]
    if missing <= 0:
        return array
    widths = [(0, missing if d == axis else 0) for d in range(array.ndim)]
    return np.pad(array, widths, constant_values=zero)


def one_length(counts: Iterable[tuple[str, int]], dim: str) -> int:
    """The steps that all inputs have; a DataError where they differ."""
    found = dict(counts)
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in found.items())
        raise DataError(f"the inputs have different numbers of steps along {dim}: {said}", code="NF-DATA-271")
    return next(iter(found.values()))


def whole_sample(entries: Sequence[Entry], lengths: Sequence[Entry], sample: Mapping[str, Any]) -> Any:
    """A sample of a program with filling behind its last step, and with the numbers of steps, which it need
    not have. `lengths`: of the program's metadata."""
    found, ports = dict(sample), {entry["name"]: entry for entry in entries}
    for one in lengths:
        counts: dict[str, int] = {}
        for name, axis in one["axes"].items():
            if name not in ports or name not in sample:
                continue
            entry, array = ports[name], np.asarray(sample[name])
            if array.ndim == len(entry["shape"]):
                counts[name] = array.shape[axis]
                found[name] = filled(array, axis, one["most"], _nothing(entry, array))
        if one["input"] in sample or not counts:
            continue
        count = one_length(counts.items(), one["input"])
        need_steps(one, count)
        port = ports[one["input"]]
        found[one["input"]] = np.full(port["shape"], count, port["dtype"])
    return found


def _nothing(entry: Entry, array: Array) -> float:
    """What stands for 0 in an input: a code or a pixel where it is given these."""
    if array.dtype.kind not in "iu":
        return 0.0
    if entry.get("pixels"):
        return float(entry["pixels"]["zero"])
    return float(np.ravel(entry["quant"]["zero_point"])[0]) if entry.get("quant") else 0.0


def steps_of_sample(lengths: Sequence[Entry], sample: Mapping[str, Any]) -> dict[str, int]:
    """How many steps a whole sample has, by the inputs that say so; the most where sequences differ."""
    return {one["input"]: int(np.max(sample[one["input"]])) for one in lengths}


def steps_of_port(one: Entry, port: str, steps: int) -> int:
    """How many of a run's steps a port has: fewer behind strides. `one`: of a program's metadata."""
    return StepCount(*one.get("strides", {}).get(port, ())).of(steps)


def cut(lengths: Sequence[Entry], sample: Mapping[str, Any], made: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a whole sample without what lies behind its last step. `made`: by the program's names."""
    found, steps = dict(made), steps_of_sample(lengths, sample)
    for one in lengths:
        for name, axis in one["axes"].items():
            if name in found:
                count = steps_of_port(one, name, steps[one["input"]])
                found[name] = found[name][(slice(None),) * axis + (slice(0, count),)]
    return found


def need_steps(one: Entry, count: int) -> None:
    """A DataError where a run has too few steps, or too many. `one`: of a program's metadata."""
    if not one["least"] <= count <= one["most"]:
        dim = one["input"].rpartition("<=")[0]
        raise DataError(
            f'{dim} = {count}: the program runs {one["least"]} to {one["most"]} steps',
            hint=f'cut the sample, or build with [model] dims {dim} = "{one["least"]}..{count}"'
            if count > one["most"] else "leave the sample out",
            code="NF-DATA-270",
        )


def need_indices(indices: Sequence[Entry], sample: Mapping[str, Any]) -> None:
    """A DataError where an index that commands read is out of range. `indices`: of a program's metadata."""
    for one in indices:
        found = int(np.ravel(np.asarray(sample[one["input"]]))[0]) if one["input"] in sample else 0
        if not 0 <= found <= one["most"]:
            raise DataError(
                f'"{one["input"]}" is {found}; the program runs at 0 to {one["most"]}',
                because=f"its caches hold {one['most'] + one['new']} rows, and a run adds {one['new']}",
                hint="begin a new sequence, or build with more rows: [model] dims context",
                code="NF-DATA-273",
            )
