"""Decides which nodes the target runs and which the host, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from npuflow.hw.target import Target
from npuflow.ir.elements import node_elements
from npuflow.ir.graph import Graph
from npuflow.ir.limits import allowed
from npuflow.ir.loops import companions
from npuflow.ir.macs import node_macs
from npuflow.ir.op import No, Node, Yes, first_no
from npuflow.ir.queries import kind, title
from npuflow.onnx.types import is_tensor
from npuflow.place.host import HostWork, placed_work
from npuflow.place.islands import Doing, PlacementTable, Prices, stranded
from npuflow.place.outputs import output_joins
from npuflow.place.partition import share


@dataclass(frozen=True)
class Placed:
    """One node's place: `reason` is empty on the NPU."""

    node: str
    op: str
    reason: str
    macs: int
    elements: int = 0
    moves: bool = False

    @property
    def on_npu(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class NodePlacement:
    """The place of every node, by its index in the graph. `host`: what the host does; what
    crosses has codes of 8 bits."""

    places: tuple[Placed, ...]
    host: HostWork = field(default_factory=HostWork)

    def on_npu(self, index: int) -> bool:
        return self.places[index].on_npu

    @property
    def npu_macs(self) -> int:
        return sum(p.macs for p in self.places if p.on_npu)

    @property
    def total_macs(self) -> int:
        return sum(p.macs for p in self.places)

    @property
    def share(self) -> float:
        """Part of the multiply-accumulates that the NPU does; of the nodes where nothing multiplies."""
        return share(self.npu_macs, self.total_macs, sum(p.on_npu for p in self.places), len(self.places))

    def stranded(self, graph: Graph, chosen: Collection[int], prices: Prices | None = None) -> dict[int, str]:
        """Of nodes chosen for the NPU (fewer than here, as quantisation may refuse some), those on
        islands that are not worth it, with the reason; without `prices` those that only move data.
        `graph`: the one that was placed."""
        doing = [Doing(p.macs, p.elements, p.moves) for p in self.places]
        lost = stranded(graph, chosen, doing, prices)
        return lost | alone_in_loops(graph, [i for i in chosen if i not in lost])

    def reasons(self) -> Counter[tuple[str, str]]:
        """(operator, reason) of the host's nodes, with counts."""
        return Counter((p.op, p.reason) for p in self.places if not p.on_npu)


def place(
    graph: Graph, target: Target, least: PlacementTable | None = None, stated: Collection[str] = ()
) -> NodePlacement:
    """Ask every operator, after what holds for all: float tensors, static shapes, nothing the target refuses.
    Then Concats in front of outputs whose operands fit no common scale, and islands that are not worth it, go
    to the host. `stated`: values whose codes the model fixes; Concats that make them stay."""
    least = least or PlacementTable()
    asked = NodePlacement(tuple(_placed(graph, node, target) for node in graph.nodes))
    chosen = [i for i, p in enumerate(asked.places) if p.on_npu]
    lost = {} if least.joined_outputs else output_joins(graph, chosen, stated)
    lost |= asked.stranded(graph, [i for i in chosen if i not in lost], Prices(target, least))
    lost |= alone_in_loops(graph, [i for i in chosen if i not in lost])
    places = tuple(replace(p, reason=lost[i]) if i in lost else p for i, p in enumerate(asked.places))
    where = {node.outputs: p.on_npu for node, p in zip(graph.nodes, places, strict=True)}
    return replace(asked, places=places, host=placed_work(graph, lambda n: where[n.outputs]))


def alone_in_loops(graph: Graph, chosen: Collection[int]) -> dict[int, str]:
    """Of nodes chosen for the NPU those whose loop has others that are not, with the reason."""
    return {
        i: f"a loop runs in one place, and the host runs {name} of it"
        for i, name in companions(graph, set(chosen)).items()
    }


def op_name(node: Node) -> str:
    """The operator's registered name; for a host node, the name of the ONNX operator."""
    return title(node) if node.op.hosted else kind(node)


def _placed(graph: Graph, node: Node, target: Target) -> Placed:
    answer = accepts(graph, node, target)
    reason = answer.reason if isinstance(answer, No) else ""
    moves = not reason and node.op.moves(graph.site(node)) is not None
    return Placed(node.name, op_name(node), reason, node_macs(graph, node), node_elements(graph, node), moves)


def accepts(graph: Graph, node: Node, target: Target) -> Yes | No:
    name = op_name(node)
    if name in target.limits.refuse or name.lower() in target.limits.refuse:
        return No(f"the target does not run {name}")
    for value_id in (*node.inputs, *node.outputs):
        if not value_id:
            continue
        kind = graph.type(value_id)
        if not is_tensor(kind):
            return _host_reason(graph, node, target) or No(
                f'"{value_id}" is {kind.dtype or "of unknown type"}, no tensor'
            )
        if not kind.is_static:
            return _host_reason(graph, node, target) or No(
                f'the shape of "{value_id}" is not known before it runs'
            )
    return first_no(allowed(name, graph.site(node), target.limits), node.op.accepts(graph.site(node), target))


def _host_reason(graph: Graph, node: Node, target: Target) -> No | None:
    """A node that nobody but the host takes says so itself; only then its types do not matter."""
    if node.op.hosted:
        answer = node.op.accepts(graph.site(node), target)
        return answer if isinstance(answer, No) else None
    return None
