"""Contracts of the smaller plug-ins: threshold methods, metrics, source formats;
each registry scans its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.base.tables import Config
from npuflow.ir.graph import Graph
from npuflow.ir.moments import Floats as Floats
from npuflow.ir.moments import Moments
from npuflow.ir.types import QuantType

CALIBRATORS = Registry("calibrators", "npuflow.calibrators")
METRICS = Registry("metrics", "npuflow.metrics")
FRONTENDS = Registry("frontends", "npuflow.frontends")
STRATEGIES = Registry("strategies", "npuflow.strategies")

# shares of a sample beyond which statistics keep a value
TAILS = (0.01, 0.005, 0.001, 5e-4, 1e-4, 5e-5, 1e-5)


@dataclass(frozen=True)
class Grid:
    """The integers a threshold is for: `bits`, signedness and symmetry decide how
    many steps cover a range."""

    bits: int
    signed: bool
    symmetric: bool
    narrow: bool = False
    power_of_two: bool = False

    @property
    def levels(self) -> int:
        return (1 << self.bits) - int(self.narrow)


class TensorStatistics(Protocol):
    """What a threshold method may ask of one tensor's statistics (see DESIGN: exact, mergeable, range-free).

    Infinities and NaNs take no part in anything but their own counts; `lo` and `hi` are finite.
    """

    @property
    def lo(self) -> float: ...
    @property
    def hi(self) -> float: ...
    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...
    @property
    def sample_min(self) -> npt.NDArray[np.float32]: ...
    @property
    def sample_max(self) -> npt.NDArray[np.float32]: ...
    @property
    def sample_tails(self) -> npt.NDArray[np.float32]:
        """[samples, 2, len(TAILS)]: the values that these shares of a sample lie below, and lie above."""

    @property
    def moments(self) -> Moments:
        """Counts and power sums below any place."""

    def cells(self) -> tuple[Floats, Floats, Floats]:
        """Lower ends, upper ends and counts of the occupied cells in ascending order; an
        exact zero is a cell [0, 0]."""

    def histogram(
        self, bins: int, lo: float, hi: float, absolute: bool = False, points: bool = True
    ) -> Floats:
        """Counts of `bins` equal bins over [lo, hi], derived from the cells; values outside are left out.

        `points` False leaves out cells without width (exact zeros, the value that a clip saturates at).
        """

    def quantile(self, fraction: float, absolute: bool = False) -> float:
        """The value (or magnitude) that this fraction of the values does not exceed."""


class Calibrator(Config):
    """A threshold method. Its fields are its options in the recipe
    (`[calibrate.<name>]`); calling it gives (lo, hi).

    The range is in real units and contains zero; a symmetric grid gets (-t, t), or (0, t) if it is unsigned.
    """

    Options: ClassVar[type[Calibrator]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.Options = cls

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        raise NotImplementedError


def fitted(lo: float, hi: float, grid: Grid) -> tuple[float, float]:
    """A range made to suit the grid: it contains zero, and is symmetric where the grid is."""
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if not grid.symmetric:
        return (lo, hi)
    top = max(-lo, hi)
    return (-top, top) if grid.signed else (0.0, hi)


def around_mean(statistics: TensorStatistics, reach: float, grid: Grid) -> tuple[float, float]:
    """So far to both sides of the mean, within the observed extrema, made to suit the grid."""
    lo, hi = max(statistics.lo, statistics.mean - reach), min(statistics.hi, statistics.mean + reach)
    return fitted(lo, hi, grid)


Outputs = Mapping[str, npt.NDArray[np.generic]]


class Metric(Config):
    """An accuracy metric. Its fields are its options (`[evaluate.<name>]`); calling it gives named figures.

    `outputs`: by output name, first axis the samples; `reference`: the float model's, likewise;
    `labels`: what the evaluation data state per sample (None without labels). The first figure is the
    one to watch; higher is better.
    """

    Options: ClassVar[type[Metric]]
    needs_labels: ClassVar[bool] = True

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.Options = cls

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        raise NotImplementedError


@dataclass(frozen=True)
class Bindings:
    """What the recipe fixes of a model: shapes of inputs by name, sizes of named dimensions, cut points, and
    inputs that always have the same value."""

    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """A source model as a graph, with notes on what had to be assumed. `stated`: the
    codes of a quantised model."""

    graph: Graph
    notes: tuple[str, ...] = ()
    stated: Mapping[str, QuantType] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A model file: its bytes, and tensors by name that are kept apart from them,
    mapped where they lie in files.
    `format`: the entry of FRONTENDS that reads the bytes, where it is another than
    the one that gathered them."""

    data: bytes
    tensors: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    format: str = ""


class Gatherer(Protocol):
    """A source format whose models become those of another format as they are gathered."""

    suffixes: ClassVar[tuple[str, ...]]

    def files(self, path: Path) -> tuple[Path, ...]:
        """Every file that the model at `path` consists of."""

    def gather(self, path: Path) -> Source:
        """The whole model, from all its files."""


class Frontend(Gatherer, Protocol):
    """A source format. Where it takes a `Source`, the bytes alone will do for a model
    without tensors of its own."""

    def operators(self, source: Source | bytes) -> tuple[str, ...]:
        """Names in OPS whose code reading the model may use."""

    def read(self, source: Source | bytes, bindings: Bindings) -> Reading: ...


@runtime_checkable
class Runnable(Protocol):
    """A source format whose models onnxruntime runs."""

    def runnable(self, source: Source | bytes, bindings: Bindings) -> bytes:
        """The model as ONNX bytes that nothing of npuflow has rewritten. Its rounding to codes, if it has
        any, is left out, as `read` leaves it out; inputs held constant hold their numbers, and outputs are
        those asked for. CannotRunError of `onnx_run` where they are too many.
        """

    def rounding(self, source: Source | bytes) -> float:
        """The relative rounding of the coarsest floating-point type that the model computes in."""
