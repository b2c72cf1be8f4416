"""Empirical bias correction: what quantisation adds to the mean of a layer's output is
taken out of the layer's bias.

Source: M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-free quantization through weight
equalization and bias correction", 2019, section 4.2 and appendix D (the empirical form). Layers are corrected
in topological order, each on inputs that the corrected layers before it made: shifts found side by side would
count what one layer does in all that follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Param
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, QuantType, TensorType, Value
from npuflow.onnx.export import unclipped
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.place.partition import is_npu
from npuflow.quantise.scales import MANY
from npuflow.quantise.weights import coded_bias
from npuflow.run.floats import FloatRun
from npuflow.run.walk import SampleWalk
from npuflow.tune.error import noise, output_error, outputs_of
from npuflow.tune.improve import CLOSER, Acceptance, Proposal, Trial, improve

Real = npt.NDArray[np.float64]
Feed = Mapping[str, Array]


@dataclass(frozen=True)
class BiasCorrection:
    """The graph with the corrections that were kept, and what each did; the last
    trial is that of all together."""

    graph: Graph
    trials: tuple[Trial, ...]


def correct_biases(
    real: Graph,
    graph: Graph,
    numerics: Numerics,
    fit: Sequence[Feed],
    held: Sequence[Feed],
    rule: Acceptance = CLOSER,
) -> BiasCorrection:
    """Correct the biases of a quantised graph. `real`: the float graph it was made of; `fit`: samples that
    the shifts are taken from; `held`: others, on which `rule` asks for less error of each correction, at the
    layer's own output, and of all together.
    """
    places = {o: i for i, n in enumerate(real.nodes) for o in n.outputs if o}
    shared = Counter(node.inputs[1] for node in graph.nodes if takes_bias(graph, node))
    layers = [
        (at, name)
        for at, name in biased(graph, originals(real, graph))
        # the steps of a recurrent layer keep equal constants, which are loaded once
        if shared[graph.nodes[at].inputs[1]] < MANY
    ]
    if not layers:
        return BiasCorrection(graph, ())
    wanted = mean_outputs(real, [name for _, name in layers], fit)
    floats, walk = SampleWalk(real, held), SampleWalk(graph, [*held, *fit])

    def moved(at: int, name: str, now: Graph) -> Proposal[Graph] | Sequence[Trial]:
        node, walk.graph = now.nodes[at], now
        walk.to(at)
        if places[name] >= floats.at:
            floats.to(places[name] + 1, keep=(name,))
        fed = walk.values[node.inputs[0]][len(held) :]
        delta = wanted[name] - mean_output(now, node, walk.real(node.inputs[0], fed))
        return _moved(walk, at, delta, floats.values[name], numerics, rule)

    made, trials = improve(graph, (partial(moved, at, name) for at, name in layers))
    truth = outputs_of(real, held)
    whole = Proposal("bias", made, rule=rule)
    done, last = improve(graph, [whole], lambda one: output_error(truth, outputs_of(one, held)))
    return BiasCorrection(done, (*trials, *last))


def _moved(
    walk: SampleWalk, at: int, delta: Real, truth: Sequence[Array], numerics: Numerics, rule: Acceptance
) -> Proposal[Graph] | Sequence[Trial]:
    """The layer `at` with its bias moved by `delta`, and what that does on the
    held-out samples, which come first."""
    node = walk.graph.nodes[at]
    out = node.outputs[0]
    step = walk.graph.values[out].quant
    assert step is not None
    size = float(np.abs(delta).max() / step.scale[0])
    try:
        better = shifted(walk.graph, at, delta, numerics)
    except TargetError as error:
        return [Trial("bias", node.name, None, None, False, size, str(error.message))]

    def wrong(graph: Graph) -> float:
        codes = walk.ahead(at + 1, (out,), graph, slice(0, len(truth)))[out]
        return noise(truth, walk.real(out, codes))

    return Proposal("bias", better, node.name, size, rule, (wrong(walk.graph), wrong(better)))


def originals(real: Graph, graph: Graph) -> dict[str, str]:
    """Value of the quantised graph -> the float graph's value that it stands for (outputs change names)."""
    named = {v: v for v in graph.values if v in real.values and graph.values[v].quant is not None}
    for name, node in real.producer().items():
        # integer outputs of a half or double network
        if name in named and kind(node) == "host:cast":
            named[name] = node.inputs[0]
    for node in graph.nodes:
        out = node.outputs[0]
        if node.op.makes == "floats" and out in real.values and graph.values[out].quant is None:
            named[node.inputs[0]] = out
    return named


def biased(graph: Graph, named: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Integer nodes with a constant weight and a place for a bias: their index, and
    their output in the float graph."""
    for i, node in enumerate(graph.nodes):
        if not is_npu(node) or node.outputs[0] not in named or graph.values[node.outputs[0]].number:
            continue
        if takes_bias(graph, node):
            yield i, named[node.outputs[0]]


def takes_bias(graph: Graph, node: Node) -> bool:
    """Whether a bias is or may be the third input."""
    return len(node.inputs) > 1 and node.op.role(1) == "weight" and graph.const(node.inputs[1]) is not None \
        and node.op.role(2) == "bias"


def mean_output(graph: Graph, node: Node, inputs: Sequence[Array]) -> Real:
    """Mean per channel of what a linear layer makes before its clip: the layer of the
    mean input, for it is linear."""
    total = np.zeros(inputs[0].shape)
    for array in inputs:
        total += array
    consts = [_real(graph, v) for v in node.inputs[1:]]
    (made,) = node.op.reference(total / len(inputs), *consts)
    return _by_channel(made)


def mean_outputs(graph: Graph, names: Sequence[str], feeds: Sequence[Feed]) -> dict[str, Real]:
    """The same for the outputs of many nodes of the float graph, from one pass over the samples."""
    if not names:
        return {}
    values, consts, nodes = dict(graph.values), dict(graph.consts), list(graph.nodes)
    makers = graph.producer()
    for name in names:
        kind = graph.type(name)
        source = name if makers[name].op.clip is None else unclipped(name)
        values[source] = Value(source, kind)
        axes, stored = constant(
            f"{name}:axes", np.array([d for d in range(len(kind.shape)) if d != 1], np.int64)
        )
        values[axes.id] = axes
        consts.update(stored)
        mean = Value(f"{name}:mean", TensorType((kind.shape[1],)))
        values[mean.id] = mean
        op = OPS["host"](
            op_type="ReduceMean", version=EXPORT_OPSET, attributes=(("keepdims", 0),), types=(mean.type,)
        )
        nodes.append(Node(op, (source, axes.id), (mean.id,)))
    means = tuple(f"{n}:mean" for n in names)
    found, held = MappingProxyType(values), MappingProxyType(consts)
    wider = Graph(graph.inputs, means, tuple(nodes), found, held, fed=graph.fed)
    network = FloatRun.of(wider, means, float_codes=True)
    sums = [np.zeros(graph.type(n).shape[1]) for n in names]
    for feed in feeds:
        for total, mean_found in zip(sums, network.run(feed).values(), strict=True):
            total += mean_found
    return {n: total / len(feeds) for n, total in zip(names, sums, strict=True)}


def _by_channel(array: Array) -> Real:
    axes = tuple(d for d in range(array.ndim) if d != 1)
    return np.asarray(array.astype(np.float64).mean(axes))


def _real(graph: Graph, value_id: str) -> Array | None:
    """A constant as numbers."""
    stored = graph.const(value_id)
    if stored is None:
        return None
    quant = graph.values[value_id].quant
    return stored if quant is None else decode(stored, quant)


def shifted(graph: Graph, at: int, delta: Real, numerics: Numerics) -> Graph:
    """The graph with `delta` (per channel, in real units) added to what node `at` adds to its sums."""
    node = graph.nodes[at]
    site = graph.site(node)
    gain = node.op.bias_factor()
    old = _real(graph, node.inputs[2]) if site.present(2) else None
    total = (np.zeros_like(delta) if old is None else np.asarray(old, np.float64)) + delta / gain
    padded = replace(site, consts=(*site.consts[:2], total))
    weight = site.consts[1]
    assert weight is not None
    types = (site.quant(0), site.out_quant, site.quant(1))
    codes, quant = coded_bias(padded, 2, *types, weight, numerics)
    return rebiased(graph, at, codes, quant, numerics)


def rebiased(graph: Graph, at: int, codes: Array, quant: QuantType | None, numerics: Numerics) -> Graph:
    """The graph with another bias of node `at`."""
    node, values, consts = graph.nodes[at], dict(graph.values), dict(graph.consts)
    name = f"{node.outputs[0]}:bias"
    values[name], stored = constant(name, codes, quant)
    consts.update(stored)
    moved = replace(node, inputs=(*node.inputs[:2], name), params=())
    bare = Graph((), (), (), values, consts)
    found: list[tuple[str, Param]] = []
    for key, value in sorted(forms.prepared(bare.site(moved), numerics).items()):
        if isinstance(value, int | np.integer):
            found.append((key, int(value)))
            continue
        _, stored = constant("", value)
        consts.update(stored)
        found.append((key, next(iter(stored))))
    nodes = (*graph.nodes[:at], replace(moved, params=tuple(found)), *graph.nodes[at + 1 :])
    return graph.replaced(nodes=nodes, values=MappingProxyType(values), consts=MappingProxyType(consts))
