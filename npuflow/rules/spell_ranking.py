"""ArgMax, ArgMin and TopK on the NPU: positions are whole numbers there, and become integers by a Cast."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._parts import Decomposition, Parts

INT64 = 7  # onnx's number of the type


@RULES.entry
class SpellRanking(Decomposition):
    """The Casts are the host's; where a look-up reads the positions, it reads those from before the Cast."""

    triggers = ("host:argmax", "host:argmin", "host:topk")
    makes = ("argextreme", "topk", "host", "reshape")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        x = graph.type(node.inputs[0])
        if x.dtype != "float32" or not x.is_static or not x.size or not x.shape:
            return Refusal("spell_ranking", node.name, f"of {x.dtype} {x.shape}")
        parts = Parts(graph, node)
        found = self.spelled(parts)
        return Refusal("spell_ranking", node.name, found) if isinstance(found, str) else parts.done(*found)

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, name = parts.input(0), parts.node.op.op_type.lower()  # type: ignore[attr-defined]
        shape = parts.shape(x)
        if name == "topk":
            k = parts.number(1)
            if k is None:
                return "the number of elements is not a constant"
            count, axis = int(k.reshape(-1)[0]), parts.integer("axis", -1) % len(shape)
            if not 1 <= count <= shape[axis]:
                return f"{count} of {shape[axis]} elements"
            y, at = parts.ops("topk", (x,), axis=axis, k=count, largest=parts.integer("largest", 1))
            return y, _integers(parts, at, parts.shape(at))
        axis = parts.integer("axis", 0) % len(shape)
        last, largest = parts.integer("select_last_index", 0), int(name == "argmax")
        at = parts.op("argextreme", (x,), axis=axis, largest=largest, select_last_index=last)
        keep = parts.integer("keepdims", 1)
        return (_integers(parts, at, parts.shape(at) if keep else (*shape[:axis], *shape[axis + 1 :])),)


def _integers(parts: Parts, at: str, shape: tuple[int, ...]) -> str:
    whole = parts.reshape(at, shape)
    to = (("to", INT64),)
    kind = parts.graph.type(next(o for o in reversed(parts.node.outputs) if o))
    cast = OPS["host"](op_type="Cast", version=EXPORT_OPSET, attributes=to, types=(kind,))
    return parts.op_as(cast, (whole,), "positions")
