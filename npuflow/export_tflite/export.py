"""The TFLite file of a quantised network, and how each of its ends is laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.base.errors import ModelError
from npuflow.base.wording import counted
from npuflow.export_tflite import elements, images, products, shapes
from npuflow.export_tflite.builder import DTYPES, NHWC, PLAIN, LiteBuilder, LiteRefusal
from npuflow.export_tflite.container import written
from npuflow.export_tflite.forms import FORMS, LiteLayer
from npuflow.export_tflite.loops import while_loop
from npuflow.frontends.tflite.schema import Codes, TfliteNetwork, TfliteTensor
from npuflow.ir.graph import Graph, prune
from npuflow.ir.loops import FEW, loops
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.ir.unroll import written_out
from npuflow.place.place import op_name
from npuflow.whole.export_c.network import IntegerNetwork, network_of

MOST = 12  # layers that a refusal lists
LOADED = (elements, images, products, shapes)  # each adds its forms to the table


@dataclass(frozen=True)
class End:
    """An input or output: its name in the model, its tensor, and whether channels are last there only."""

    name: str
    tensor: TfliteTensor
    turned: bool
    shift: int  # subtracted from the program's codes

    @property
    def index(self) -> bool:
        """Whether it holds whole numbers: places of elements, without scale."""
        return self.tensor.codes is None

    def given(self, codes: Array) -> Array:
        """The program's codes as the file takes them."""
        plain = codes.astype("int64") - self.shift
        moved = plain.transpose(0, 2, 3, 1) if self.turned else plain
        return moved.astype(self.tensor.dtype)

    def taken(self, codes: Array) -> Array:
        """What the file gives, in the program's order and codes."""
        moved = codes.transpose(0, 3, 1, 2) if self.turned else codes
        return moved.astype("int64") + self.shift


@dataclass(frozen=True)
class LiteModel:
    """The bytes, their ends, and the number of each operator."""

    model: bytes
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    operators: dict[str, int]


def to_tflite(graph: Graph, description: str = "") -> LiteModel:
    """Loops of more than FEW steps are WHILE, of two nested ones one. A ModelError with the list of layers
    that TFLite has no form for."""
    network = network_of(written_out(graph, FEW), "a TFLite file of this kind computes in integers only")
    b = LiteBuilder(_core(network))
    refused = list[str]()
    _units(b, refused)
    if not refused:
        try:
            made = b.network([value.id for _, value in network.outputs])
        except LiteRefusal as why:
            refused.append(str(why))
    if refused:
        raise _refusal(refused)
    return LiteModel(
        written(made, description),
        tuple(
            _end(name, value.id, made, b, i)
            for (name, value), i in zip(network.inputs, made.inputs, strict=True)
        ),
        tuple(
            _end(name, value.id, made, b, i)
            for (name, value), i in zip(network.outputs, made.outputs, strict=True)
        ),
        dict(Counter(o.name for one in (made, *made.bodies[1:]) for o in one.operators)),
    )


def _units(b: LiteBuilder, refused: list[str]) -> None:
    """All layers and loops. `refused`: what to say of those that have no form."""
    owner = {i: loop for loop in loops(b.graph) for i in loop.nodes}
    for i, node in enumerate(b.graph.nodes):
        if i not in owner:
            _layers(b, [node], refused)
        elif i == owner[i].nodes[0]:
            try:
                while_loop(b, owner[i], lambda inner, nodes: _layers(inner, nodes, refused))
            except LiteRefusal as why:
                refused.append(f'the loop "{owner[i].name}": {why}')
                _skipped(b, owner[i].outputs)


def _layers(b: LiteBuilder, nodes: Sequence[Node], refused: list[str]) -> None:
    for node in nodes:
        site = b.graph.site(node)
        call = site.op.to_onnx(site)
        try:
            if call.op_type not in FORMS:
                raise LiteRefusal("no operator of TFLite in integers is this one")
            FORMS[call.op_type](b, LiteLayer(site, call))
        except LiteRefusal as why:
            refused.append(f"{node.name} ({op_name(node)}): {why}")
            _skipped(b, node.outputs)


def _core(network: IntegerNetwork) -> Graph:
    """The graph between its boundaries."""
    inputs = tuple(v.id for _, v in network.inputs)
    outputs = tuple(dict.fromkeys(v.id for _, v in network.outputs if v.id not in inputs))
    return prune(network.graph.replaced(inputs=inputs, outputs=outputs, nodes=network.nodes, state=()))


def _skipped(b: LiteBuilder, outputs: tuple[str, ...]) -> None:
    """Values of a refused layer, so that those behind it are judged as well."""
    for value_id in outputs:
        if value_id:
            value, codes = b.graph.values[value_id], Codes((1.0,), (0,), None)
            dtype = DTYPES.get(value.quant.bits if value.quant else 8, "int8")
            b.alias(value_id, PLAIN, b.tensor(value_id, value.type.shape, dtype, codes))


def _refusal(refused: list[str]) -> ModelError:
    more = f"; and {len(refused) - MOST} more" if len(refused) > MOST else ""
    hint = "npuflow export c writes every operator that has integers; or change the layers' quantisation"
    if any("zero point" in r for r in refused):
        hint = "[quantize.activations] symmetric = true, signed = true; [quantize.weights] symmetric = true"
    return ModelError(
        f"{counted(len(refused), 'layer')} without a TFLite form: {'; '.join(refused[:MOST])}{more}",
        hint=hint,
        code="NF-PROGRAM-122",
    )


def _end(name: str, value_id: str, made: TfliteNetwork, b: LiteBuilder, index: int) -> End:
    quant, tensor = b.graph.values[value_id].quant, made.tensors[index]
    assert quant is not None
    turned = b.forms.get((value_id, NHWC, quant.bits)) == b.copies.get(index, index)
    whole = quant.signed or tensor.codes is None
    return End(name, tensor, turned, 0 if whole else 1 << (quant.bits - 1))
