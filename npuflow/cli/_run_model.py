"""What `run` and `compare` share: programs and models behind one face, outputs to npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer

from npuflow.base.errors import UsageError
from npuflow.program.container import Program
from npuflow.program.packing.package import Package
from npuflow.run.state import Pairs, Steps
from npuflow.runner.backend import Backend, Exact
from npuflow.runner.nan import Nan, NanCheck
from npuflow.runner.opening import opened
from npuflow.runner.ports import joined
from npuflow.runner.steps import state_and_start

Array = npt.NDArray[Any]


def open_model(
    path: Path | Program | Package,
    batch: int = 8,
    dump: bool = False,
    raw: bool = False,
    state: Pairs = (),
    exact: Exact | None = None,
    nan: Nan | None = None,
) -> RunnableModel:
    """A .npu program, or an ONNX or TFLite model on onnxruntime. `raw`: values under a program's own names.
    `state`: of a model that states none itself. Samples of a model with state are steps of one sequence.
    `exact`: what computes a program. `nan`: what is done about NaN in inputs; None: it is
    told, and no option is named.
    """
    return RunnableModel(opened(path, exact, batch=batch, dump=dump, raw=raw), dump, raw, state, nan)


class RunnableModel:
    """A program or model that runs samples, with its state where it has one.

    `ports`: the inputs that samples give; `preparation`: how pictures become inputs, where the program says
    so; `notes`: what the user should know of how it runs.
    """

    def __init__(self, backend: Backend, dump: bool, raw: bool, state: Pairs, nan: Nan | None) -> None:
        self.backend, self.dump = backend, dump
        self._nan = NanCheck(backend.inputs, nan or "warn", noted, "--nan refuse" if nan else "")
        pairs, start = state_and_start(backend, {} if backend.state else dict(state))
        held = {given for _, given in pairs}
        self.hidden = set() if dump or raw else {output for output, _ in pairs}
        self.ports = tuple(port for port in backend.inputs if port.name not in held)
        self.preparation, self.notes = backend.preparation, (*backend.notes, *_of_state(pairs))
        self.steps = Steps(lambda one, dump: backend.run([backend.fed(one)], dump)[0], pairs, start)
        self.follows = bool(pairs)

    def run(self, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        for sample in samples:
            self._nan(sample)
        if self.follows:
            found = [self.steps.run(sample, self.dump) for sample in samples]
        else:
            found = self.backend.run([self.backend.fed(sample) for sample in samples], self.dump)
        return [{k: a for k, a in one.items() if k not in self.hidden} for one in found]


def noted(text: str) -> None:
    """A line on standard error that the user should see."""
    typer.echo(f"note: {text}", err=True)


def _of_state(state: Pairs) -> tuple[str, ...]:
    if not state:
        return ()
    names = ", ".join(given for _, given in state)
    return (f"samples are steps of one sequence: {names} is kept between runs, zeros at first",)


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
