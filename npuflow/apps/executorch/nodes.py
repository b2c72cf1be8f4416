"""Asks of every operator of a PyTorch program whether the target runs it, by npuflow's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses import FakeTensor

from npuflow.apps.executorch.request import LoweringRequest
from npuflow.base.errors import NpuflowError
from npuflow.frontends.torch.convert import CONVERTERS, alone
from npuflow.frontends.torch.quantized import LIBRARY
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.place.place import Placed, place
from npuflow.rewrite.rewrite import rewrite

STEPPED = "what it rounds to whole steps is rounded to a code before: a step could be missing"
STEPS = ("rounding_mode", "decimals")     # arguments of operators that compute a number, then round it
COPIES, ORDERED = "_copy", "dim_order_ops"
PIECE = "getitem"                         # one result of an operator that has several
OF_ORDER = {"_to_dim_order_copy": "_to_copy", "_clone_dim_order": "clone"}
LAYOUT = ("dim_order", "memory_format", "layout", "device", "pin_memory", "non_blocking")


@dataclass(frozen=True)
class NodeSupport:
    """What npuflow says of an operator: `reason` is empty where the target runs it. `moves`: it computes
    nothing; `shares`: what it writes has the scale of what it reads; `parts`: operators of npuflow that it
    becomes, `op` the first of them."""

    reason: str = ""
    moves: bool = False
    shares: bool = False
    parts: int = 1
    op: str = ""


@dataclass
class ProgramSupport:
    """The operators of a graph of torch.fx, each checked once. `known`: constant tensors, by node."""

    request: LoweringRequest
    known: dict[Any, Any] = field(default_factory=dict)
    _answers: dict[tuple[Any, ...], NodeSupport] = field(default_factory=dict)

    @classmethod
    def of_module(cls, request: LoweringRequest, module: Any) -> ProgramSupport:
        """Of a graph whose parameters are attributes of its module."""
        known = {n: attrgetter(n.target)(module) for n in module.graph.nodes if n.op == "get_attr"}
        tensors = {node: value.detach() for node, value in known.items() if isinstance(value, torch.Tensor)}
        return cls(request, tensors)._folded(module.graph.nodes)

    @classmethod
    def of_program(
        cls, request: LoweringRequest, program: Any, weights: Mapping[str, Any] | None = None
    ) -> ProgramSupport:
        """Of an exported program, whose parameters are placeholders. `weights`: see `constants_of`."""
        return cls(request, constants_of(program, weights or {}))._folded(program.graph.nodes)

    def _folded(self, nodes: Iterable[Any]) -> ProgramSupport:
        """With what operators make of constants alone: weights behind their codes, for one."""
        for node in nodes:
            read = node.all_input_nodes
            if node.op == "call_function" and read and all(one in self.known for one in read):
                value = _computed(node, self.known)
                if isinstance(value, torch.Tensor):
                    self.known[node] = value
        return self

    def operators(self, nodes: Iterable[Any]) -> Iterator[Any]:
        """The operators that compute with values: no constants, no roundings, no parts of other operators."""
        for node in nodes:
            made = node.op == "call_function" and node.meta.get("val") is not None
            if made and node not in self.known and not is_rounding(node) and PIECE not in str(node.target):
                yield node

    def __call__(self, *nodes: Any) -> NodeSupport:
        """What npuflow says of these operators, one behind the other, as a network of their own."""
        if nodes not in self._answers:
            self._answers[nodes] = self._ask(nodes)
        return self._answers[nodes]

    def _ask(self, nodes: Sequence[Any]) -> NodeSupport:
        free = next((one for n in nodes for one in (n, *n.all_input_nodes) if not _static(one)), None)
        if free is not None:
            return NodeSupport(f"the shape of {free.name} is not fixed, and a program's are")
        read = [one for node in nodes for one in node.all_input_nodes if one not in nodes]
        several = next(filter(_listed, read), None)
        if several is not None:
            return NodeSupport(f"it reads {several.name}, which is several tensors")
        ends = (one for n in nodes for one in (n, *n.all_input_nodes))
        wide = next((one for one in ends if is_real(one) and _width(one)), None)
        if wide is not None:
            return NodeSupport(f"{wide.name} is {_width(wide)}, and floats of a program are float32")
        if any(node.kwargs.get(name) for node in nodes for name in STEPS):
            return NodeSupport(STEPPED)
        whole = [part for node in nodes for part in (node, *pieces(node))]
        try:
            with plain_targets(whole):
                reading = alone(torch, whole, self.known)
            if isinstance(reading, str):
                return NodeSupport(f"no operator of npuflow: {reading}")
            graph = rewrite(reading.graph, hardware=self.request.hardware).graph
            placed = place(graph, self.request.target, self.request.placement)
        except NpuflowError as fault:
            return NodeSupport(str(fault).splitlines()[0])
        return _answer(graph, placed.places)


def _answer(graph: Graph, places: Sequence[Placed]) -> NodeSupport:
    """The answer for a network of its own that has been placed."""
    if not graph.nodes:
        return NodeSupport(moves=True, shares=True, parts=0)
    rows = list(zip(graph.nodes, places, strict=True))
    if any(one.on_npu for one in places):     # positions as integers: the host's, on the program's borders
        rows = [(node, one) for node, one in rows if one.on_npu or not _handles_positions(graph, node)]
    lost = next((one for _, one in rows if not one.on_npu), None)
    scaled = all(node.op.shares_scale for node, _ in rows)
    moved = all(one.moves for _, one in rows)
    main = next((one for _, one in rows if not one.moves), rows[0][1])
    return NodeSupport(_said(lost), moved, scaled, len(rows), main.op)


def _handles_positions(graph: Graph, node: Node) -> bool:
    """Whether a node of the host gives the whole numbers that it reads, in another type or order."""
    site = graph.site(node)
    if node.op.hosted:
        return node.op.whole_result(site, [(0, 1)], 0) is not None
    return node.op.moves_data and site.outputs[0].type.dtype.startswith("int")


def constants_of(program: Any, weights: Mapping[str, Any]) -> dict[Any, Any]:
    """Tensors of an exported program that are no inputs and that it does not change, by placeholder.
    `weights`: by their names, of a program whose own are without numbers, as EXIR gives it to partitioners;
    those that are in neither are ones."""
    signature = program.graph_signature
    held = {**dict(program.state_dict), **dict(program.constants)}
    named = {
        **signature.inputs_to_parameters, **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    changed = set((signature.buffers_to_mutate or {}).values())
    found: dict[Any, Any] = {}
    for node in program.graph.nodes:
        name = named.get(node.name, "") if node.op == "placeholder" else ""
        if not name or name in changed:
            continue
        value = held[name]
        if isinstance(value, FakeTensor):
            kept = weights.get(name, held_constant(node))
            value = torch.ones(tuple(value.shape), dtype=value.dtype) if kept is None else kept
        found[node] = value.detach()
    return found


def held_constant(placeholder: Any) -> Any:
    """The numbers of a constant that EXIR lifted out of the graph itself; None of a weight."""
    return getattr(placeholder.meta.get("val"), "constant", None)


def _said(lost: Placed | None) -> str:
    return "" if lost is None else f"{lost.op}: {lost.reason}"


def listed(left_out: Mapping[str, str]) -> list[str]:
    """A line for every reason, with the operators that it holds for."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    return [f"  {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def is_rounding(node: Any) -> bool:
    """Whether a node of the graph quantises or dequantises."""
    return node.op == "call_function" and str(_target(node.target)).startswith(LIBRARY)


def rounds(node: Any) -> bool:
    return is_rounding(node) and ".quantize_" in str(_target(node.target))


def pieces(node: Any) -> list[Any]:
    """Nodes that take one of several results."""
    return [user for user in node.users if user.op == "call_function" and PIECE in str(user.target)]


def is_real(node: Any) -> bool:
    """Whether the node's value is one tensor of floats."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _width(node: Any) -> str:
    """The type of a node's floats where it is not float32."""
    return str(node.meta["val"].dtype).removeprefix("torch.").replace("float32", "")


def _listed(node: Any) -> bool:
    return isinstance(node.meta.get("val"), list | tuple)


def _static(node: Any) -> bool:
    value = node.meta.get("val")
    several = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(size, int) for one in several for size in getattr(one, "shape", ()))


def _plain(target: Any) -> Any:
    """The operator that one of the Edge dialect wraps."""
    inner = getattr(target, "_op", None)
    return inner if isinstance(inner, torch._ops.OpOverload) else target


def _target(target: Any) -> Any:
    """The operator of ATen that one of the Edge dialect stands for: views for their copies, and no order of
    dimensions, which values do not have."""
    found = _plain(target)
    namespace, _, rest = str(found).partition(".")
    name, _, overload = rest.rpartition(".")
    if namespace == ORDERED:
        packet = getattr(torch.ops.aten, OF_ORDER.get(name, name), None)
        return getattr(packet, "default", found)
    if namespace == "aten" and name.endswith(COPIES) and name not in CONVERTERS:
        packet = getattr(torch.ops.aten, name.removesuffix(COPIES), None)
        return getattr(packet, overload, found) if packet is not None else found
    return found


@contextmanager
def plain_targets(nodes: Sequence[Any]) -> Iterator[None]:
    """While it lasts, nodes of the Edge dialect call operators of ATen."""
    before = {node: (node.target, node.kwargs) for node in nodes}
    make_plain(nodes)
    try:
        yield
    finally:
        for node, (target, kwargs) in before.items():
            node.target, node.kwargs = target, kwargs


def make_plain(nodes: Iterable[Any]) -> None:
    """Nodes of the Edge dialect as calls of ATen's operators, in place."""
    for node in nodes:
        if node.op != "call_function":
            continue
        target = _target(node.target)
        if target is not node.target:
            node.target = target
            node.kwargs = {key: value for key, value in node.kwargs.items() if key not in LAYOUT}


def _computed(node: Any, known: Mapping[Any, Any]) -> Any:
    """The value of an operator on constants; None where torch cannot compute it here."""
    args = torch.fx.node.map_arg(node.args, lambda one: known[one])
    kwargs = torch.fx.node.map_arg(node.kwargs, lambda one: known[one])
    try:
        with torch.no_grad():
            return _plain(node.target)(*args, **kwargs)
    except Exception:                     # whatever an operator raises: it stays a node of the graph
        return None
