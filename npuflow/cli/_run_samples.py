"""Runs a model on many samples, a few at a time, with progress where it takes long."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError
from npuflow.cli._input_files import input_sets
from npuflow.cli._slow import Slow

if TYPE_CHECKING:
    from npuflow.cli._inputs import Array, Port
    from npuflow.cli._run_model import RunnableModel

BATCHES = 4  # run between two looks at the clock


def run_samples(
    model: RunnableModel, paths: Sequence[Path], preparation: Mapping[str, Any] | None, batch: int = 8,
    note: Callable[[str], None] | None = None,
) -> tuple[list[dict[str, Array]], bool]:
    """The outputs of every sample, and whether there may be several. Files are read as they are needed.
    `note` is given what is done to pictures, and what of standard input is left out."""
    with tempfile.TemporaryDirectory(prefix="npuflow-") as folder:
        sets = input_sets(paths, [port.name for port in model.ports], Path(folder), note)
        if note is not None and (text := _of_pictures(sets, preparation)):
            note(text)
        outputs: list[dict[str, Array]] = []
        several = len(sets) > 1
        with Slow("samples", len(sets) if several else None) as slow:
            for samples, stacked, total in _pieces(sets, model.ports, preparation, BATCHES * batch):
                several = several or stacked
                slow.total = total
                outputs += model.run(samples)
                slow.at(len(outputs))
    return outputs, several


def every_sample(
    paths: Sequence[Path], ports: Sequence[Port], preparation: Mapping[str, Any] | None,
    note: Callable[[str], None] | None = None, pictures: bool = True,
) -> list[dict[str, Array]]:
    """All samples of the files, folders, sequences or standard input that `paths` name, as `run` takes them.
    `pictures`: whether there may be some, whose layout the recipe's steps state."""
    from npuflow.cli._inputs import PICTURES, load_inputs

    with tempfile.TemporaryDirectory(prefix="npuflow-") as folder:
        sets = input_sets(paths, [port.name for port in ports], Path(folder), note)
        if not pictures and any(file.suffix.lower() in PICTURES for files in sets for file in files):
            raise UsageError(
                "--channels-last is for arrays",
                hint="pictures get their layout from the recipe's steps", code="NF-USAGE-047",
            )
        if note is not None and (text := _of_pictures(sets, preparation)):
            note(text)
        return [sample for files in sets for sample in load_inputs(files, ports, preparation)[0]]


def _of_pictures(sets: Sequence[Sequence[Path]], preparation: Mapping[str, Any] | None) -> str:
    """Asked of the files, as a folder and standard input have no suffix."""
    from npuflow.cli._inputs import picture_note

    return picture_note([file for files in sets for file in files], preparation)


def _pieces(
    sets: Sequence[Sequence[Path]], ports: Sequence[Port], preparation: Mapping[str, Any] | None, most: int
) -> Iterator[tuple[list[dict[str, Array]], bool, int | None]]:
    """Samples, some at a time; whether a file held several; and how many there will be, if that is known."""
    from npuflow.cli._inputs import load_inputs

    waiting: list[dict[str, Array]] = []
    seen, stacked = 0, False
    for number, files in enumerate(sets, 1):
        samples, several = load_inputs(files, ports, preparation)
        waiting, stacked, seen = [*waiting, *samples], stacked or several, seen + len(samples)
        total = seen if number == len(sets) else None if stacked else len(sets)
        while len(waiting) >= most or (number == len(sets) and waiting):
            yield waiting[:most], stacked, total
            waiting = waiting[most:]
