"""A Caffe network as a graph: every layer by its converter, blobs that are changed in place as new values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.frontends import Bindings, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends.caffe.faults import damaged, refused_layers, without_weights
from npuflow.frontends.caffe.layers import LAYERS
from npuflow.frontends.caffe.network import CaffeOperatorError, CaffeWeightsError, Net
from npuflow.frontends.caffe.parse import CaffeNetwork
from npuflow.ir.types import TensorType
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.onnx.types import value_info

# Layers without a part in inference, besides all kinds of data and losses.
GONE = ("Dropout", "Silence", "Accuracy", "Split", "HDF5Output", "DetectionEvaluate")


def reading(network: CaffeNetwork, bindings: Bindings) -> Reading:
    """The network as a graph."""
    try:
        return _built(network, bindings)
    except NpuflowError:
        raise
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, ZeroDivisionError) as fault:
        raise damaged(f"{type(fault).__name__}: {fault}") from fault


def gone(kind: str) -> bool:
    """Whether a kind of layer has no part in inference."""
    return kind in GONE or kind.endswith(("Data", "Loss"))


def _reaching(network: CaffeNetwork, outputs: Sequence[str]) -> set[int]:
    """The layers that blobs depend on, by number: all where none or others than blobs are asked for."""
    if not outputs or not set(outputs) <= {top for layer in network.layers for top in layer.tops}:
        return set(range(len(network.layers)))
    wanted, found = set(outputs), set()
    for i, layer in reversed(list(enumerate(network.layers))):
        if wanted.intersection(layer.tops):
            wanted.update(layer.bottoms)
            found.add(i)
    return found


def _faults(network: CaffeNetwork, refused: Counter[str], bare: Sequence[str]) -> None:
    """One error of all layers that could not be converted."""
    message = because = hint = ""
    if bare:
        message, because, hint = without_weights(bare, network.weighted, network.path)
    if refused:
        raise refused_layers(refused, f"{message}: {because}" if bare else "")
    if bare:
        raise ModelError(f"{message}", because=because, hint=hint, code="NF-MODEL-397")


def _built(network: CaffeNetwork, bindings: Bindings) -> Reading:
    graph = NodeBuilder({"": EXPORT_OPSET})
    infos = [value_info(name, TensorType(shape)) for name, shape in network.inputs.items()]
    names = [*network.inputs, *(top for layer in network.layers for top in layer.tops)]
    fed, faults = ends.inputs(graph, infos, names, bindings)
    last = {top: i for i, layer in enumerate(network.layers) for top in layer.tops}
    net = Net(graph, {name: name for name in network.inputs}, last)
    refused: Counter[str] = Counter()
    bare: list[str] = []
    lost: set[str] = set()
    kept = _reaching(network, bindings.outputs)
    for i, layer in enumerate(network.layers):
        if i not in kept:
            continue
        if layer.kind not in LAYERS and not gone(layer.kind):
            refused[layer.kind] += 1
            lost.update(layer.tops)
            continue
        if lost.intersection(layer.bottoms):
            lost.update(layer.tops)
            continue
        missing = next((b for b in layer.bottoms if b not in net.values), None)
        if missing is not None and not gone(layer.kind):
            raise damaged(f'layer "{layer.name}" reads "{missing}", which no layer before it gives')
        if gone(layer.kind):
            if layer.bottoms and layer.kind in ("Dropout", "Split"):
                for top in layer.tops:
                    net.pass_on(layer.bottoms[0], top, i)
            continue
        net.begin(layer, i)
        try:
            LAYERS[layer.kind](net, layer)
        except CaffeOperatorError as fault:
            refused[f"{layer.kind}: {fault}"] += 1
            lost.update(layer.tops)
        except CaffeWeightsError:
            bare.append(layer.name)
            lost.update(layer.tops)
    _faults(network, refused, bare)
    read = {
        b for layer in network.layers for b in layer.bottoms if b not in layer.tops and not gone(layer.kind)
    }
    own = [
        top
        for top in dict.fromkeys(names)
        if top in net.values and top not in read and top not in network.inputs
    ]
    for top in own:
        if net.values[top] != top:
            graph.call("Identity", [net.values[top]], [top], top)
    wanted = ends.outputs(graph, own, fed, bindings, faults)
    return ends.reading(graph, fed, wanted, {})
