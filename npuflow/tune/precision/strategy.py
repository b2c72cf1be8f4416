"""The whole strategy of a build, layer by layer and tensor by tensor, as a part of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npuflow.base.tables_write import document
from npuflow.base.tables_write import value as toml
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import FLOATS, Override, Quantize
from npuflow.quantise.scales import activation_inputs
from npuflow.tune.bias import originals
from npuflow.tune.precision.widened import override_text
from npuflow.tune.rounding.config import RoundTable

Ranges = Mapping[str, tuple[float, float]]


def strategy_text(
    real: Graph, graph: Graph, quantize: Quantize, ranges: Ranges, rounding: RoundTable
) -> str:
    """`real`: the float graph; `graph`: the quantised one; `quantize`: with all exceptions, those that were
    chosen included; `ranges`: of every tensor that has one."""
    parts = [
        "# Everything that a build chose, layer by layer. A recipe reads it with extends.",
        '[precision]\nstrategy = "none"\n',
        '[calibrate]\nmethod = "minmax"\n',
        "\n".join(line for line in document([(rounding, "round")]) if not line.startswith("#")) + "\n",
        *(
            f"[[calibrate.layers]]\nlayers = {toml([name])}\nrange = {toml([float(lo), float(hi)])}\n"
            for name, (lo, hi) in ranges.items()
            if lo < hi
        ),
        override_text(list(layer_overrides(real, graph, quantize))),
    ]
    return "\n".join(parts)


def layer_overrides(real: Graph, graph: Graph, quantize: Quantize) -> Iterator[Override]:
    """What every layer of the NPU has, and which were left in float, in the order of the network."""
    types = {name: graph.values[value].quant for value, name in originals(real, graph).items()}
    for node in graph.nodes:
        if node.op.makes == "codes" and node.inputs[0] in real.inputs:
            types[node.inputs[0]] = graph.values[node.outputs[0]].quant
    types.update({name: graph.values[name].quant for name in real.inputs if graph.values[name].quant})
    bits = {name: quant.bits for name, quant in types.items() if quant is not None}
    for node in real.nodes:
        one = _of(real, node, quantize, bits)
        if one is not None:
            yield one


def _of(real: Graph, node: Node, quantize: Quantize, bits: Mapping[str, int]) -> Override | None:
    names, op = names_of(node), op_name(node)
    layers = tuple(o for o in node.outputs if o)
    if any(rule.float for rule in quantize.matching(names, op)):
        return Override(layers, float=True)
    own = next((bits[o] for o in layers if o in bits), None)
    if own is None:
        return None
    number = quantize.number(names, op)
    if number:
        return Override(layers).with_(type=next(name for name, kind in FLOATS.items() if kind == number))
    given = {bits[v] for _, v in activation_inputs(real, node) if v in real.inputs and v in bits}
    writes = quantize.activations_of(names, op)
    one = Override(
        layers, bits=own, input_bits=max(given) if given else None, symmetric=writes.symmetric,
        signed=writes.signed, narrow=writes.narrow or None,
    )
    consts = (i for i, v in enumerate(node.inputs) if v and real.const(v) is not None)
    if not any(node.op.role(i) == "weight" for i in consts):
        return one
    weights = quantize.weights_of(names, op)
    return one.with_(
        weight_bits=weights.bits, weight_per=weights.per, weight_group=weights.group or None,
        weight_symmetric=weights.symmetric, weight_narrow=weights.narrow or None,
        weight_signed=weights.signed, weight_method=weights.method,
    )
