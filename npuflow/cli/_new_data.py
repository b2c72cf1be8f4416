"""`npuflow new --data DIR`: [data] and [evaluate] from what lies there, with notes on what no file says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, NpuflowError
from npuflow.base.tables_files import Location, resolve
from npuflow.base.tables_write import key, value
from npuflow.cli._model import Ports
from npuflow.cli._template import Draft, TemplateValue
from npuflow.input.data.match import frame
from npuflow.input.data.propose import SourceProposal, labels_beside, parts, proposal
from npuflow.ir.types import TensorType

ENOUGH = 512  # samples that calibration takes at most, of larger sets a choice of half as many
JUDGED = 64  # samples of the evaluation, which the simulator runs one by one
PLACEHOLDER = {8: ("127.5", "127.5"), 16: ("0.0", "32768.0")}


def draft(text: str, folder: Path, found: Ports, inputs: Mapping[str, TensorType]) -> Draft:
    """What the recipe in `folder` says of the data at `text`, a path as the user typed it."""
    where, prefix = _place(text)
    if where is None:  # a word or a function: nothing to look at before it is read
        shown = value(text) if text == "random" else value(Location(text, Path.cwd()), folder.resolve())
        return Draft({("data", "source"): TemplateValue(shown, "")})
    if not where.exists() and not any(c in str(where) for c in "*?[{"):
        raise DataError(
            f'no data at "{text}"',
            because=f"looked at {where}",
            hint="a folder, a file, or a pattern in quotes", code="NF-DATA-010",
        )
    both = parts(where)
    mine = proposal(_shown(both.calibration, folder, prefix), folder, inputs, found.sequences)
    drawn = Draft(
        _fills("data", mine, _samples(mine, inputs)),
        {"data": _steps("data", mine, mine.steps, inputs)},
        checks={"data": mine},
    )
    if both.evaluation is not None:
        _evaluation(drawn, both.evaluation, folder, prefix, mine, found, inputs)
    return drawn


def _place(text: str) -> tuple[Path | None, str]:
    if text == "random" or text.startswith("python:"):
        return None, ""
    return resolve(text, Path.cwd()), text if text.startswith("pkg:") else ""


def _shown(path: Path, folder: Path, prefix: str) -> str:
    """A path as the recipe writes it: relative to its folder, or inside the package that the user named."""
    if prefix:
        root = resolve(prefix, Path.cwd())
        return prefix if path == root else f"{prefix.rstrip('/')}/{path.relative_to(root).as_posix()}"
    return os.path.relpath(path, folder.resolve()).replace(os.sep, "/")


def _samples(proposed: SourceProposal, inputs: Mapping[str, TensorType]) -> str:
    """What is there, in a few words."""
    many = f"{proposed.samples} sample{'s' if proposed.samples != 1 else ''}"
    if proposed.pictures:
        return f"{many}: pictures"
    held = [f"{name} {kind}{list(shape)}" for name, (shape, kind) in proposed.stored.items()]
    return f"{many}: {', '.join(held[:4])}{', ...' if len(held) > 4 else ''}"


def _fills(table: str, proposed: SourceProposal, remark: str) -> dict[tuple[str, str], TemplateValue]:
    fills = {(table, "source"): TemplateValue(value(proposed.source), remark)}
    if not proposed.rows:
        fills[table, "rows"] = TemplateValue("false", "each file is one sample")
    if proposed.arrays:
        fills[table, "arrays"] = TemplateValue(value(proposed.arrays), "model input = its array")
    if table == "data" and proposed.samples > ENOUGH:
        fills[table, "count"] = TemplateValue(
            str(ENOUGH // 2), f"of {proposed.samples}; a few hundred are enough"
        )
    return fills


def _evaluation(
    drawn: Draft,
    where: Path,
    folder: Path,
    prefix: str,
    mine: SourceProposal,
    found: Ports,
    inputs: Mapping[str, TensorType],
) -> None:
    """[evaluate] for the part that is called so; one that does not fit the model is left out with the reason.
    """
    text = _shown(where, folder, prefix)
    try:
        theirs = proposal(text, folder, inputs, found.sequences)
    except NpuflowError as fault:
        reason = f"{fault.message}{f': {fault.because}' if fault.because else ''}"
        drawn.notes["evaluate"] = (f'"{text}" is not taken for [evaluate]: {reason}.',)
        return
    fills = _fills("evaluate", theirs, _samples(theirs, inputs))
    count = min(JUDGED, theirs.samples)
    if theirs.samples > count:
        fills["evaluate", "count"] = TemplateValue(
            str(count), f"of {theirs.samples}; more take longer and are more reliable"
        )
    label, classes = theirs.label, theirs.classes
    beside = labels_beside(theirs, where, folder) if theirs.pictures else None
    if beside is not None:
        classes = beside[1]
    if _classifies(found, classes) and (label or beside is not None):
        if beside is not None:
            fills["evaluate", "labels"] = TemplateValue(value(_shown(beside[0], folder, "")), "")
        elif label != "label":
            fills["evaluate", "label"] = TemplateValue(value(label), "")
        fills["evaluate", "metric"] = TemplateValue('"top1"', "the labels are classes of the only output")
    elif label and label != "label":
        fills["evaluate", "label"] = TemplateValue(value(label), "")
    shape = found.outputs[0].shape
    if ("evaluate", "metric") not in fills and shape is not None and len(shape) != 2:
        fills["evaluate", "metric"] = TemplateValue('"sqnr"', "the first output is no row of scores")
    drawn.fills.update(fills)
    drawn.on.add("evaluate")
    drawn.checks["evaluate"] = theirs
    if not _same_steps(mine, theirs, inputs):
        own = {
            name: steps or [{"dtype": str(theirs.stored[name][1])}] for name, steps in theirs.steps.items()
        }
        drawn.blocks["evaluate"] = _steps("evaluate", theirs, own, inputs)


def _classifies(found: Ports, classes: Sequence[int]) -> bool:
    """Whether whole numbers can be classes of the model: one output of [batch, classes], more classes than
    the largest.
    """
    shape = found.outputs[0].shape if len(found.outputs) == 1 else None
    size = shape[-1] if shape is not None and len(shape) == 2 else 0
    return bool(classes) and isinstance(size, int) and 0 <= min(classes) <= max(classes) < size


def _same_steps(mine: SourceProposal, theirs: SourceProposal, inputs: Mapping[str, TensorType]) -> bool:
    """Whether the steps of [data] make the evaluation's samples fit, too: then it needs none of its own."""
    from npuflow.input.data.match import suits

    return all(
        mine.pictures == theirs.pictures
        and suits(*theirs.stored[name], mine.steps[name], want, picture=theirs.pictures)
        for name, want in inputs.items()
    )


# --- steps as text


def _steps(
    table: str,
    proposed: SourceProposal,
    steps: Mapping[str, Sequence[Mapping[str, Any]]],
    inputs: Mapping[str, TensorType],
) -> tuple[str, ...]:
    return tuple(
        line
        for name, want in inputs.items()
        for line in _of_input(table, name, proposed, steps[name], want, len(inputs))
    )


def _of_input(
    table: str, name: str, proposed: SourceProposal, steps: Sequence[Mapping[str, Any]], want: TensorType,
    many: int,
) -> Iterator[str]:
    """The steps of one input, and behind a # those that nothing in the files says."""
    bound = {"input": name} if many > 1 else {}
    before = [s for s in steps if "layout" not in s]
    for step in before:
        yield from _step(table, {**bound, **step})
    yield from _unknown(table, name, proposed, want, bound)
    for step in steps[len(before) :]:
        yield from _step(table, {**bound, **step})


def _step(table: str, step: Mapping[str, Any], off: str = "") -> Iterator[str]:
    yield f"{off}[[{table}.steps]]"
    for name, held in step.items():
        yield f"{off}{key(name)} = {value(held)}"


def _unknown(
    table: str, name: str, proposed: SourceProposal, want: TensorType, bound: Mapping[str, Any]
) -> Iterator[str]:
    """Colour order and normalisation: what the model was trained with is in no file."""
    kind = proposed.stored[name][1]
    if np.dtype(want.dtype).kind != "f" or kind.kind not in "iu" or kind.itemsize > 2:
        return
    seen = frame(want)
    if proposed.pictures and seen is not None and seen[1] == 3:
        yield "# Pictures are red, green, blue. For a model that was trained on blue, green, red:"
        yield from _step(table, {**bound, "channels": "bgr"}, "# ")
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    mean, std = PLACEHOLDER[8 * kind.itemsize]
    yield (
        f'# CHECK: "{name}" is fed as stored, {kind} in {low}..{high}: no file states what the model '
        'expects.'
    )
    yield "# If they were (x - mean) / std, take the # away and put the right ones:"
    yield f"# [[{table}.steps]]"
    yield from (f"# {key(k)} = {value(v)}" for k, v in bound.items())
    yield f"# normalize = {{ mean = [{mean}], std = [{std}] }}"
