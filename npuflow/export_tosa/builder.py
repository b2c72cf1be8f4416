"""Builds the TOSA network of a quantised one: commands on whole tensors, each as TOSA operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.registry import Registry
from npuflow.base.wording import counted
from npuflow.export_tosa.file import TosaNetwork
from npuflow.export_tosa.tensors import TosaRefusal, TosaTensors, TosaValue, held, less
from npuflow.export_tosa.views import TosaViews, Written
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.moves import dense
from npuflow.ir.op import Node
from npuflow.ir.types import Array, Value
from npuflow.place.place import op_name
from npuflow.whole.export_c.network import IntegerNetwork, network_of
from npuflow.whole.export_c.program import channels_last
from npuflow.whole.export_c.whole import Buffers, TensorCommand, commands_of, strides_of

COMMANDS = Registry("tosa commands", "npuflow.export_tosa.commands")
MOST = 12                                 # layers that a refusal lists
Form = Callable[["TosaBuilder", Sequence[TensorCommand]], int]
"""The operators of the first command of a run; how many commands of the run they stand for."""


@dataclass(frozen=True)
class TosaEnd:
    """An input or output: the model's name, its tensor, and what is subtracted from the program's codes."""

    name: str
    value: TosaValue
    less: int

    def given(self, codes: Array) -> Array:
        """The program's codes as the file takes them."""
        return (codes.astype(np.int64) - self.less).reshape(self.value.shape).astype(self.value.dtype)

    def taken(self, codes: Array, shape: Sequence[int]) -> Array:
        """What the file gives as the program's codes."""
        return codes.astype(np.int64).reshape(tuple(shape)) + self.less


@dataclass(frozen=True)
class TosaModel:
    """The network, its ends, and the number of each operator."""

    network: TosaNetwork
    inputs: tuple[TosaEnd, ...]
    outputs: tuple[TosaEnd, ...]
    operators: Mapping[str, int]


class TosaBuilder:
    """A network in the making. `t`: its tensors; `views`: what commands read and write."""

    def __init__(self, graph: Graph, numerics: Numerics, last: frozenset[str] = frozenset()) -> None:
        self.graph, self.numerics, self.last = graph, numerics, last
        self.t = TosaTensors()
        self.views = TosaViews(self.t, Buffers())
        self.biased: set[int] = set()     # buffers of sums that have their bias already
        self.peaks: dict[int, int] = {}   # the largest magnitude of sums, by buffer

    def input(self, value: Value, name: str) -> TosaValue:
        """A tensor that is given, in C order."""
        shape = value.type.shape or (1,)
        own = self.t.new(shape, held(value.dtype), name=name)
        return self.have(value, own, shape)

    def have(self, value: Value, own: TosaValue, shape: Sequence[int]) -> TosaValue:
        buffer = self.views.buffers.value(value.id, value.dtype, value.type.size)
        self.views.put(buffer, Written(own, 0, tuple(shape), dense(shape)))
        return own

    def node(self, node: Node) -> None:
        """A TosaRefusal where one of its commands has no exact form."""
        run = commands_of(self.graph, node, self.numerics, self.last, self.views.buffers)
        at = 0
        while at < len(run):
            name = run[at].opcode.lower()
            if name not in COMMANDS:
                raise TosaRefusal(f"the command {run[at].opcode} has no TOSA form")
            form: Form = COMMANDS[name]
            at += form(self, run[at:])

    def output(self, value: Value) -> TosaValue:
        """The tensor of a value, in C order."""
        shape = value.type.shape or (1,)
        buffers = self.views.buffers
        own = buffers.value(value.id, value.dtype, value.type.size)
        steps = dense(shape) if value.id not in self.last else strides_of(value.type.shape, True)
        return self.views.view(own, 0, shape, steps, value.dtype)

    def constant(self, c: TensorCommand, name: str) -> Array:
        """An operand that must be constant, flat, in 64 bits."""
        found = self.views.constant(c[name])
        if found is None:
            raise TosaRefusal(f"{c.opcode}: {name} is no constant")
        return found.reshape(-1).astype(np.int64)

    def peak(self, c: TensorCommand, name: str) -> int:
        """The largest magnitude of an operand's centred codes."""
        lo, hi = ELEMENTS[c[f"{name}_type"]].range
        return max(abs(lo - c[f"{name}_zero"]), abs(hi - c[f"{name}_zero"]))

    def sum_peak(self, c: TensorCommand, peak: int, more: bool = True) -> int:
        """The largest magnitude of a buffer's sums with those of a command, `more` where they add up."""
        own, _ = self.views.buffers.at(c["acc"])
        before = self.peaks.get(own.number, 0)
        self.peaks[own.number] = before + peak if c["accumulate"] and more else max(before, peak)
        return self.peaks[own.number]

    def centred(
        self, c: TensorCommand, name: str, dims: Sequence[int] = (), order: Sequence[int] = ()
    ) -> TosaValue:
        """An operand's codes less its zero point, in 32 bits."""
        read = self.views.read(c, name, dims, order)
        return self.t.centred(read, c[f"{name}_zero"] - less(c[f"{name}_type"]))


def to_tosa(graph: Graph, numerics: Numerics) -> TosaModel:
    """A ModelError with the list of layers that have no exact form in TOSA's integer profile."""
    network = network_of(graph, "a TOSA file of the integer profile computes in integers only")
    fixed = {value.id for _, value in (*network.inputs, *network.outputs)}
    last = channels_last(network.graph, network.nodes, numerics, fixed)
    b = TosaBuilder(network.graph, numerics, last)
    inputs = [TosaEnd(name, b.input(value, name), less(value.dtype)) for name, value in network.inputs]
    refused = []
    for node in network.nodes:
        try:
            b.node(node)
        except TosaRefusal as why:
            refused.append(f"{node.name} ({op_name(node)}): {why}")
            for name in node.outputs:
                if name:
                    value = network.graph.values[name]
                    b.have(value, b.t.new(value.type.shape or (1,), "int8"), value.type.shape or (1,))
    if refused:
        more = f"; and {len(refused) - MOST} more" if len(refused) > MOST else ""
        raise ModelError(
            f"{counted(len(refused), 'layer')} without an exact TOSA form: {'; '.join(refused[:MOST])}{more}",
            because="every number of the file is the program's, or there is no file",
            hint="npuflow export c writes every operator that has integers; in 8 bits, for a target that "
            "rounds half up, most have a form", code="NF-PROGRAM-141",
        )
    return _model(b, network, inputs)


def _model(b: TosaBuilder, network: IntegerNetwork, inputs: list[TosaEnd]) -> TosaModel:
    outputs, taken = [], {end.value.name for end in inputs}
    for name, value in network.outputs:
        made = b.output(value)
        if made.name in taken:
            made = b.t.op("IDENTITY", [made], made.shape, made.dtype)
        taken.add(made.name)
        outputs.append(TosaEnd(name, made, less(value.dtype)))
    whole = b.t.network([end.value for end in inputs], [end.value for end in outputs])
    counts = Counter(one.name for one in whole.operators if not one.name.startswith("CONST"))
    return TosaModel(whole, tuple(inputs), tuple(outputs), dict(counts))
