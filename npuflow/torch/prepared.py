"""A network with fake quantisation of a target's integers: trained in real numbers, evaluated in integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from npuflow.base.errors import DataError, ModelError
from npuflow.gradients.fake_quantization import Quantizer, StraightRound, rounded
from npuflow.gradients.loops import walked
from npuflow.gradients.operators import clipped, computed, has_form
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array, FloatType, QuantType, Value
from npuflow.place.place import op_name
from npuflow.quantise.graph import Note, Quantization
from npuflow.rounders import RoundedWeight
from npuflow.torch.constants import BatchNorm, constants
from npuflow.torch.target_graph import TargetGraph, source_name
from npuflow.whole.execute.executor import Executor

BATCH = 32  # samples that the executor takes at once


class PreparedNetwork(torch.nn.Module):  # type: ignore[misc]
    """Inputs and outputs are those of the network, with any number of samples along a first dimension of one.

    `source`: a copy of the user's module, whose parameters are trained; None where the network came from a
    file. `activations`: quantisers by the first value that has the type; `weights`: by the id of the weight.
    `masks`: boolean tensors by the id of a weight, of what is kept of it.
    """

    def __init__(
        self, target: TargetGraph, source: Any = None, origin: Graph | None = None, learn_scales: bool = True
    ) -> None:
        super().__init__()
        self.target, self.source = target, source
        made, self.norms = constants(target.graph, origin, source)
        self.names = tuple(made)
        self.constants = torch.nn.ModuleList(made.values())
        self._place = {name: i for i, name in enumerate(made)}
        self._of_value: dict[str, str] = {}
        found: dict[str, Quantizer] = {}
        inputs = set(target.graph.inputs)
        power = target.numerics.power_of_two
        for first, (group, quant) in target.groups().items():
            fixed = any(v in target.candidate.stated or v in inputs for v in group) or _whole(quant)
            found[first] = Quantizer(single_precision(quant), learn_scales and not fixed, power)
            self._of_value.update(dict.fromkeys(group, first))
        self.activation_names = tuple(found)
        self.activations = torch.nn.ModuleList(found.values())
        self._activation = {name: i for i, name in enumerate(found)}
        started = dict(weight_types(target))
        self.weight_names = tuple(started)
        self._weight = {name: i for i, name in enumerate(started)}
        self.weights = torch.nn.ModuleList(
            Quantizer(single_precision(quant), learn_scales, power) for quant in started.values()
        )
        self.masks = torch.nn.ParameterDict()
        self.mask_keys: dict[str, str] = {}
        self._made: tuple[Any, Quantization] | None = None
        self._ran: tuple[Quantization, Executor] | None = None
        self._check()

    def _check(self) -> None:
        """Every node has a form here, and the network no state."""
        graph = self.integer_graph()
        missing = sorted({op_name(n) for n in graph.nodes if not has_form(graph.site(n))})
        if missing:
            raise ModelError(
                f"no form in PyTorch for {', '.join(missing)}",
                because="training needs gradients of every operator, those of the host included",
                hint="train the part of the network without them",
                code="NF-MODEL-297",
            )
        if graph.state:
            raise ModelError(
                "a network with state cannot be trained here",
                because=f"{', '.join(o for o, _ in graph.state)} is kept from run to run",
                hint="train it over whole sequences, without the state",
                code="NF-MODEL-298",
            )

    # --- numbers as they are
    def constant(self, name: str) -> Any:
        """A constant of the float graph, with its mask."""
        made = self.constants[self._place[name]](self.source)
        key = self.mask_keys.get(name)
        return made if key is None else made * self.masks[key]

    def set_mask(self, name: str, keep: Any) -> None:
        """Only the weights that `keep` marks are other than zero from now on."""
        tensor = torch.as_tensor(keep).to(torch.float32)
        if name not in self._weight or tuple(tensor.shape) != tuple(self.constant(name).shape):
            raise DataError(
                f'the mask of "{name}" fits no weight',
                because=f"weights: {', '.join(self.weight_names)}",
                hint="a mask has the name and the shape of the weight in the graph",
                code="NF-DATA-197",
            )
        key = self.mask_keys.setdefault(name, f"m{self._weight[name]}")
        self.masks[key] = torch.nn.Parameter(tensor, requires_grad=False)

    def activation(self, name: str) -> Quantizer | None:
        """The quantiser of a value of the float graph."""
        first = self._of_value.get(name)
        return None if first is None else self.activations[self._activation[first]]

    def weight(self, name: str) -> Quantizer:
        """The quantiser of a constant weight."""
        found: Quantizer = self.weights[self._weight[name]]
        return found

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def quantization(self) -> Quantization:
        """The quantised graph with weights and scales as they are, and what the quantiser notes."""
        key = tuple((id(t), t._version) for t in (*self.parameters(), *self.buffers()))
        if self._made is None or self._made[0] != key:
            arrays = {name: self.constant(name).numpy().copy() for name in self.names}
            types = {v: self.activations[i].type() for v, i in self._types()}
            weights = {}
            for name in self.weight_names:
                quant = self.weight(name).type()
                weights[name] = RoundedWeight(encode(arrays[name], quant), quant)
            self._made = key, self.target.quantized(arrays, types, weights)
        return self._made[1]

    def integer_graph(self) -> Graph:
        """The quantised graph with weights and scales as they are."""
        return self.quantization().graph

    @property
    def notes(self) -> tuple[Note, ...]:
        """Layers that stay in float, or are not quite as asked."""
        return self.quantization().notes

    def _types(self) -> Iterator[tuple[str, int]]:
        for value, first in self._of_value.items():
            yield value, self._activation[first]

    # --- running
    def forward(self, *inputs: Any) -> Any:
        """The outputs, of one or of several samples."""
        found = self._fake(inputs) if self.training else self._integer(inputs)
        return found[0] if len(found) == 1 else tuple(found)

    def _fake(self, inputs: tuple[Any, ...]) -> list[Any]:
        graph = self.integer_graph() if self._made is None else self._made[1].graph
        values = {
            name: x.float().unsqueeze(1) if self._batched() else x.float().unsqueeze(0)
            for name, x in zip(graph.inputs, inputs, strict=True)
        }
        run = FakeRun(self, graph)
        walked(graph, values, run.node, lambda node, known: run.operand(node, 0, known), graph.outputs)
        return [values[name].flatten(0, 1) if self._batched() else values[name][0] for name in graph.outputs]

    def _integer(self, inputs: tuple[Any, ...]) -> list[Any]:
        found = self.codes(*inputs, keep=())
        graph = self.integer_graph()
        return [torch.from_numpy(real(found[name], graph.values[name])) for name in graph.outputs]

    def codes(self, *inputs: Any, keep: Any = lambda name: True) -> dict[str, Array]:
        """Integers by value id, of all samples, as the program computes them."""
        quantization = self.quantization()
        graph = quantization.graph
        if self._ran is None or self._ran[0] is not quantization:
            self._ran = quantization, Executor(graph, self.target.numerics, BATCH)
        arrays = [x.detach().cpu().numpy() for x in inputs]
        names = graph.inputs
        if not self._batched():
            return self._ran[1].run(dict(zip(names, arrays, strict=True)), keep)
        samples = [
            {name: a[i : i + 1] for name, a in zip(names, arrays, strict=True)} for i in range(len(arrays[0]))
        ]
        rows = self._ran[1].run_many(samples, keep)
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _batched(self) -> bool:
        """Whether samples lie along the first dimension, which is one in every input and output."""
        graph = self.target.graph
        return all(graph.type(v).shape[:1] == (1,) for v in (*graph.inputs, *graph.outputs))

    def freeze_batch_norms(self, frozen: bool = True) -> None:
        """Whether running statistics stay as they are."""
        for norm in self.norms.values():
            norm.frozen = frozen


class FakeRun:
    """One pass of real numbers through the quantised graph; constants are quantised once."""

    def __init__(self, network: PreparedNetwork, graph: Graph) -> None:
        self.network, self.graph = network, graph
        self.numerics = network.target.numerics
        self.known: dict[str, Any] = {}

    def node(self, node: Node, values: Mapping[str, Any]) -> dict[str, Any]:
        """Results of a node, on the grids of their types."""
        site = self.graph.site(node)
        inputs = [self.operand(node, i, values) for i in range(len(node.inputs))]
        op = node.op.with_(clip=None) if node.op.clip is not None else node.op
        made = computed(self.graph.site(_with_op(node, op)), inputs)
        norm = self.network.norms.get(source_name(self.network.target.graph, node.outputs[0]))
        if norm is not None:
            self.observed(norm, made[0])
        if node.op.clip is not None:
            made = tuple(clipped(one, node.op.clip) for one in made)
        outputs = [o for o in node.outputs if o]
        keeps = node.op.moves_data or (node.op.picks and node.op.clip is None)
        if keeps and site.inputs[0] is not None and site.inputs[0].quant == site.outputs[0].quant:
            return dict(zip(node.outputs, made, strict=False))
        return {o: self.quantized(o, one, node) for o, one in zip(outputs, made, strict=False)}

    def observed(self, norm: BatchNorm, y: Any) -> None:
        norm.observe(self.network.source, y)

    def quantized(self, value_id: str, x: Any, node: Node) -> Any:
        """A result on the grid of its type."""
        value = self.graph.values[value_id]
        if value.quant is None:
            return x
        # at the border and in tables codes are rounded half to even
        plain = node.op.unary or node.op.makes == "codes"
        rounding = "half_even" if plain else self.numerics.rounding
        own = self.quantizer(value)
        count = x[0].numel()
        if own is not None:
            return own(x, rounding, count)
        return on_grid(x, value.quant, rounding)

    def quantizer(self, value: Value) -> Quantizer | None:
        """The one of the value that it stands for, if it has that type."""
        found = self.network.activation(source_name(self.network.target.graph, value.id))
        if found is None or value.quant is None:
            return None
        alike = found.quant.with_(scale=(), sparse=None) == value.quant.with_(scale=(), sparse=None)
        return found if alike else None

    def scale(self, value_id: str) -> Any:
        """The scale of an activation as it is."""
        value = self.graph.values[value_id]
        own = self.quantizer(value)
        assert value.quant is not None
        return own.scale().detach() if own is not None else torch.tensor(value.quant.scale)

    def operand(self, node: Node, index: int, values: Mapping[str, Any]) -> Any:
        """What a node reads at an input, constants with a dimension of one for the samples."""
        value_id = node.inputs[index]
        if not value_id:
            return None
        if value_id in values:
            return values[value_id]
        role = node.op.role(index)
        key = f"{value_id}/{role}"
        if key not in self.known:
            self.known[key] = self.stored(node, index, value_id, role).unsqueeze(0)
        return self.known[key]

    def stored(self, node: Node, index: int, value_id: str, role: str) -> Any:
        """A constant on its grid."""
        value, network = self.graph.values[value_id], self.network
        name = source_name(network.target.graph, value_id)
        if name not in network._place:
            array = self.graph.const(value_id)
            assert array is not None
            held = array if value.quant is None else decode(array, value.quant)
            return torch.from_numpy(np.array(held))
        real_one = network.constant(name)
        if value.quant is None:
            return real_one
        if role == "weight" and name in network._weight:
            quantizer = network.weight(name)
            return quantizer(real_one, "half_even", real_one.numel() // len(quantizer.quant.scale))
        if role == "bias":
            return self.bias(node, index, real_one)
        own = self.quantizer(value)
        count = real_one.numel()
        return own(real_one, "half_even", count) if own else on_grid(real_one, value.quant, "half_even")

    def bias(self, node: Node, index: int, x: Any) -> Any:
        """A bias on the grid of the accumulator."""
        weight = source_name(self.network.target.graph, node.inputs[index - 1])
        if weight not in self.network._weight or isinstance(
            self.graph.values[node.inputs[0]].quant, FloatType
        ):
            return x
        scale = self.network.weight(weight).scale().detach()
        unit = self.scale(node.inputs[0]) * scale * node.op.gain() / node.op.bias_factor()
        shift = dict(node.params or ()).get("bias_shift", 0)
        unit = unit * 2.0 ** int(shift) if isinstance(shift, int) else unit
        return StraightRound.apply(x / unit) * unit


def on_grid(x: Any, quant: QuantType, rounding: Any) -> Any:
    """Numbers on a grid that is not trained, with a straight-through gradient."""
    made = Quantizer(quant, learned=False)
    return made(x, rounding)


def real(array: Array, value: Value) -> Array:
    """Numbers that integers stand for."""
    return array if value.quant is None else decode(array, value.quant)


def single_precision(quant: QuantType) -> QuantType:
    """The type with scales that float32 holds exactly, as QDQ ONNX does."""
    if isinstance(quant, FloatType):
        return quant
    return quant.with_(scale=tuple(float(np.float32(s)) for s in quant.scale))


def weight_types(target: TargetGraph) -> Iterator[tuple[str, QuantType]]:
    """Types of constant weights in the build's quantised graph, by their ids in the float one."""
    graph = target.start
    for node in graph.nodes:
        for i, value_id in enumerate(node.inputs):
            value = graph.values.get(value_id)
            if value is None or value.quant is None or value.const is None or node.op.role(i) != "weight":
                continue
            if isinstance(value.quant, FloatType):
                continue
            if value.quant.group is not None:
                raise ModelError(
                    "weights with scales by groups of input channels cannot be trained",
                    hint="[quantize.weights] group = 0",
                    code="NF-MODEL-299",
                ).at(node=node.name)
            yield source_name(target.graph, value_id), value.quant.with_(sparse=None)


def _whole(quant: QuantType) -> bool:
    return quant.bits == 16 and quant.scale == (1.0,)


def _with_op(node: Node, op: Any) -> Node:
    from dataclasses import replace

    return replace(node, op=op)


__all__ = ["PreparedNetwork", "rounded"]
