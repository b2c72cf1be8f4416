"""The recipe's [data]: which samples there are, and what the model is fed for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Doc, Fault, Instead, Location, Range, Words
from npuflow.base.tables_write import key
from npuflow.input.data.lengths import filled, one_length
from npuflow.input.data.steps import Alpha, DataStep, Plain, finished
from npuflow.ir.lengths import most_of
from npuflow.ir.types import Array, TensorType

NO_LENGTHS: Mapping[str, dict[str, int]] = {}


class DamagedData(DataError):
    """An array file or a store that is none, or no longer one: left out where there are others."""


@dataclass(frozen=True)
class Raw(Config):
    """What .bin and .raw files hold: samples of this type and shape, one behind the other."""

    dtype: Literal["float32", "float16", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64"]
    shape: tuple[int, ...]

    def check(self) -> Iterator[Fault]:
        if any(size < 1 for size in self.shape):
            yield Fault("shape", f"{list(self.shape)} is not a shape", code="NF-DATA-080")


@dataclass(frozen=True)
class Beside(Config):
    """Further inputs of every sample, out of a file that another component's build made."""

    # the npz file of a component's outputs; rows are of the samples whose positions it names
    source: Location
    # model input = name of its array in the file
    arrays: dict[str, str]


@dataclass(frozen=True)
class Data(Config):
    """Where samples come from and how they become model inputs."""

    source: Annotated[
        Location,
        Doc(
            'folder, pattern, list file, .npy/.npz, zarr store, "pkg:NAME/PATTERN", '
            '"python:module:function", "python:FILE.py:function", or "random"'
        ),
        Words("random", "builtin"),
        Instead("text"),
    ]
    text: Annotated[
        Location | None,
        Doc(
            'in place of source, for a language model: text files (a file, folder or pattern), or "builtin"; '
            "cut into windows by the tokenizer of [model] path. A .jsonl file holds questions"
        ),
        Words("builtin"),
    ] = None
    # tokens of a window of text; not set: 256, or the model's context where that is shorter
    window: Annotated[int, Range(2, None)] | None = None
    count: Annotated[int, Range(1, None)] | None = None      # at most so many samples
    seed: Annotated[int, Range(0, None)] = 0
    choose: Literal["random", "first", "balanced"] = "random"  # which ones; balanced: as many of each class
    # a .csv of file and label, or COCO annotations as .json
    labels: Location | None = None
    # the first axis of npy, npz and zarr arrays counts samples
    rows: bool = True
    # model input = name of its array in npz and zarr files
    arrays: dict[str, str] = field(default_factory=dict)
    # the array of npz and zarr files that holds labels
    label: str = "label"
    # the first folder of a sample's name is its class; classes count in the folders' order
    class_folders: bool = False
    # of .bin and .raw files: element type and shape of a sample
    raw: Raw | None = None
    # "python:module:function": takes a file's path, gives its array (or arrays by input)
    reader: Location | None = None
    nonfinite: Literal["leave_out", "error", "keep"] = "leave_out"  # samples that hold NaN or infinity
    alpha: Alpha = "drop"                                    # transparency: dropped, or over black or white
    colour: bool = True                                      # grey pictures become RGB
    steps: tuple[DataStep, ...] = ()
    # inputs that other components make: a recipe with [components] states them as `inputs`
    beside: tuple[Beside, ...] = ()

    @property
    def builtin(self) -> str:
        """The file that `text = "builtin"` names."""
        return "calibration.txt"

    def check(self) -> Iterator[Fault]:
        if self.text is None:
            if self.window is not None:
                yield Fault(
                    "window", "there is no text to cut into windows", hint='text = "texts/*.txt"',
                    code="NF-RECIPE-145",
                )
            return
        if self.source.text != self.text.text:
            yield Fault(
                "source", "samples come from files or from texts", f'text is "{self.text.text}"',
                "one of source and text", code="NF-RECIPE-146",
            )
        if self.choose == "balanced":
            yield Fault("choose", "texts have no classes", hint='choose = "random"', code="NF-RECIPE-148")
        for name in ("labels", "raw", "reader", "steps", "class_folders", "arrays", "beside"):
            if getattr(self, name):
                yield Fault(
                    name, "texts become tokens, and nothing else is done to them", hint=f"leave out {name}",
                    code="NF-RECIPE-147",
                )


@dataclass(frozen=True)
class Preparation(Config, table="data"):
    """What of [data] a program remembers, so that pictures can be fed to it as the recipe feeds them."""

    alpha: Alpha = "drop"                                    # transparency: dropped, or over black or white
    colour: bool = True                                      # grey pictures become RGB
    steps: tuple[DataStep, ...] = ()

    def plain(self) -> dict[str, Any]:
        """JSON-able, as programs store it."""
        return {"alpha": self.alpha, "colour": self.colour, "steps": [step.plain() for step in self.steps]}


@dataclass(frozen=True)
class InputSample:
    """One sample: arrays by model input ("" for the only one), and the point-wise steps still to be done.

    `noise` is the seed of random data; `broken` says why a file could not be read; `clip` names the sequence
    that the sample is a step of.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    steps: tuple[Plain, ...] = ()
    picture: bool = False
    noise: int | None = None
    broken: str = ""
    clip: str = ""

    def feed(self, inputs: Mapping[str, TensorType]) -> dict[str, Array]:
        """What the model gets, checked against its input types."""
        if self.broken:
            raise DataError("this sample could not be read", because=self.broken, code="NF-DATA-028")
        lengths = {name: most for name in inputs if (most := most_of(name)) and name not in self.arrays}
        own = {name: kind for name, kind in inputs.items() if name not in lengths}
        if self.noise is not None:
            found, counts = noise(own, self.noise), dict[str, dict[str, int]]()
        else:
            found, counts = {}, {name: {} for name in lengths}
            for name, kind in own.items():
                found[name] = self._fed(name, kind, len(own), counts)
        for name, most in lengths.items():
            count = one_length(counts[name].items(), name) if counts.get(name) else most
            found[name] = np.full(inputs[name].shape, count, inputs[name].dtype)
        return found

    def misfits(self, inputs: Mapping[str, TensorType]) -> Iterator[DataError]:
        """Why the sample cannot be fed, input by input."""
        lengths = {name for name in inputs if most_of(name) and name not in self.arrays}
        for name, kind in ((name, kind) for name, kind in inputs.items() if name not in lengths):
            try:
                noise({name: kind}, self.noise) if self.noise is not None else self._fed(
                    name, kind, len(inputs) - len(lengths), {name: {} for name in lengths}
                )
            except DataError as fault:
                yield fault

    def _fed(
        self, name: str, kind: TensorType, inputs: int, lengths: Mapping[str, dict[str, int]] = NO_LENGTHS
    ) -> Array:
        """An input's array. `lengths`: by input that says how many steps there are, how many this one has."""
        array = finished(self._array(name, inputs, kind), self.steps, name, self.picture)
        for length, counts in lengths.items():
            array, count = _whole(array, kind, most_of(length))
            if count:
                counts[name] = count
        return fitted(array, kind, name)

    def _array(self, name: str, inputs: int, kind: TensorType) -> Array:
        if name in self.arrays:
            return self.arrays[name]
        if inputs == 1 and len(self.arrays) == 1:
            return next(iter(self.arrays.values()))
        if "" in self.arrays and len(self.arrays) == inputs:     # all others have names
            return self.arrays[""]
        alone = list(self.arrays) == [""]
        held = ", ".join(repr(n) for n in self.arrays) or "nothing"
        one = f", or [model] constants = {{ {key(name)} = ... }}, where it is always the same number"
        raise DataError(
            f'the samples have no array for the model input "{name}"',
            because="a sample is one file without a name" if alone else f"a sample holds {held}",
            hint="several files a sample: a list whose first line names the inputs (a b, or a,b in a .csv)"
            if alone
            else f'[data] arrays = {{ {key(name)} = "..." }} names the array of an npz file'
            + one * (kind.is_static and kind.size == 1),
            code="NF-DATA-029",
        )


def _whole(array: Array, kind: TensorType, most: int) -> tuple[Array, int]:
    """An array that is shorter than its input along the one axis of so many steps, filled up, and the steps
    that it has; 0 and the array where it is not. The axis of a batch of one may be missing."""
    shape = kind.shape
    spare = [d for d, size in enumerate(shape) if size == 1] if array.ndim == len(shape) - 1 else []
    for held in (array, *(np.expand_dims(array, d) for d in spare)):
        short = [d for d, (have, want) in enumerate(zip(held.shape, shape, strict=False)) if have != want]
        if held.ndim == len(shape) and len(short) == 1:
            (axis,) = short
            if shape[axis] == most and 0 < held.shape[axis] < most:
                return filled(held, axis, most), held.shape[axis]
    return array, 0


def fitted(array: Array, kind: TensorType, name: str) -> Array:
    """The array in the input's type; a missing batch axis, or other axes of one, are put in; a batch of
    several, fixed in the model, has the sample in every place."""
    shaped = _shaped(array, kind.shape)
    if shaped is None:
        hint = "preprocessing steps change sizes; a `layout` step orders the axes"
        if array.ndim == 3 and array.shape[0] == 3 and array[:1].shape == _spare(kind.shape):
            hint = 'the model takes one channel: [[data.steps]] channels = "grey"'
        elif array.ndim == 3 and array.shape[0] == 1 and _spare(kind.shape) == (3, *array.shape[1:]):
            hint = 'the model takes three channels: [[data.steps]] channels = "rgb"'
        elif _one_short(array.shape, kind.shape):
            hint = "one axis is missing: where each file holds one sample, [data] rows = false takes it whole"
            if array.ndim == 2 and 3 in kind.shape:
                hint += '; grey pictures become colours with [[data.steps]] channels = "rgb", then layout'
        elif sorted(d for d in array.shape if d != 1) == sorted(d for d in kind.shape if d != 1):
            hint = 'the sizes fit in another order: [[data.steps]] layout = "nchw" or "nhwc"'
        raise DataError(
            f'a sample does not fit the model input "{name}"',
            because=f"the sample is {array.dtype} {list(array.shape)}, the input {kind.dtype} "
            f"{list(kind.shape)}",
            hint=hint,
            code="NF-DATA-030",
        )
    return _typed(shaped, kind.dtype, name)


def _one_short(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether the sample is what is left of the input when its first axis is taken for samples."""
    needed = [d for d in want if d != 1]
    return len(needed) > 0 and [d for d in have if d != 1] == needed[1:]


def _spare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one sample, without the batch axis in front."""
    return shape[1:] if len(shape) == 4 and shape[0] in (1, -1) else shape


def _shaped(array: Array, want: tuple[int, ...]) -> Array | None:
    if any(d < 0 for d in want):
        for candidate in (array, array[None]):
            if candidate.ndim == len(want) and all(
                w in (d, -1) for w, d in zip(want, candidate.shape, strict=True)
            ):
                return candidate
        return None
    if array.shape == want:
        return array
    if [d for d in array.shape if d != 1] == [d for d in want if d != 1]:
        return array.reshape(want)
    if len(want) > 1 and want[0] > 1 and array.shape in (want[1:], (1, *want[1:])):
        # a fixed batch: the sample in every place
        return np.repeat(array.reshape(1, *want[1:]), want[0], 0)
    return None


def _typed(array: Array, dtype: str, name: str) -> Array:
    if dtype == "string" or array.dtype == dtype:
        return array
    if array.dtype.kind not in "fiub":
        held = "text" if array.dtype.kind in "US" else "no real numbers"
        raise DataError(
            f'the model input "{name}" takes {dtype}, but its array holds {held} ({array.dtype})',
            hint=f'[data] arrays = {{ {key(name)} = "..." }} names another array; tokenise text in '
            '"python:module:function"',
            code="NF-DATA-031",
        )
    cast = array.astype(dtype)
    if np.dtype(dtype).kind in "iub" and not np.array_equal(cast, array):
        raise DataError(
            f'values for the model input "{name}" are not {dtype}',
            because=f"the sample is {array.dtype} in {array.min()}..{array.max()}", code="NF-DATA-032",
        )
    return cast


def noise(inputs: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Standard normal floats, and zeros and ones for integers."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, kind in inputs.items():
        if not kind.is_static:
            raise DataError(
                f'random data need sizes for the model input "{name}"',
                because=f"its shape is {list(kind.shape)}", hint="[model] inputs binds them",
                code="NF-DATA-033",
            )
        real = np.dtype(kind.dtype).kind == "f"
        values = rng.standard_normal(kind.shape) if real else rng.integers(0, 2, kind.shape)
        made[name] = values.astype(kind.dtype)
    return made


@dataclass(frozen=True)
class FoundSample:
    """A sample that a listing found: the files it is read from and, as JSON, how."""

    files: tuple[Any, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    label: Any = None
    # its position among the samples that all components of a recipe begin with, and how many these are
    place: tuple[int, int] | None = None
