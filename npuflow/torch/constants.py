"""Constants of the graph as functions of the user's parameters.
The user's own by name, alone or with the batch normalisation behind them folded in; and parameters of their
own where neither explains the numbers.

Every tie is checked: with the weights as they are it gives the constant that the rewrites made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Array

CLOSE = 1e-4  # of a folded constant's largest number
TRAINED = ("weight", "bias", "table")  # roles of constants that are parameters, whoever made them


class ModuleConstant(torch.nn.Module):  # type: ignore[misc]
    """A constant that is a parameter, or stays as it is."""

    def __init__(self, array: Array, trained: bool) -> None:
        super().__init__()
        tensor = torch.from_numpy(np.array(array))
        if trained:
            self.value = torch.nn.Parameter(tensor)
        else:
            self.register_buffer("value", tensor, persistent=False)

    def forward(self, source: Any) -> Any:
        return self.value


class Tied(torch.nn.Module):  # type: ignore[misc]
    """A parameter or buffer of the user's module, transposed where the graph has it so."""

    def __init__(self, name: str, transposed: bool) -> None:
        super().__init__()
        self.name, self.transposed = name, transposed

    def forward(self, source: Any) -> Any:
        found = tensor(source, self.name)
        return found.t() if self.transposed else found


class BatchNorm:
    """The batch normalisation of the user's module behind a layer. While `frozen` is false, training moves
    its running statistics by those of the batches."""

    def __init__(self, node: Node, epsilon: float) -> None:
        self.gamma, self.beta, self.mean, self.variance = node.inputs[1:5]
        self.epsilon, self.momentum, self.frozen = epsilon, 0.1, False

    def factor(self, source: Any) -> Any:
        root = torch.sqrt(tensor(source, self.variance) + self.epsilon)
        return tensor(source, self.gamma) / root

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def observe(self, source: Any, y: Any) -> None:
        """Results of the layer, [samples, batch, channels, ...], before they are clipped or quantised: their
        moments are those of the layer without normalisation, scaled and moved."""
        if self.frozen:
            return
        gamma, beta = tensor(source, self.gamma), tensor(source, self.beta)
        mean, variance = tensor(source, self.mean), tensor(source, self.variance)
        known = gamma.abs() > 1e-6
        inverse = torch.where(known, 1.0 / self.factor(source), torch.zeros_like(gamma))
        middle, own = moments(y.flatten(0, 1))
        found, spread = (middle - beta) * inverse + mean, own * inverse**2
        mean += self.momentum * torch.where(known, found - mean, torch.zeros_like(mean))
        variance += self.momentum * torch.where(known, spread - variance, torch.zeros_like(variance))


def moments(y: Any) -> tuple[Any, Any]:
    """Mean and unbiased variance of every channel of [samples, channels, ...]: by the kernel of batch
    normalisation, which takes a tenth of the time of `var_mean` over axes that are not the last."""
    small, count = 1e-12, y.numel() // y.shape[1]
    _, mean, inverse = torch.native_batch_norm(y, None, None, None, None, True, 0.0, small)
    return mean, (inverse**-2 - small).clamp_(min=0.0) * (count / max(count - 1, 1))


class FoldedWeight(torch.nn.Module):  # type: ignore[misc]
    """A weight times what the batch normalisation behind it multiplies by. `axis`: of output channels."""

    def __init__(self, weight: str, norm: BatchNorm, axis: int, transposed: bool) -> None:
        super().__init__()
        self.weight, self.norm, self.axis, self.transposed = weight, norm, axis, transposed

    def forward(self, source: Any) -> Any:
        own = tensor(source, self.weight)
        own = own.t() if self.transposed else own
        return own * self.norm.factor(source).reshape([-1 if d == self.axis else 1 for d in range(own.dim())])


class FoldedBias(torch.nn.Module):  # type: ignore[misc]
    """What a batch normalisation makes of the bias before it. `bias`: "" where there is none."""

    def __init__(self, bias: str, norm: BatchNorm) -> None:
        super().__init__()
        self.bias, self.norm = bias, norm

    def forward(self, source: Any) -> Any:
        norm = self.norm
        own = tensor(source, self.bias) if self.bias else 0.0
        return (own - tensor(source, norm.mean)) * norm.factor(source) + tensor(source, norm.beta)


def tensor(source: Any, name: str) -> Any:
    """A parameter or buffer by its name."""
    path, _, last = name.rpartition(".")
    return getattr(source.get_submodule(path), last)


@dataclass(frozen=True)
class FoldedLayer:
    """A layer of the source graph with the batch normalisation behind it."""

    node: Node
    norm: BatchNorm


def folded_layers(graph: Graph, known: Mapping[str, Any]) -> dict[str, FoldedLayer]:
    """Layers with a batch normalisation behind them, by the name of its node."""
    makers = graph.producer()
    found = {}
    for node in graph.nodes:
        if kind(node) != "host:batchnormalization" or not all(name in known for name in node.inputs[1:5]):
            continue
        layer = makers.get(node.inputs[0])
        if layer is not None and len(layer.inputs) > 1 and layer.inputs[1] in known:
            attributes: Any = dict(getattr(node.op, "attributes", ()))
            norm = BatchNorm(node, float(attributes.get("epsilon", 1e-5)))
            found[node.name] = FoldedLayer(layer, norm)
    return found


def constants(graph: Graph, origin: Graph | None, source: Any) -> tuple[dict[str, Any], dict[str, BatchNorm]]:
    """For every float constant of the graph where its numbers come from, and the batch normalisations by the
    outputs of the nodes that they are folded into. `origin`: the graph before the rewrites, whose constants
    have the names of parameters; `source`: the user's module."""
    held = dict(source.state_dict()) if source is not None else {}
    layers = folded_layers(origin, held) if origin is not None else {}
    roles = {v: n.op.role(i) for n in graph.nodes for i, v in enumerate(n.inputs) if v}
    origins: dict[str, set[str]] = {}
    for node in graph.nodes:
        for value_id in node.inputs:
            origins.setdefault(value_id, set()).update(node.origin)
    made: dict[str, Any] = {}
    norms: dict[str, BatchNorm] = {}
    for node in graph.nodes:
        for layer in (layers[name] for name in node.origin if name in layers):
            found = dict(_folded(graph, node, layer, source))
            if found and not set(found) & set(made):
                made.update(found)
                norms[node.outputs[0]] = layer.norm
    for name, value in graph.values.items():
        array = graph.const(name)
        if array is None or name in made or value.type.dtype != "float32":
            continue
        tied = _tied(name, array, held, origins.get(name, set()))
        made[name] = tied or ModuleConstant(array, roles.get(name) in TRAINED)
    return made, norms


def _folded(graph: Graph, node: Node, layer: FoldedLayer, source: Any) -> Iterator[tuple[str, Any]]:
    """Weight and bias of a node from a layer and its batch normalisation, if they are that."""
    real = [graph.const(name) for name in node.inputs]
    if len(real) < 3 or real[1] is None or real[2] is None:
        return
    axis = node.op.channel_axis(graph.site(node), 1)
    if axis is None:
        return
    before = layer.node.inputs
    bias = FoldedBias(before[2] if len(before) > 2 else "", layer.norm)
    for transposed in (False, True):
        weight = FoldedWeight(before[1], layer.norm, axis, transposed)
        try:
            fits = all(_close(one(source), own) for one, own in ((weight, real[1]), (bias, real[2])))
        except (RuntimeError, AttributeError):
            continue
        if fits:
            yield node.inputs[1], weight
            yield node.inputs[2], bias
            return


def _close(made: Any, array: Array) -> bool:
    if tuple(made.shape) != array.shape:
        return False
    off = np.abs(made.detach().numpy() - array).max(initial=0.0)
    return bool(off <= CLOSE * np.abs(array).max(initial=1e-30))


def _tied(name: str, array: Array, held: Mapping[str, Any], origins: Collection[str]) -> Tied | None:
    """The parameter with these numbers: the one of that name, one of a module that the readers come from, or
    the only one. Numbers that are all alike say nothing of where they come from."""
    found: list[Tied] = []
    for other, value in held.items():
        one = value.detach()
        if one.dtype != torch.float32 or one.dim() == 0:
            continue
        for transposed in (False, True) if one.dim() == 2 else (False,):
            turned = one.t() if transposed else one
            if tuple(turned.shape) == array.shape and np.array_equal(turned.numpy(), array):
                found.append(Tied(other, transposed))
                break
    for one in found:
        if one.name == name or one.name.rpartition(".")[0] in origins:
            return one
    return found[0] if len(found) == 1 and np.ptp(array) > 0 else None
