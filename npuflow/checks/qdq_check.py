"""Program and exported QDQ model beside each other: equal codes, and whether they
part by rounding or by a bias.

The QDQ model runs twice: on its own, and fed the program's codes layer by layer. On its own a
half-way value that float32 rounds to the other side may change whatever comes after it; fed, a layer
shows nothing but what is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.wording import first_line
from npuflow.compare.difference import unequal
from npuflow.hw.target import Numerics, Rounding
from npuflow.ir.graph import Graph
from npuflow.ir.loops import inside, steps_of
from npuflow.ir.noise import SignalToNoise
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array, QuantType, TensorType
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.run import CannotRunError
from npuflow.onnx.serialised import serialised
from npuflow.onnx.types import value_info
from npuflow.run.floats import plain_session
from npuflow.run.qdq import to_qdq
from npuflow.whole.execute.executor import Executor

if TYPE_CHECKING:
    import onnx

# of a tensor's range of codes: what float32 leaves of a sum of products
FLOAT = 2.0**-19
WIDEST = 0.25                             # of a code: beyond this nothing counts as half-way
BIAS = 0.05                               # of a code, on average over a tensor
SURE = 4.0                                # standard deviations of as many coins thrown
SPREAD = 0.5                              # of a code, root mean square
FINE = 4096                               # codes of a type from which on both grow with their number


@dataclass(frozen=True)
class TensorParting:
    """One tensor, program and QDQ model. `different`, `sqnr` (dB, None: no error): the model on its own. The
    rest: each of its layers fed the program's codes. `rounding`: differences of values that lie half-way
    between two codes, or that the target rounds in another way than ONNX; `mean`: signed, in codes, QDQ minus
    program; `beyond` and `rms`: mean and root mean square of the differences that are not rounding; `sure`:
    the former's sign in standard deviations.
    """

    layer: str
    elements: int
    different: int
    sqnr: float | None
    levels: int = 0                       # codes of the type, 0: floats
    fed_different: int = 0
    rounding: int = 0
    mean: float = 0.0
    beyond: float = 0.0
    rms: float = 0.0
    sure: float = 0.0

    @property
    def room(self) -> float:
        """By how much more codes of a wide type may differ."""
        return max(1.0, self.levels / FINE)

    @property
    def biased(self) -> bool:
        """Whether the layer itself gives other codes, beyond what rounding and the
        integers' approximations leave."""
        return (abs(self.beyond) >= BIAS * self.room and self.sure >= SURE) or self.rms >= SPREAD * self.room


@dataclass
class _Sums:
    layer: str
    quant: QuantType | None
    count: int = 0
    different: int = 0
    compared: SignalToNoise = field(default_factory=SignalToNoise)
    fed: int = 0
    rounding: int = 0
    sum: int = 0
    up: int = 0
    down: int = 0
    beyond: int = 0
    squares: float = 0.0

    def alone(self, want: Array, found: Array) -> None:
        """What the model gives on its own."""
        zero = 0 if self.quant is None else self.quant.zero_point[0]
        self.count += want.size
        self.different += int(np.count_nonzero(unequal(want, found)))
        self.compared.add(*(array.astype(np.float64) - zero for array in (want, found)))

    def apart(self, want: Array, found: Array, real: Array, numerics: Numerics) -> None:
        """What its layer gives when it is fed the program's codes: codes that differ, and
        the floats that were rounded."""
        assert self.quant is not None
        step = found.astype(np.int64) - want.astype(np.int64)
        both = explained(real, want, self.quant, numerics) & explained(
            real, found, self.quant, numerics, ("half_even",)
        )
        rest = step[~both]
        self.fed += step.size
        self.sum += int(step.sum())
        self.rounding += step.size - rest.size
        self.up, self.down = self.up + int((rest > 0).sum()), self.down + int((rest < 0).sum())
        self.beyond += int(rest.sum())
        self.squares += float((rest.astype(np.float64) ** 2).sum())

    def result(self) -> TensorParting:
        count, sided = max(self.count, 1), self.up + self.down
        sqnr = self.compared.measured
        levels = 0 if self.quant is None else self.quant.hi - self.quant.lo + 1
        sure = abs(self.up - self.down) / sqrt(sided) if sided else 0.0
        means = self.sum / count, self.beyond / count, sqrt(self.squares / count)
        return TensorParting(
            self.layer, self.count, self.different, sqnr, levels, self.fed, self.rounding, *means, sure
        )


@dataclass
class QdqCheck:
    """Compares sample by sample; CannotRunError where onnxruntime does not run the model. `missing`: tensors
    of codes that it lacks. An output whose shape differs, as one that depends on data may, is left out.
    Values of a loop's body are compared stacked, in a model that shows them; what a loop makes is not judged
    fed, because its steps feed each other.
    """

    graph: Graph
    model: SessionModel
    numerics: Numerics
    sums: dict[str, _Sums] = field(default_factory=dict)
    samples: int = 0

    def __post_init__(self) -> None:
        graph, made = self.graph, rounded(self.model)
        layers = {o: node.name for node in graph.nodes for o in node.outputs if o}
        held = [o for o in layers if graph.values[o].quant is not None and graph.const(o) is None]
        coded = [o for o in held if not graph.values[o].number]        # floats are no codes that could part
        body, loops = steps_of(graph), inside(graph.nodes)
        looped = {o for i in loops for o in graph.nodes[i].outputs}
        self.codes = [o for o in coded if o in made]
        self.judged = [o for o in self.codes if o not in looped]
        self.missing = tuple(o for o in coded if o not in made and o not in body)
        shown = list(dict.fromkeys([*(o for o in coded if o in made or o in body), *graph.outputs]))
        self.sums = {
            o: _Sums(layers.get(o, o), graph.values[o].quant) for o in shown if graph.const(o) is None
        }
        kinds = {o: TensorType(graph.type(o).shape, graph.values[o].dtype) for o in self.codes}
        fed, self.own, self.floats = forced(self.model, kinds)
        self.alone = _session(
            to_qdq(graph, shown=tuple(self.sums)).model if loops else showing(self.model, self.sums)
        )
        # nothing to fuse between tensors that are all shown
        self.fed = _session(fed, optimised=False)
        self.executor = Executor(graph, self.numerics, 1)
        # where a division became m / 2^n on a target whose scales need no multiplier
        self.means = {
            node.outputs[0] for node in graph.nodes if node.is_integer and _multiplier(graph.site(node)) > 1
        } if self.numerics.multiplier_bits == 1 else set()

    def add(self, feed: Mapping[str, Array]) -> None:
        """One sample."""
        self.samples += 1
        want = self.executor.run(feed, keep=lambda _: True)
        names = list(self.sums)
        inputs = {i: want[i] for i in self.graph.inputs}
        for name, found in zip(names, _run(self.alone, names, inputs), strict=True):
            if found.dtype.kind in "iubf" and found.shape == want[name].shape:
                self.sums[name].alone(want[name], found)
        given = {i.name: want[i.name] for i in self.fed.get_inputs()}
        own = dict(zip(self.judged, _run(self.fed, [self.own[o] for o in self.judged], given), strict=True))
        wrong = {o: own[o] != want[o] for o in self.judged}
        some = [o for o in self.judged if wrong[o].any()]
        floats = _run(self.fed, [self.floats[o] for o in some], given) if some else []
        for name, real in zip(some, floats, strict=True):
            at = wrong[name]
            numerics = self.numerics.of_means if name in self.means else self.numerics
            self.sums[name].apart(want[name][at], own[name][at], real[at], numerics)

    @property
    def compared(self) -> int:
        """Codes so far."""
        return sum(self.sums[name].count for name in self.codes)

    def result(self) -> dict[str, TensorParting]:
        return {name: sums.result() for name, sums in self.sums.items() if sums.count}


def runs(model: SessionModel) -> bool:
    """Whether onnxruntime loads the exported model as it is."""
    try:
        _session(model)
    except CannotRunError:
        return False
    return True


def _session(model: SessionModel, *, optimised: bool = True) -> Any:
    try:
        return plain_session(model, optimised=optimised)
    except Exception as fault:  # onnxruntime's errors share no public base class
        raise CannotRunError(first_line(fault)) from fault


def _multiplier(site: OpContext) -> int:
    """The largest one that a node has."""
    held = [np.asarray(site.params[n]) for n in ("multiplier", "multipliers") if n in site.params]
    return max((int(m.max()) for m in held), default=1)


def _run(
    session: Any, names: Sequence[str], feed: Mapping[str, Array]
) -> list[Array]:
    try:
        return [np.asarray(array) for array in session.run(list(names), dict(feed))] if names else []
    except Exception as fault:  # as above
        raise CannotRunError(first_line(fault)) from fault


def parted(
    graph: Graph, model: SessionModel, numerics: Numerics, feeds: Iterable[Mapping[str, Array]]
) -> dict[str, TensorParting]:
    """Every tensor of codes and every output of the quantised graph, and what the
    exported model makes of it."""
    check = QdqCheck(graph, model, numerics)
    for feed in feeds:
        check.add(feed)
    return check.result()


def explained(
    real: Array, codes: Array, quant: QuantType, numerics: Numerics, ways: Sequence[Rounding] = ()
) -> Array:
    """Whether rounding the real numbers in one of these ways gives the codes, or would within
    float32's error and that of the target's multipliers. Without `ways`: to the nearest, as at the
    boundary, or as the target rounds.
    """
    levels = quant.hi - quant.lo + 1
    coarse = 2.0 ** -(numerics.multiplier_bits + 1) if numerics.multiplier_bits > 1 else 0.0
    slack = min(WIDEST, levels * (FLOAT + coarse))
    steps = np.nan_to_num(real.astype(np.float64) / quant.scale[0], nan=0.0, posinf=1e18, neginf=-1e18)
    found = np.zeros(codes.shape, bool)
    for moved in (steps, steps - slack, steps + slack):
        for way in ways or {"half_even", numerics.rounding}:
            found |= np.clip(_round(moved, way) + quant.zero_point[0], quant.lo, quant.hi) == codes
    return found & ~np.isnan(real)


def _round(steps: Array, way: Rounding) -> Array:
    if way == "truncate":
        return np.trunc(steps)
    if way == "half_up":
        return np.floor(steps + 0.5)
    if way == "half_away":
        return np.sign(steps) * np.floor(np.abs(steps) + 0.5)
    return np.rint(steps)


def rounded(model: SessionModel) -> dict[str, str]:
    """Every tensor of codes that the model computes, in its order -> the float
    tensor that is rounded to them."""
    return {n.output[0]: n.input[0] for n in _read(model).graph.node if n.op_type == "QuantizeLinear"}


def showing(model: SessionModel, tensors: Iterable[str]) -> SessionModel:
    """The model with these tensors as its outputs; onnxruntime infers what they are."""
    proto = _read(model)
    _show(proto.graph, tensors)
    return _changed(model, proto)


def forced(
    model: SessionModel, kinds: Mapping[str, TensorType]
) -> tuple[SessionModel, dict[str, str], dict[str, str]]:
    """The model with these tensors of codes as inputs: whatever reads one is fed from outside, so that no
    layer sees what another has computed. Also, by tensor, the name of the model's own codes and that of the
    floats rounded to them, which are the outputs.
    """
    proto = _read(model)
    names = {name for node in proto.graph.node for name in (*node.input, *node.output)}
    own: dict[str, str] = {}
    floats: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in kinds:
            name = node.output[0]
            floats[name], own[name] = node.input[0], _unused(f"{name}:own", names)
            node.output[0] = own[name]
    read = {name for node in proto.graph.node for name in node.input}
    proto.graph.input.extend(value_info(name, kinds[name]) for name in own if name in read)
    _show(proto.graph, dict.fromkeys([*own.values(), *floats.values()]))
    return _changed(model, proto), own, floats


def _read(model: SessionModel) -> onnx.ModelProto:
    import onnx

    return onnx.load_model_from_string(model if isinstance(model, bytes) else model.proto)


def _changed(model: SessionModel, proto: onnx.ModelProto) -> SessionModel:
    """The model with other nodes and ends, and with its constants."""
    data = serialised(proto)
    return data if isinstance(model, bytes) else replace(model, proto=data)


def _show(graph: onnx.GraphProto, tensors: Iterable[str]) -> None:
    import onnx

    known = {value.name: value for value in (*graph.output, *graph.input)}
    kept = [known.get(name) or onnx.ValueInfoProto(name=name) for name in tensors]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del graph.output[:]
    graph.output.extend(copies)


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "'"
    names.add(name)
    return name
