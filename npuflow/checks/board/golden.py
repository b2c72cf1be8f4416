"""Golden tensors: every integer tensor of a program for some samples, with digests, layers and addresses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.digest import bytes_digest, digest_array
from npuflow.base.errors import DataError
from npuflow.input.data.array import UNREADABLE, unreadable
from npuflow.program.container import Program
from npuflow.program.loop_steps import LoopSteps, said

Array = npt.NDArray[Any]
MANIFEST, TENSORS = "golden.json", "golden.npz"


@dataclass(frozen=True)
class Golden:
    """Tensors [samples, *shape] in the network's order; the layer of each, and its dump's file name."""

    program: str  # digest of the program's bytes
    tensors: Mapping[str, Array]
    layers: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def samples(self) -> int:
        return len(next(iter(self.tensors.values()), ()))


def golden_of(program: Program, outputs: Sequence[Mapping[str, Array]]) -> Golden:
    """From dumps of a runner, one a sample."""
    steps = LoopSteps(program)
    names = steps.in_order({**program.meta["values"], **dict.fromkeys(program.taps.values)})
    tensors = {n: np.stack([np.asarray(one[n]) for one in outputs]) for n in names if n in outputs[0]}
    files: dict[str, str] = {}
    for number, name in enumerate(tensors):
        files[name] = f"{number:04d}_{re.sub(r'[^A-Za-z0-9]+', '_', name)}"
    layers = {name: steps.layer(name) or "input" for name in tensors}
    return Golden(bytes_digest(program.to_bytes()), tensors, layers, files)


def quants_of(program: Program) -> dict[str, Mapping[str, Any]]:
    """The quantisation of every tensor that can be dumped, by its name."""
    held = {name: tap.quant for name, tap in program.taps.values.items()}
    held |= {name: value["quant"] for name, value in program.meta["values"].items()}
    return {name: quant for name, quant in held.items() if quant is not None}


def save(golden: Golden, program: Program, folder: Path) -> None:
    """golden.npz with the tensors, golden.json with digests, layers, steps of loops, shapes, scales and
    addresses."""
    folder.mkdir(parents=True, exist_ok=True)
    values, quants, known = program.meta["values"], quants_of(program), LoopSteps(program)
    steps = {name: made[1] if (made := known.made(name)) else () for name in golden.tensors}
    rows = [
        {
            "name": name,
            "file": golden.files[name],
            "layer": golden.layers[name],
            "loop": said(steps[name]),
            "loops": [asdict(one) for one in steps[name]],
            "shape": list(array.shape[1:]),
            "dtype": array.dtype.name,
            **{key: quants.get(name, {}).get(key) for key in ("scale", "zero_point")},
            "address": values[name]["address"] if name in values else None,
            "digests": [digest_array(np.ascontiguousarray(one)) for one in array],
        }
        for name, array in golden.tensors.items()
    ]
    body = {"version": 1, "program": golden.program, "samples": golden.samples, "tensors": rows}
    (folder / MANIFEST).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    with (folder / TENSORS).open("wb") as file:
        np.savez(file, **dict(golden.tensors))  # type: ignore[arg-type]


def load(folder: Path) -> Golden:
    """What `save` wrote; damaged tensors are a DataError."""
    try:
        body = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        with np.load(folder / TENSORS, allow_pickle=False) as held:
            tensors = {row["name"]: held[row["name"]] for row in body["tensors"]}
        rows = {row["name"]: row for row in body["tensors"]}
        layers, files, digests = ({n: r[k] for n, r in rows.items()} for k in ("layer", "file", "digests"))
        program = str(body["program"])
    except (*UNREADABLE, TypeError) as error:
        raise DataError(
            f'"{folder}" holds no golden tensors',
            because=unreadable(error),
            hint="npuflow golden PROGRAM INPUT... -o DIR",
            code="NF-DATA-090",
        ) from error
    for name, array in tensors.items():
        if [digest_array(np.ascontiguousarray(one)) for one in array] != digests[name]:
            raise DataError(f'the golden tensor "{name}" is damaged', code="NF-DATA-091")
    return Golden(program, tensors, layers, files)
