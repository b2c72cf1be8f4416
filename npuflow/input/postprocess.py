"""Boxes as outputs of a network: nodes appended to it decode its detection heads and suppress
overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from npuflow.base.errors import ModelError, suggestion
from npuflow.base.tables import Config, Doc, Fault, Range
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends._nodes.shapes import output_types
from npuflow.heads import HEADS, Decoded, Head, HeadTask
from npuflow.heads.auto import AutoHead
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array
from npuflow.onnx.run import EXPORT_OPSET

BITS = 16                                 # of coordinates on the NPU
SELECTED = "which boxes are kept depends on their scores: the shape of the result is not known before it runs"
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class Postprocess(Config):
    """Detection heads whose boxes the program gives as rows x1, y1, x2, y2, score, class."""

    kind: Annotated[str, HEADS, Doc("what the outputs mean; auto: the kind that their shapes fit")] = "auto"
    # outputs that hold the heads, in the order that the kind states; absent: all outputs
    heads: tuple[str, ...] = ()
    # absent: as many as the heads have
    classes: Annotated[int, Range(1, None)] | None = None
    # height and width of the network's input; absent: those of its first input of four dimensions
    size: tuple[int, int] | None = None
    score: Share = 0.25                   # boxes at or below it are left out
    # boxes that overlap a better one of their class by more are left out
    iou: Share = 0.45
    most: Annotated[int, Range(1, None)] = 100  # at most so many boxes, the best ones
    # whether a box counts for its best class or for every class above `score`; absent: as the kind has it
    labels: Literal["best", "every"] | None = None
    # boxes of all classes suppress each other
    agnostic: bool = False
    # boxes are cut at the edges of the input
    clip: bool = True
    name: str = "boxes"                   # of the output
    # who decodes boxes; auto: the NPU where it has activations of 16 bits
    place: Literal["auto", "npu", "host"] = "auto"

    def check(self) -> Iterator[Fault]:
        if self.size is not None and min(self.size) < 1:
            yield Fault("size", f"{list(self.size)} is no height and width", code="NF-MODEL-278")
        if not self.name:
            yield Fault("name", "the output needs a name", hint='name = "boxes"', code="NF-MODEL-279")
        if self.agnostic and self.labels == "every":
            yield Fault(
                "agnostic", "boxes that count for every class cannot suppress each other across classes",
                hint='labels = "best"', code="NF-MODEL-280",
            )


def with_boxes(graph: Graph, table: Postprocess, numerics: Numerics) -> Graph:
    """The graph with the boxes as its first output, in place of the heads; other outputs stay behind them."""
    if table.name in graph.values:
        raise ModelError(
            f'the model has a tensor "{table.name}" already', hint='[postprocess] name = "..."',
            code="NF-MODEL-281",
        ).at(key="postprocess.name")
    names, size = heads_of(graph, table), size_of(graph, table)
    shapes = [graph.type(name).shape for name in names]
    head: Head = table.options or HEADS[table.kind]()
    classes = table.classes or 0
    why = head.misfit(shapes, size, classes)
    if why:
        raise ModelError(
            f'the outputs are no detection heads of the kind "{table.kind}"',
            because=f"{why}; {', '.join(f'{n} {list(s)}' for n, s in zip(names, shapes, strict=True))}",
            hint=_kinds_hint(table.kind, shapes, size, classes), code="NF-MODEL-282",
        ).at(key="postprocess.kind")
    head = head.chosen(shapes, size, classes)
    net = _Net(graph, table, numerics)
    done = head.decode(net, HeadTask(names, size, classes))
    _Selection(net, table, head, size).select(done)
    rest = tuple(o for o in graph.outputs if o not in names)
    made = net.builder.graph(graph.inputs, (table.name, *rest))
    return prune(made.replaced(state=graph.state, lengths=graph.lengths))


def heads_of(graph: Graph, table: Postprocess) -> tuple[str, ...]:
    """The outputs that hold the heads, of one image and of known shape."""
    for name in table.heads:
        if name not in graph.outputs:
            raise ModelError(
                f'the model has no output "{name}"', because=f"its outputs are {', '.join(graph.outputs)}",
                hint=suggestion(name, graph.outputs) or "[model] outputs makes other tensors outputs",
                code="NF-MODEL-283",
            ).at(key="postprocess.heads")
    names = table.heads or tuple(o for o in graph.outputs if o not in dict(graph.state))
    for name in names:
        kind = graph.type(name)
        if not kind.is_static or len(kind.shape) not in (3, 4, 5) or kind.shape[0] != 1:
            raise ModelError(
                f'the output "{name}" is no head of one image',
                because=f"its shape is {list(kind.shape)}",
                hint="[model] inputs binds a batch of 1, [postprocess] heads names the heads",
                code="NF-MODEL-284",
            ).at(key="postprocess.heads")
    return names


def size_of(graph: Graph, table: Postprocess) -> tuple[int, int]:
    """Height and width of the input, which coordinates count in."""
    if table.size is not None:
        return table.size
    for name in graph.inputs:
        shape = graph.type(name).shape
        if len(shape) == 4 and min(shape) > 0:
            return (shape[2], shape[3]) if shape[1] in (1, 3, 4) else (shape[1], shape[2])
    raise ModelError(
        "the size of the image that boxes are for is not known",
        because="no input has four dimensions of known size", hint="[postprocess] size = [height, width]",
        code="NF-MODEL-285",
    ).at(key="postprocess.size")


def recognised(graph: Graph) -> tuple[str, ...]:
    """Kinds of detection heads that the shapes of the outputs fit."""
    table = Postprocess()
    try:
        names, size = heads_of(graph, table), size_of(graph, table)
    except ModelError:
        return ()
    return AutoHead().fitting([graph.type(name).shape for name in names], size, 0)


def _kinds_hint(kind: str, shapes: Sequence[tuple[int, ...]], size: tuple[int, int], classes: int) -> str:
    found = [name for name in AutoHead().fitting(shapes, size, classes) if name != kind]
    if found:
        return " or ".join(f'kind = "{name}"' for name in found)
    return "[postprocess] kind and heads, with the options of the kind"


class _Net:
    """The network that nodes are appended to; those of `on_host`, or all of them, stay on the host."""

    def __init__(self, graph: Graph, table: Postprocess, numerics: Numerics) -> None:
        self.builder = NodeBuilder({"": EXPORT_OPSET})
        self.builder.values.update(graph.values)
        self.builder.consts.update(graph.consts)
        self.builder.nodes.extend(graph.nodes)
        self.builder.arrays.update(
            {name: array for name in graph.values if (array := graph.const(name)) is not None}
        )
        self.prefix, self.count = f"{table.name}/", 0
        self.why = ""
        if table.place == "host":
            self.why = '[postprocess] place = "host"'
        elif table.place == "auto" and max(numerics.activation_bits) < BITS:
            most = max(numerics.activation_bits)
            self.why = f"boxes need activations of {BITS} bits, the target has {most}"

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.type(value).shape

    def constant(self, array: Array) -> str:
        return self.builder.constant(self.named("constant"), np.asarray(array, np.float32))

    def op(self, kind: str, *inputs: str | Sequence[int], **attributes: Any) -> str:
        if self.why:
            return self.hosted(self.why, kind, *inputs, **attributes)
        name = self.named(kind.lower())
        self.builder.call(kind, self.values(inputs), [name], name, **attributes)
        return name

    def on_host(self, kind: str, *inputs: str | Sequence[int], **attributes: Any) -> str:
        return self.hosted(SELECTED, kind, *inputs, **attributes)

    def hosted(
        self,
        why: str,
        kind: str,
        *inputs: str | Sequence[int],
        results: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """An operator that no rule may spell in others."""
        import onnx

        outputs = list(results) or [self.named(kind.lower())]
        node = onnx.helper.make_node(kind, self.values(inputs), outputs, outputs[0], **attributes)
        known = {name: self.builder.type(name) for name in node.input if name}
        types = output_types(node, EXPORT_OPSET, known, self.builder.arrays)
        self.builder.host(node, EXPORT_OPSET, types, why, (outputs[0],), kept=True)
        return outputs[0]

    def values(self, inputs: Sequence[str | Sequence[int]]) -> list[str]:
        return [i if isinstance(i, str) else self.ints(i) for i in inputs]

    def ints(self, values: Sequence[int] | int) -> str:
        return self.builder.constant(self.named("constant"), np.asarray(values, np.int64))

    def named(self, what: str) -> str:
        self.count += 1
        return self.builder.free(f"{self.prefix}{what}_{self.count}")


@dataclass(frozen=True)
class _Selection:
    """From boxes and scores to the rows that are kept, best score first."""

    net: _Net
    table: Postprocess
    head: Head
    size: tuple[int, int]

    def select(self, done: Decoded) -> None:
        net, boxes = self.net, done.boxes
        if self.table.clip:
            high, wide = self.size
            most = net.constant(np.array([[[wide, high, wide, high]]]))
            boxes = net.on_host("Max", net.on_host("Min", boxes, most), net.constant(np.asarray(0.0)))
        scores, kinds = self.judged(done.scores)
        count, _ = net.shape(boxes)[1:]
        overlap = self.table.iou if self.head.suppresses else 1.0
        found = net.on_host(
            "NonMaxSuppression", boxes, scores, [min(self.table.most, count)],
            net.constant(np.array([overlap])), net.constant(np.array([self.table.score])),
        )
        box = net.on_host("Gather", found, net.ints(2), axis=1)
        score = net.on_host("GatherND", scores, found)
        number = net.on_host("Min", net.on_host("Shape", score), [self.table.most])
        top = [net.named("topk"), net.named("topk")]
        net.hosted(SELECTED, "TopK", score, number, results=top)
        box = net.on_host("Gather", box, top[1])
        if kinds:
            kind = net.on_host("Gather", kinds, box)
        else:
            kind = net.on_host("Gather", net.on_host("Gather", found, net.ints(1), axis=1), top[1])
        flat = net.on_host("Squeeze", net.on_host("Gather", boxes, box, axis=1), [0])
        columns = [net.on_host("Unsqueeze", one, [1]) for one in (top[0], self.real(kind))]
        net.hosted(SELECTED, "Concat", flat, *columns, results=[self.table.name], axis=1)

    def real(self, kinds: str) -> str:
        import onnx

        return self.net.on_host("Cast", kinds, to=onnx.TensorProto.FLOAT)

    def judged(self, scores: str) -> tuple[str, str]:
        """The scores that compete, and the class of every box where they do so across classes."""
        net, (_, classes, count) = self.net, self.net.shape(scores)
        every = self.table.labels == "every" or (self.table.labels is None and self.head.every_class)
        if classes == 1 or (every and not self.table.agnostic):
            return scores, ""
        best = net.on_host("ArgMax", scores, axis=1, keepdims=1)
        if self.table.agnostic:
            return net.on_host("ReduceMax", scores, [1], keepdims=1), net.on_host("Reshape", best, [count])
        numbers = net.builder.constant(net.named("constant"), np.arange(classes).reshape(1, -1, 1))
        own = net.on_host("Equal", best, numbers)
        return net.on_host("Where", own, scores, net.constant(np.asarray(0.0))), ""
