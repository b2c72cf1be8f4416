"""The [calibrate] table: a threshold method for every tensor, others where the recipe says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Fault
from npuflow.engine.calibrate.statistics import Statistics
from npuflow.engine.place import op_name
from npuflow.engine.quantize.config import Quantize, activation_grid, check_scheme
from npuflow.engine.quantize.names import answers, stated, unknown_layers
from npuflow.hw.target import Numerics
from npuflow.ir.contracts import CALIBRATORS, Calibrator
from npuflow.ir.graph import Graph

Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Layer(Config):
    """Another method for some tensors, or a range written by hand."""

    layers: tuple[str, ...]               # value or node names, operator names, or patterns: of what they write
    method: Annotated[str, CALIBRATORS] = "minmax"
    range: tuple[float, float] | None = None

    def check(self) -> Iterable[Fault]:
        if self.range is not None and not self.range[0] < self.range[1]:
            yield Fault("range", f"the range {list(self.range)} holds no numbers", hint="lowest first, then highest")


@dataclass(frozen=True)
class Calibrate(Config):
    """The threshold method, and exceptions (later ones win)."""

    method: Annotated[str, CALIBRATORS] = "mse"
    layers: tuple[Layer, ...] = ()


@dataclass(frozen=True)
class Thresholds:
    """Range and method of every tensor; notes on what a user should look at."""

    ranges: Mapping[str, tuple[float, float]]
    methods: Mapping[str, str]
    notes: tuple[str, ...] = ()


def thresholds(
    graph: Graph, statistics: Statistics, calibrate: Calibrate, quantize: Quantize, numerics: Numerics
) -> Thresholds:
    """A range for every tensor that has statistics."""
    ranges: Ranges = {}
    methods: dict[str, str] = {}
    notes: list[str] = []
    default = made(calibrate, calibrate.method)
    producer = graph.producer()
    used = [False] * len(calibrate.layers)
    check_scheme(quantize, numerics)
    unknown_layers(graph, [*stated("calibrate.layers", calibrate.layers), *stated("quantize.overrides", quantize.overrides)])
    for name in statistics.names:
        tensor = statistics[name]
        node = producer.get(name)
        names = (name, *node.origin) if node is not None else (name,)
        op = op_name(node) if node is not None else "input"
        method, chosen, fixed = default, calibrate.method, None
        for i, layer in enumerate(calibrate.layers):
            if answers(layer.layers, names, op):
                method, chosen, fixed, used[i] = made(layer, layer.method), layer.method, layer.range, True
        if tensor.count == 0:
            raise DataError(
                "no calibration sample has a finite value here", hint="look for NaN or infinity in the float model"
            ).at(value=name)
        if tensor.totals[1:].any():
            nan, up, down = (int(n) for n in tensor.totals[1:])
            notes.append(f"{name}: {nan} NaN, {up} +inf and {down} -inf of {int(tensor.totals[0])} values are left out")
        bits = _bits(quantize, names, op)
        ranges[name] = fixed or method(tensor, activation_grid(quantize.activations, numerics, bits))
        methods[name] = "by hand" if fixed else chosen
    for layer, hit in zip(calibrate.layers, used, strict=True):
        if not hit:
            notes.append(f"[calibrate] layers {', '.join(layer.layers)}: no tensor of the NPU has such a name")
    return Thresholds(ranges, methods, tuple(notes))


def made(table: Calibrate | Layer, name: str) -> Calibrator:
    """The method with the options that the table gives it."""
    options: Calibrator | None = table.options
    return options if options is not None else CALIBRATORS[name]()


def _bits(quantize: Quantize, names: tuple[str, ...], op: str) -> int | None:
    """Width of what a layer writes, if an exception of the recipe changes it."""
    rules = [rule.bits for rule in quantize.matching(names, op) if rule.bits]
    return rules[-1] if rules else None
