"""The [calibrate] table: a threshold method for every tensor, others where the recipe says so.

Infinities in activations are not counted, or trimmed to the outermost number that is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Annotated, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Fault
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.place.names import answers, stated, unknown_layers
from npuflow.place.outputs import score_outputs
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize, activation_grid
from npuflow.quantise.scales import Range, activation_types, passed_on
from npuflow.quantise.wishes import check_scheme
from npuflow.rules import Applied
from npuflow.statistics.statistics import ObservedStatistics, StatisticsColumn

Ranges = dict[str, tuple[float, float]]
LARGEST = float(np.finfo(np.float32).max)
SCORES = "scores"                         # the method of outputs whose range the operator states


@dataclass(frozen=True)
class LayerCalibration(Config):
    """Another method for some tensors, or a range written by hand."""

    # value or node names, operator names, or patterns: of what they write
    layers: tuple[str, ...]
    method: Annotated[str, CALIBRATORS] = "minmax"
    range: tuple[float, float] | None = None
    # values beyond are not part of the distribution, such as a mask's -10000
    bounds: tuple[float, float] | None = None
    beyond: Literal["clip", "drop"] = "clip"       # such values count as the bound, or not at all

    def check(self) -> Iterable[Fault]:
        yield from _faults_of("range", self.range)
        yield from _faults_of("bounds", self.bounds)


def _faults_of(field: str, given: tuple[float, float] | None) -> Iterable[Fault]:
    """A fault for a range that no number lies in, or whose ends are no float32 numbers. Infinity is an end of
    bounds, on which side nothing is cut, and none of a range."""
    if given is None:
        return
    if not given[0] < given[1]:
        yield Fault(
            field, f"the range {list(given)} holds no numbers", hint="lowest first, then highest",
            code="NF-RECIPE-015",
        )
    elif any(abs(end) > LARGEST and (field == "range" or isfinite(end)) for end in given):
        yield Fault(
            field, f"the range {list(given)} has an end that no float32 number reaches",
            because="tensors are of float32", hint="ends within 3.4e38" + ", or inf" * (field == "bounds"),
            code="NF-RECIPE-126",
        )


@dataclass(frozen=True)
class Calibrate(Config):
    """The threshold method, and exceptions (later ones win)."""

    method: Annotated[str, CALIBRATORS] = "auto"
    bounds: tuple[float, float] | None = None      # of every tensor, as under layers
    beyond: Literal["clip", "drop"] = "clip"
    # infinities: not counted, or as the bound, else the largest finite value
    infinite: Literal["drop", "clip"] = "drop"
    # judge inputs of table functions by the part that quantisation will keep of them
    as_trimmed: bool = False
    layers: tuple[LayerCalibration, ...] = ()

    def check(self) -> Iterable[Fault]:
        yield from _faults_of("bounds", self.bounds)


@dataclass(frozen=True)
class ChosenThresholds:
    """Range and method of every tensor; notes on what a user should look at."""

    ranges: Mapping[str, tuple[float, float]]
    methods: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RangeChoice:
    """What the recipe says of one tensor: who chooses its range, by which name, from what."""

    method: Calibrator
    name: str
    tensor: StatisticsColumn
    grid: Grid
    fixed: tuple[float, float] | None

    def range(self) -> tuple[float, float]:
        return self.fixed or self.method(self.tensor, self.grid)


def thresholds(
    graph: Graph,
    statistics: ObservedStatistics,
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
    on_npu: Callable[[int], bool] | None = None,
    history: Sequence[Applied] = (),
) -> ChosenThresholds:
    """A range for every tensor that has statistics; `on_npu` is asked for [calibrate] as_trimmed alone.

    `history`: the rewrites of the graph, for the message when the recipe names a layer that they replaced.
    """
    notes: list[str] = []
    check_scheme(quantize, numerics)
    named = [*stated("calibrate.layers", calibrate.layers), *stated("quantize.overrides", quantize.overrides)]
    unknown_layers(graph, named, history)
    chosen = choices(graph, statistics, calibrate, quantize, numerics, notes)
    ranges = {name: one.range() for name, one in chosen.items()}
    if on_npu is not None and quantize.trim and calibrate.as_trimmed:
        ranges.update(_as_trimmed(graph, chosen, ranges, quantize, numerics, on_npu))
    by_hand = {name for name, one in chosen.items() if one.fixed and one.name != SCORES}
    methods = {name: "by hand" if name in by_hand else one.name for name, one in chosen.items()}
    return ChosenThresholds(ranges, methods, tuple(notes))


def choices(
    graph: Graph,
    statistics: ObservedStatistics,
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
    notes: list[str],
) -> dict[str, RangeChoice]:
    """Method and statistics of every tensor, as the recipe has it; what a user
    should look at goes into `notes`."""
    default, producer, scores = made(calibrate, calibrate.method), graph.producer(), score_outputs(graph)
    used = [False] * len(calibrate.layers)
    found = {}
    for name in statistics.names:
        tensor, node = statistics[name], producer.get(name)
        names = (name, *node.origin) if node is not None else (name,)
        op = op_name(node) if node is not None else "input"
        method, chosen, fixed = default, calibrate.method, None
        bounds, beyond = calibrate.bounds, calibrate.beyond
        for i, layer in enumerate(calibrate.layers):
            if answers(layer.layers, names, op):
                method, chosen, fixed, used[i] = made(layer, layer.method), layer.method, layer.range, True
                bounds, beyond = (layer.bounds, layer.beyond) if layer.bounds else (bounds, beyond)
        if chosen == calibrate.method and fixed is None and name in scores:
            chosen, fixed = SCORES, scores[name]
        if tensor.count == 0:
            raise DataError(
                "no calibration sample has a finite value here",
                hint="look for NaN or infinity in the float model", code="NF-DATA-019",
            ).at(value=name)
        if tensor.totals[1:].any():
            nan, up, down = (int(n) for n in tensor.totals[1:])
            said = (
                "left out"
                if calibrate.infinite == "drop" or not up + down
                else "left out (NaN) or clipped (infinities)"
            )
            notes.append(
                f"{name}: {nan} NaN, {up} +inf and {down} -inf of {int(tensor.totals[0])} values are {said}"
            )
            if calibrate.infinite == "clip":
                tensor = trimmed(tensor, bounds if beyond == "clip" else None)
        grid = activation_grid(quantize.activations_of(names, op), numerics)
        found[name] = RangeChoice(
            method, chosen, tensor.within(bounds, beyond) if bounds else tensor, grid, fixed
        )
    for layer, hit in zip(calibrate.layers, used, strict=True):
        if not hit:
            notes.append(
                f"[calibrate] layers {', '.join(layer.layers)}: no tensor of the NPU has such a name"
            )
    return found


def _as_trimmed(
    graph: Graph,
    chosen: Mapping[str, RangeChoice],
    ranges: Ranges,
    quantize: Quantize,
    numerics: Numerics,
    on_npu: Callable[[int], bool],
) -> Ranges:
    """New ranges of tensors of which table functions need a part alone: what is cut
    off there costs no error."""
    tables = {v for n in graph.nodes if n.op.unary for v in n.inputs}
    if not tables & set(chosen):
        return {}
    nodes = [n for i, n in enumerate(graph.nodes) if on_npu(i)]
    types = activation_types(graph, nodes, ranges, quantize, numerics)
    found = {}
    for name, one in chosen.items():
        if name not in tables or name not in types or one.fixed:
            continue
        quant, (lo, hi) = types[name], ranges[name]
        step = quant.scale[0]
        low, high = (step * (code - quant.zero_point[0]) for code in (quant.lo, quant.hi))
        if low > lo + step or high < hi - step:
            found[name] = replace(
                one, tensor=one.tensor.within((min(low, 0.0), max(high, 0.0)), "clip")
            ).range()
    return found


def made(table: Calibrate | LayerCalibration, name: str) -> Calibrator:
    """The method with the options that the table gives it."""
    options: Calibrator | None = table.options
    return options if options is not None else CALIBRATORS[name]()


def trimmed(tensor: StatisticsColumn, bounds: tuple[float, float] | None = None) -> StatisticsColumn:
    """The statistics with each infinity counted as the bound on its side, or without bounds as
    the outermost finite value."""
    from npuflow.statistics.kernels import SHIFT  # loads the compiler

    _, up, down = (int(n) for n in tensor.totals[1:])
    if not tensor.count or not up + down:
        return tensor
    low, high = tensor.low.copy(), tensor.high.copy()
    if up and bounds is not None:
        high[int(high.argmax())] = np.float32(max(bounds[1], tensor.hi))
    if down and bounds is not None:
        low[int(low.argmin())] = np.float32(min(bounds[0], tensor.lo))
    held = dict(zip(tensor.keys.tolist(), tensor.counts.tolist(), strict=True))
    for count, value in ((up, high.max()), (down, low.min())):
        if count:
            key = int(np.float32(value).view(np.uint32)) >> SHIFT
            held[key] = held.get(key, 0) + count
    keys = np.array(sorted(held), np.int64)
    counts = np.array([held[k] for k in keys.tolist()], np.int64)
    totals = tensor.totals * np.array([1, 1, 0, 0])
    return replace(tensor, keys=keys, counts=counts, low=low, high=high, totals=totals)


def with_moved(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges, with those of values that have none and that are moved from, or to, one that has. At one size a
    movement is a view of another value, or none, and at another one a node of its own."""
    found = dict(ranges)
    before = -1
    while before != len(found):
        before = len(found)
        for node in (*graph.nodes, *reversed(graph.nodes)):
            if not (node.op.moves_data and node.op.shares_scale):
                continue
            read, made = passed_on(graph, node), [o for o in node.outputs if o]
            held = [found[v] for v in read if v in found]
            if held and len(held) == len(read):
                span = min(low for low, _ in held), max(high for _, high in held)
                found.update({v: span for v in made if v not in found})
            elif len(read) == 1 and len(made) == 1 and made[0] in found:
                found[read[0]] = found[made[0]]
    return found
