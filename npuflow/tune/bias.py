"""Empirical bias correction: what quantisation adds to the mean of a layer's output is
taken out of the layer's bias.

Source: M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-free quantization through weight
equalization and bias correction", 2019, section 4.2 and appendix D (the empirical form). Layers are corrected
in topological order, each on inputs that the corrected layers before it made: shifts found side by side would
count what one layer does in all that follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.base.processors import PROCESSORS
from npuflow.hw.numerics import SMALL_BYTES
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.loops import inside
from npuflow.ir.op import OPS, Node, Param
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType, TensorType, Value
from npuflow.onnx.export import unclipped
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.place.partition import is_npu
from npuflow.quantise.scales import MANY
from npuflow.quantise.weights import coded_bias
from npuflow.run.floats import FloatRun
from npuflow.tune.code_noise import coded_noise
from npuflow.tune.error import output_error, outputs_of
from npuflow.tune.improve import CLOSER, Acceptance, Proposal, Trial, improve
from npuflow.tune.walk import SampleWalk, pass_bytes

Real = npt.NDArray[np.float64]
Feed = Mapping[str, Array]
CODES_OF_INT32 = 1 << 15              # codes of 16 bits whose sum surely is one of 32
AT_ONCE = 1 << 16                     # numbers that become real together, and places whose columns are found


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
    means: Callable[[Graph, Sequence[str], Sequence[Feed]], Mapping[str, Real]] | None = None,
) -> BiasCorrection:
    """Correct the biases of a quantised graph. `real`: the float graph it was made of; `fit`: samples that
    the shifts are taken from; `held`: others, on which `rule` asks for less error of each correction, at the
    layer's own output, and of all together; `means`: in the place of `mean_outputs`, by who knows them.
    """
    places = {o: i for i, n in enumerate(real.nodes) for o in n.outputs if o}
    shared = Counter(node.inputs[1] for node in graph.nodes if takes_bias(graph, node))
    looped = inside(graph.nodes)
    layers = [
        (at, name)
        for at, name in biased(graph, originals(real, graph))
        # what a bias in a loop does to a step it does to all later ones; and the steps of a recurrent layer
        # keep equal constants, which are loaded once
        if at not in looped and shared[graph.nodes[at].inputs[1]] < MANY
    ]
    if not layers:
        return BiasCorrection(graph, ())
    wanted = (means or mean_outputs)(real, [name for _, name in layers], fit)
    floats, walk = SampleWalk(real, held), SampleWalk(graph, [*held, *fit])

    def moved(at: int, name: str, now: Graph) -> Proposal[Graph] | Sequence[Trial]:
        node, walk.graph = now.nodes[at], now
        walk.to(at)
        if places[name] >= floats.at:
            floats.to(places[name] + 1, keep=(name,))
        delta = wanted[name] - mean_output(now, node, _mean_read(walk, node.inputs[0], len(held)))
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
        return coded_noise(truth, codes, graph.values[out].quant)

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


def _mean_read(walk: SampleWalk, value_id: str, first: int) -> Real:
    """The mean of a value's numbers over the samples from `first` on."""
    arrays, quant = walk.values[value_id][first:], walk.graph.values[value_id].quant
    shape, count = arrays[0].shape, len(arrays)
    coded = quant is not None and not isinstance(quant, FloatType | GroupedType) and quant.per_tensor
    if quant is None or not coded or not arrays[0].flags.c_contiguous:
        total = np.zeros(shape)
        for array in walk.real(value_id, arrays):
            total += array
        return total / count
    # codes are added up as whole numbers: exact, and without an array of numbers for each sample
    fits = arrays[0].dtype.itemsize <= SMALL_BYTES and count < CODES_OF_INT32
    sums: Array = np.zeros(arrays[0].size, np.int32 if fits else np.int64)
    rows = [array.reshape(-1) for array in arrays]
    for start in range(0, sums.size, AT_ONCE):
        some = slice(start, start + AT_ONCE)
        for row in rows:
            sums[some] += row[some]
    return np.asarray(quant.scale[0] * (sums / count - quant.zero_point[0])).reshape(shape)


def mean_output(graph: Graph, node: Node, mean: Real) -> Real:
    """Mean per channel of what a linear layer makes of inputs, before its clip: the layer of the
    mean input, for it is linear."""
    weight, *bias = (_real(graph, v) for v in node.inputs[1:])
    places = node.op.places(graph.site(node)) if node.op.algebra == "convolution" else 0
    if weight is None or not places:
        (made,) = node.op.reference(mean, weight, *bias)
        return _by_channel(made)
    columns = _mean_columns(node, mean, places)
    rows = node.op.rows(weight.astype(np.float64)).reshape(len(columns), -1, columns.shape[1])
    found = np.matmul(rows, columns[:, :, None]).reshape(-1)
    return found if not bias or bias[0] is None else found + bias[0].astype(np.float64).reshape(-1)


def _mean_columns(node: Node, array: Array, places: int) -> Real:
    """[groups, terms]: the mean of the columns of a convolution's input over all places of its output."""
    batch, channels = array.shape[:2]
    plane = array.size // max(batch * channels, 1)
    counts: Real | None = None                # [taps, elements of a channel]: places whose column holds it
    for start in range(0, places, AT_ONCE):
        first = node.op.columns(array.shape, np.arange(start, min(start + AT_ONCE, places))).first
        image, place = np.divmod(first, channels * plane)
        at = np.where(first < 0, batch * plane, image * plane + place)      # padding: behind all
        some = np.array([np.bincount(tap, minlength=batch * plane + 1)[:-1] for tap in at.T], np.float64)
        counts = some if counts is None else counts + some
    rows = array.reshape(batch, channels, plane).swapaxes(0, 1).reshape(channels, -1)
    assert counts is not None
    return np.asarray((rows @ counts.T).reshape(node.op.column_groups(), -1) / places)


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
    network = FloatRun.of(wider, means)
    sums = [np.zeros(graph.type(n).shape[1]) for n in names]
    for found_means in PROCESSORS.all_of(network.run, feeds, pass_bytes(graph)):
        for total, mean_found in zip(sums, found_means.values(), strict=True):
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
