"""What lies in a folder of samples, and the [data] that feeds a model from it: parts, arrays, steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, NpuflowError
from npuflow.base.tables import Location
from npuflow.input.data.array import headers, load
from npuflow.input.data.config import DamagedData, Data
from npuflow.input.data.image import SUFFIXES as PICTURES
from npuflow.input.data.labels import label_file
from npuflow.input.data.listing import paths
from npuflow.input.data.lists import LISTS, is_data
from npuflow.input.data.match import steps_for
from npuflow.input.data.steps import Plain
from npuflow.ir.types import TensorType

CALIBRATION, EVALUATION = ("calib", "train"), ("eval", "test", "val")
LABELS = ("label", "labels", "y", "target", "targets", "class", "classes")
LOOKED_AT = 64  # pictures whose sizes are read
Header = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class DataParts:
    """Where the samples for calibration and for evaluation are; `evaluation` None: there are none."""

    calibration: Path
    evaluation: Path | None = None


@dataclass(frozen=True)
class SourceProposal:
    """How the samples of one source become model inputs. `steps` and `stored` are by model input."""

    source: str
    samples: int
    rows: bool = True
    arrays: Mapping[str, str] = field(default_factory=dict)
    label: str = ""  # the array that holds labels
    labels: Path | None = None  # the file that holds them
    classes: tuple[int, ...] = ()  # labels, where all are whole numbers
    steps: Mapping[str, Sequence[Plain]] = field(default_factory=dict)
    stored: Mapping[str, Header] = field(default_factory=dict)
    pictures: bool = False


def parts(where: Path) -> DataParts:
    """The parts of a folder by their names (calib*, eval*, ...); all of it is for calibration where no name
    says otherwise.
    """
    if not where.is_dir() or is_data(where):
        return DataParts(where)
    entries = sorted(p for p in where.iterdir() if not p.name.startswith(".") and _holds_data(p))
    calibration = next(
        (p for prefix in CALIBRATION for p in entries if p.stem.lower().startswith(prefix)), None
    )
    held_out = [p for p in entries if p.stem.lower().startswith(EVALUATION)]
    rest = [p for p in entries if p not in held_out]
    evaluation = held_out[0] if held_out else None
    if calibration is not None:
        return DataParts(calibration, evaluation)
    if evaluation is None:
        return DataParts(where)
    if len(rest) > 1:
        raise DataError(
            f'no folder of "{where.name}" is named as calibration data',
            because=f"beside {evaluation.name} there are {', '.join(p.name for p in rest[:4])}"
            + (", ..." if len(rest) > 4 else ""),
            hint=f"name it calib*, or give it itself: --data {where.name}/{rest[0].name}", code="NF-DATA-044",
        )
    return DataParts(rest[0], evaluation) if rest else DataParts(evaluation)


def _holds_data(path: Path) -> bool:
    if path.is_dir() and not is_data(path):
        return any(is_data(p) for p in path.rglob("*"))
    return is_data(path) or path.suffix.lower() in LISTS[:2]


def proposal(
    text: str, base: Path, inputs: Mapping[str, TensorType], sequences: bool = False
) -> SourceProposal:
    """The [data] for the samples at `text`, a path as a recipe in folder `base` writes it. `sequences`: of a
    network with states, so that a sample may have an axis of steps in front of an input's own."""
    source = Data(Location(text, base))
    files = [path for _, path, _ in paths(source)]
    pictures = [p for p in files if p.suffix.lower() in PICTURES]
    arrays = [p for p in files if p.suffix.lower() not in PICTURES]
    if not files:
        raise DataError(
            f'"{text}" holds no samples', hint="pictures, .npy, .npz, zarr stores", code="NF-DATA-040",
        )
    if pictures and arrays:
        folder, chosen = source.source.path, pictures if len(pictures) >= len(arrays) else arrays
        suffixes = sorted({p.suffix.removeprefix(".") for p in chosen})
        text = f"{text}/**/*." + (suffixes[0] if len(suffixes) == 1 else "{" + ",".join(suffixes) + "}")
        pictures, arrays = (chosen, []) if chosen is pictures else ([], chosen)
        assert folder.is_dir()
    if pictures:
        return _of_pictures(text, pictures, inputs)
    return _of_arrays(text, arrays, inputs, sequences)


def sample_shapes(text: str, base: Path, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shape of one sample by model input, as far as names say it: what free dimensions could be bound to.
    """
    files = [path for _, path, _ in paths(Data(Location(text, base)))]
    if not files:
        return {}
    if files[0].suffix.lower() in PICTURES:
        sizes = set(_sizes(files))
        return {names[0]: next(iter(sizes))} if len(names) == len(sizes) == 1 else {}
    held = _headers(files)
    by_name = _by_name(names, held)
    return {name: held[source][0][1:] for name, source in by_name.items() if held[source][0]}


# --- pictures


def _of_pictures(text: str, files: Sequence[Path], inputs: Mapping[str, TensorType]) -> SourceProposal:
    if len(inputs) != 1:
        raise DataError(
            f"pictures feed one input, the model has {len(inputs)}: {', '.join(inputs)}",
            hint="an .npz with one array per input", code="NF-DATA-045",
        )
    ((name, want),) = inputs.items()
    sizes = sorted(set(_sizes(files)))
    steps = next(
        (
            s
            for size in sizes[-1:]
            if (s := steps_for(size, np.dtype(np.uint8), want, picture=True)) is not None
        ),
        None,
    )
    if steps is not None and len(sizes) > 1 and not any("resize" in step for step in steps):
        other = steps_for(
            (sizes[0][0] + 1, *sizes[0][1:]), np.dtype(np.uint8), want, picture=True
        )  # not all fit as they are
        steps = other if other is not None else steps
    if steps is None:
        raise _misfit(name, (sizes[-1], np.dtype(np.uint8)), want, "pictures are")
    return SourceProposal(
        text, len(files), steps={name: steps}, stored={name: (sizes[-1], np.dtype(np.uint8))}, pictures=True
    )


def _sizes(files: Sequence[Path]) -> Iterator[tuple[int, ...]]:
    """[height, width, 3] of some of the pictures, from their headers; those that cannot be read are passed
    over.
    """
    from PIL import Image

    step = max(1, len(files) // LOOKED_AT)
    for path in files[::step]:
        try:
            with Image.open(path) as opened:
                turned = opened.getexif().get(0x0112, 1) >= 5
                width, height = opened.size[::-1] if turned else opened.size
                yield height, width, 3
        except (OSError, ValueError, SyntaxError):
            continue


# --- arrays


def _of_arrays(
    text: str, files: Sequence[Path], inputs: Mapping[str, TensorType], sequences: bool
) -> SourceProposal:
    stored_as = held = _headers(files)
    if sequences:
        held = {name: _without_steps(header, inputs.values()) for name, header in held.items()}
    made: list[tuple[int, SourceProposal]] = []
    for rows in (True, False):
        chosen = _chosen(held, inputs, rows)
        if chosen is None:
            continue
        steps = {name: _steps(held[source], inputs[name], rows) for name, source in chosen.items()}
        if any(one is None for one in steps.values()):
            continue
        found: dict[str, Sequence[Plain]] = {name: one for name, one in steps.items() if one is not None}
        samples = len(files) if not rows else held[next(iter(chosen.values()))][0][0] * len(files)
        stored = {
            name: (_sample(stored_as[source][0], rows), held[source][1]) for name, source in chosen.items()
        }
        needed = _arrays_needed(chosen, held)
        proposed = SourceProposal(
            text, samples, rows, needed, steps=found, stored=stored, **_labels(files, held, chosen, rows)
        )
        made.append((sum(map(len, found.values())), proposed))
    if not made:
        raise _unfit(held, inputs)
    return min(made, key=lambda pair: pair[0])[1]


def _headers(files: Sequence[Path]) -> dict[str, Header]:
    """Arrays of the first file that can be read."""
    fault: DamagedData | None = None
    for path in files:
        try:
            return headers(path)
        except DamagedData as damaged:
            fault = fault or damaged
    raise fault or DataError("there are no arrays", code="NF-DATA-046")


def _without_steps(header: Header, kinds: Iterable[TensorType]) -> Header:
    """Of an array of sequences [samples, steps, *input] what one of steps alone would be."""
    shape, kind = header
    steps = len(shape) > 2 and any(shape[2:] == want.shape for want in kinds)
    return (shape[:1] + shape[2:], kind) if steps else header


def _sample(shape: tuple[int, ...], rows: bool) -> tuple[int, ...]:
    return shape[1:] if rows else shape


def _steps(held: Header, want: TensorType, rows: bool) -> list[Plain] | None:
    shape, kind = held
    if (rows and not shape) or (kind.kind in "fiub") != (want.dtype != "string"):
        return None
    return steps_for(_sample(shape, rows), kind, want)


def _chosen(
    held: Mapping[str, Header], inputs: Mapping[str, TensorType], rows: bool
) -> dict[str, str] | None:
    """Model input -> array: by name, and what is left over by what fits; None if an input finds none."""
    if "" in held:
        return {next(iter(inputs)): ""} if len(inputs) == 1 else None
    chosen = _by_name(list(inputs), held)
    for name, want in inputs.items():
        if name in chosen:
            continue
        free = [a for a in held if a not in chosen.values()]
        every = [(len(s), a) for a in free if (s := _steps(held[a], want, rows)) is not None]
        fitting = [pair for pair in every if pair[1].lower() not in LABELS] or every
        best = [a for cost, a in fitting if cost == min(fitting)[0]]
        if len(best) != 1:
            return None
        chosen[name] = best[0]
    return chosen


def _by_name(names: Sequence[str], held: Mapping[str, Header]) -> dict[str, str]:
    """Arrays called like inputs, first to the letter, then by letters and digits alone (`input_1:0` and
    `Input 1`).
    """
    chosen = {name: name for name in names if name in held}
    if "" in held and len(names) == 1:
        return {names[0]: ""}
    for name in names:
        alike = [a for a in held if a not in chosen.values() and _plain(a) == _plain(name)]
        if name not in chosen and len(alike) == 1:
            chosen[name] = alike[0]
    return chosen


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub(r":\d+$", "", name).lower())


def _arrays_needed(chosen: Mapping[str, str], held: Mapping[str, Header]) -> dict[str, str]:
    """The `arrays` key: nothing where every array of numbers is the input of its name."""
    numbers = {name for name, (_, kind) in held.items() if kind.kind in "fiub"}
    return (
        {}
        if "" in held or (all(n == a for n, a in chosen.items()) and numbers <= set(chosen.values()))
        else dict(chosen)
    )


def _labels(
    files: Sequence[Path], held: Mapping[str, Header], chosen: Mapping[str, str], rows: bool
) -> dict[str, Any]:
    """The array of labels, if one is called so and has a whole number for each sample."""
    count = held[next(iter(chosen.values()))][0][:1]
    for name, (shape, kind) in held.items():
        if rows and name.lower() in LABELS and kind.kind in "iu" and shape == count and len(files) == 1:
            found = np.unique(np.asarray(load(files[0])[name]))
            return {"label": name, "classes": tuple(int(v) for v in found[:100_000])}
    return {}


def labels_beside(proposed: SourceProposal, where: Path, base: Path) -> tuple[Path, tuple[int, ...]] | None:
    """A label file beside pictures (`labels.csv` here or in their folder) that knows them by name, and its
    whole numbers.
    """
    names = [name for name, _, _ in islice(paths(Data(Location(proposed.source, base))), LOOKED_AT)]
    for folder in (where.parent, where):
        for path in sorted(folder.glob("label*.csv")) if folder.is_dir() else []:
            try:
                known = label_file(path)
            except NpuflowError:
                continue
            mine = [known[name] for name in names if name in known]
            if mine and len(mine) * 2 > len(names):
                flat = [
                    c for label in known.values() for c in (label if isinstance(label, list) else [label])
                ]
                numbers = tuple(sorted({c for c in flat if isinstance(c, int)}))
                every = [label if isinstance(label, list) else [label] for label in mine]
                return path, numbers if all(isinstance(c, int) for label in every for c in label) else ()
    return None


# --- faults


def _misfit(name: str, held: Header, want: TensorType, because: str) -> DataError:
    return DataError(
        f'the samples do not fit the model input "{name}"',
        because=f"{because} {held[1]} {list(held[0])}, the input {want.dtype} {list(want.shape)}",
        hint="--shape binds free dimensions; else write the source and its steps into the recipe",
        code="NF-DATA-047",
    )


def _unfit(held: Mapping[str, Header], inputs: Mapping[str, TensorType]) -> DataError:
    """Which inputs find no array, and why."""
    by_name = _by_name(list(inputs), held)
    for name, source in by_name.items():
        want = inputs[name]
        if all(_steps(held[source], want, rows) is None for rows in (True, False)):
            return _misfit(name, held[source], want, f'the array "{source}" is' if source else "the array is")
    missing = [name for name in inputs if name not in by_name]
    shown = ", ".join(
        f"{a or 'one array'} {kind}{list(shape)}" for a, (shape, kind) in list(held.items())[:8]
    )
    return DataError(
        f"no array for the model input{'s' if len(missing) > 1 else ''} {', '.join(missing or inputs)}",
        because=f"the data hold {shown}; the model expects "
        + ", ".join(f"{n} {inputs[n].dtype}{list(inputs[n].shape)}" for n in (missing or inputs)),
        hint="name the arrays of an .npz after the inputs; constant inputs go under [model] constants",
        code="NF-DATA-048",
    )
