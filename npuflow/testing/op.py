"""The operator suite: what every operator, also a plug-in's, must satisfy. Each check raises
AssertionError with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.hw.numerics import dequantize, quantize
from npuflow.hw.target import Memory, Numerics, Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, OpContext, OpSample
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array, TensorType, Value
from npuflow.ir.unroll import written_out
from npuflow.onnx.export import export_model
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import host_session, interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.sim.hazards import hazards_of
from npuflow.testing.quantised import quantize_graph


@dataclass(frozen=True)
class Case:
    """A sample as a graph of one node, with the data of its activations."""

    graph: Graph
    inputs: dict[str, Array]
    sample: OpSample

    @property
    def node(self) -> Node:
        return self.graph.nodes[0]


def samples(name: str, seed: int = 0) -> list[OpSample]:
    """The operator's own samples, always the same for a seed."""
    return list(OPS[name].samples(np.random.default_rng(seed)))


def case(sample: OpSample) -> Case:
    """Inputs are called i0, i1, ...; outputs y0, y1, ..."""
    values: dict[str, Value] = {}
    consts: dict[str, Array] = {}
    fed: dict[str, Array] = {}
    names = []
    for i, array in enumerate(sample.inputs):
        names.append("" if array is None else f"i{i}")
        if array is None:
            continue
        if i in sample.constant:
            values[f"i{i}"], found = constant(f"i{i}", array)
            consts.update(found)
        else:
            values[f"i{i}"] = Value(f"i{i}", TensorType(array.shape, array.dtype.name))
            fed[f"i{i}"] = array
    kinds = [None if a is None else TensorType(a.shape, a.dtype.name) for a in sample.inputs]
    outputs = []
    for k, kind in enumerate(sample.op.infer(*kinds)):
        outputs.append(f"y{k}")
        values[f"y{k}"] = Value(f"y{k}", kind)
    node = Node(sample.op, tuple(names), tuple(outputs), ("node",))
    graph = Graph(tuple(fed), tuple(outputs), (node,), MappingProxyType(values), MappingProxyType(consts))
    return Case(graph, fed, sample)


def check_infer(sample: OpSample) -> None:
    """`infer` states the shapes and dtypes that `reference` yields."""
    kinds = [None if a is None else TensorType(a.shape, a.dtype.name) for a in sample.inputs]
    stated, made = sample.op.infer(*kinds), sample.op.clipped(*sample.inputs)
    assert len(stated) == len(made), f"{sample.op}: {len(stated)} outputs stated, {len(made)} made"
    for kind, array in zip(stated, made, strict=True):
        made_kind = TensorType(array.shape, array.dtype.name)
        assert kind == made_kind, f"{sample.op}: {kind} stated, {made_kind} made"


def check_onnx(sample: OpSample, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """`reference` with its clip computes what onnxruntime computes of `to_onnx`."""
    one = case(sample)
    session = host_session(export_model(one.graph))
    found = session.run(list(one.graph.outputs), one.inputs)
    for array, expected in zip(sample.op.clipped(*sample.inputs), found, strict=True):
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol, err_msg=str(sample.op))


def quantised(sample: OpSample, numerics: Numerics, config: Quantize) -> tuple[Graph, Case]:
    """The quantised graph of a sample, with ranges from its own data."""
    one = case(sample)
    results = sample.op.clipped(*sample.inputs)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in one.inputs.items()}
    ranges.update({f"y{k}": (float(a.min()), float(a.max())) for k, a in enumerate(results)})
    done = quantize_graph(one.graph, lambda _: True, ranges, replace(config, on_refusal="error"), numerics)
    return done.graph, one


def check_integer(sample: OpSample, numerics: Numerics, config: Quantize) -> int:
    """`integer` stays within the declared codes of the float reference on dequantised
    data; returns the distance."""
    graph, one = quantised(sample, numerics, config)
    kept = interpret(graph, one.inputs, numerics, keep=lambda _: True)
    worst = 0
    for node in graph.nodes:
        if node.is_integer:
            found, slack = distance(graph, node, kept), coarseness(graph.site(node), numerics)
            # Rounding to nearest is half a code off, and so is the reference; truncation is one code off.
            allowed = sample.lsb + floor(slack + (0.5 if numerics.rounding == "truncate" else 0.0))
            assert found <= allowed, (
                f"{sample.op}: {found} codes from the float reference, {allowed} declared"
            )
            worst = max(worst, found)
    return worst


def coarseness(site: OpContext, numerics: Numerics) -> float:
    """By how many codes a node's multipliers, each rounded to a whole number, can move a
    result that is not clamped."""
    held = [
        np.asarray(site.params[n]).astype(np.int64)
        for n in ("multiplier", "multipliers", "negative")
        if n in site.params
    ]
    if "scales" in site.params and site.params.get("multiplier") == 1:
        return 0.5 * group_sums(site) * 2.0 ** -site.param("shift")
    exact = numerics.multiplier_bits == 1 and all((m <= 1).all() for m in held)
    if exact or not site.params.keys() & {"shift", "multiplier"}:
        # powers of two are exact; without multipliers there is nothing to round
        return 0.0
    # of a sum: what both operands can be, each times half a unit
    if "a_multiplier" in site.params:
        peaks = sum(
            max(abs(c - q.zero_point[0]) for c in (q.lo, q.hi)) for q in (site.quant(0), site.quant(1))
        )
        return 0.5 * peaks * 2.0 ** -site.param("shift")
    y, bounds = (
        site.out_quant,
        [np.asarray(site.params[n]) for n in ("lo", "los", "hi", "his") if n in site.params],
    )
    widest = max(
        (float(np.abs(b.astype(np.int64) - y.zero_point[0]).max()) for b in bounds),
        default=float(y.hi - y.lo),
    )
    least = min(int(m[m > 0].min()) for m in held)
    return 0.5 * widest / least


def group_sums(site: OpContext) -> float:
    """What the sums of a layer's groups can be in all, each of which has a multiplier of its own: they may
    cancel, so that the range of the results says nothing of them."""
    x, quant, codes = site.quant(0), site.quant(1), site.consts[1]
    assert codes is not None and quant.axis is not None
    widest = max(abs(end - x.zero_point[0]) for end in (x.lo, x.hi))
    held = np.abs(codes.astype(np.int64) - quant.spread(codes.shape)[1])
    return widest * float(held.sum(tuple(k for k in range(held.ndim) if k != quant.axis)).max())


def distance(graph: Graph, node: Node, kept: Mapping[str, Array]) -> int:
    """Codes between an integer node's outputs and its float reference on the same, dequantised, inputs."""
    real: list[Array | None] = []
    for value_id in node.inputs:
        stored = graph.const(value_id) if value_id else None
        array = None if not value_id else stored if stored is not None else kept[value_id]
        quant = graph.values[value_id].quant if value_id else None
        if array is not None and quant is not None:
            array = dequantize(array, *quant.spread(array.shape)).astype(np.float64)
        real.append(array)
    worst = 0
    for value_id, expected in zip(node.outputs, node.op.clipped(*real), strict=True):
        quant = graph.values[value_id].quant if value_id else None
        if quant is not None:
            assert kept[value_id].dtype.name == quant.dtype, (
                f"{node.op}: {kept[value_id].dtype} instead of {quant.dtype}"
            )
            codes = quantize(expected, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi)
            worst = max(worst, _distance(codes, kept[value_id]))
    return worst


def check_tiles(sample: OpSample, target: Target, config: Quantize) -> None:
    """Tiled for the target, generated, encoded and simulated, every integer tensor equals
    the specification bit for bit."""
    graph, one = quantised(sample, target.numerics, config)
    check_program(graph, one.inputs, target, str(sample.op))


def check_program(graph: Graph, inputs: Mapping[str, Array], target: Target, what: str) -> None:
    """The program of a quantised graph has no hazards and makes the interpreter's integers."""
    looped, graph = graph, written_out(graph)
    plan = plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics)
    program = Program.from_bytes(generate(graph, plan, target).to_bytes())
    hazards = hazards_of(program, order_of(program))
    assert not hazards, f"{what}: {hazards[0]}"
    expected = interpret(graph, inputs, target.numerics, keep=lambda _: True)
    if looped is not graph:
        for name, array in interpret(looped, inputs, target.numerics).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=f"{what} {name} as a loop")
    found = ProgramRunner(program).run(inputs, dump=True)
    made = [o for n in graph.nodes if n.is_integer for o in n.outputs if o]
    for value_id in made:
        if value_id in found:            # inside a fused group there is nothing to look at
            np.testing.assert_array_equal(found[value_id], expected[value_id], err_msg=f"{what} {value_id}")
    assert any(v in found for v in made), f"{what}: nothing to compare"


def check_text(sample: OpSample, numerics: Numerics, config: Quantize) -> None:
    """The quantised graph survives its text form."""
    graph, _ = quantised(sample, numerics, config)
    assert from_text(to_text(graph), graph.consts) == graph, f"{sample.op}: text round trip"


def _distance(expected: npt.NDArray[np.int64], found: Array) -> int:
    return int(np.abs(expected - found.astype(np.int64)).max(initial=0))


class OpSuite:
    """Derive a test class and set `name` to the operator's file name; pytest then runs
    every check on every sample."""

    name: str
    target: Target = Target(memory=Memory(local_bytes=16384, local_align=16, burst=16))
    schemes: Iterable[Quantize] = (Quantize(),)

    def test_infer(self) -> None:
        for sample in samples(self.name):
            check_infer(sample)

    def test_onnx(self) -> None:
        for sample in samples(self.name):
            check_onnx(sample)

    def test_integer(self) -> None:
        for scheme in self.schemes:
            for sample in samples(self.name):
                check_integer(sample, self.target.numerics, scheme)

    def test_text(self) -> None:
        for scheme in self.schemes:
            for sample in samples(self.name):
                check_text(sample, self.target.numerics, scheme)

    def test_tiles(self) -> None:
        for scheme in self.schemes:
            for sample in samples(self.name):
                check_tiles(sample, self.target, scheme)
