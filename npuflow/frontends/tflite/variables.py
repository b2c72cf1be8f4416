"""Variables of a TFLite file as states: what one call assigns, the next one reads.

CALL_ONCE's subgraph says what they start with. A state starts with zeros everywhere else in npuflow, so that
of a variable with another start is the difference from it, which is added where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from npuflow.frontends.tflite.known import known
from npuflow.frontends.tflite.schema import Codes, Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.types import Array

HANDLE, READ, ASSIGN, ONCE = VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")
REASON = "Reason"
TRY = "keep the state outside (an input and an output for it)"
Key = tuple[bytes, bytes]                     # container and name


def with_states(network: TfliteNetwork, bodies: Sequence[TfliteNetwork]) -> TfliteNetwork:
    """The network with an input and an output for every variable that it reads before it assigns it;
    `states`: their names. What cannot be a state stays as it is, with the reason among its options."""
    if not any(operator.name in VARIABLES for operator in network.operators):
        return network
    return _Variables(network, _Starts.of(network, bodies)).resolved()


def key_of(operator: Operator) -> Key:
    return operator.options.get("Container") or b"", operator.options.get("SharedName") or b""


@dataclass
class _Starts:
    """What variables hold before the first call, by name; and why CALL_ONCE could not be followed."""

    held: dict[Key, TfliteTensor] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, network: TfliteNetwork, bodies: Sequence[TfliteNetwork]) -> _Starts:
        found = cls()
        for operator in network.operators:
            if operator.name == ONCE:
                number = operator.options.get("InitSubgraphIndex", -1)
                if not 0 < number < len(bodies):
                    found.refused[number] = f"the file has no subgraph {number}"
                elif reason := found.follow(bodies[number]):
                    found.refused[number] = reason
        return found

    def follow(self, graph: TfliteNetwork) -> str:
        """Takes what a subgraph assigns; why it cannot be followed, or nothing."""
        tensors, handles = dict(enumerate(graph.tensors)), dict[int, Key]()
        for operator in graph.operators:
            if operator.name == HANDLE:
                handles[operator.outputs[0]] = key_of(operator)
            elif operator.name == ASSIGN and tensors[operator.inputs[1]].data is not None:
                self.held[handles[operator.inputs[0]]] = tensors[operator.inputs[1]]
            elif operator.name == READ and handles.get(operator.inputs[0]) in self.held:
                tensors[operator.outputs[0]] = self.held[handles[operator.inputs[0]]]
            else:
                held = [tensors[i].data for i in operator.inputs if i >= 0]
                given = [one for one in held if one is not None]
                result = graph.tensors[operator.outputs[0]] if operator.outputs else None
                value = None
                if result is not None and len(given) == len(held):
                    value = known(operator, given, result)
                if result is None or value is None:
                    name = f"{operator.name} {operator.custom}".rstrip()
                    return f"its subgraph holds {name}, which npuflow cannot compute while it reads the file"
                tensors[operator.outputs[0]] = replace(result, data=value, shape=value.shape)
        return ""


@dataclass
class _Variables:
    """`current`: the tensor that a variable is by now; `states`: that which holds it as the call begins."""

    network: TfliteNetwork
    starts: _Starts
    tensors: list[TfliteTensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    handles: dict[int, Key] = field(default_factory=dict)
    current: dict[Key, int] = field(default_factory=dict)
    states: dict[Key, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    assigned: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tensors = list(self.network.tensors)
        for operator in self.network.operators:
            if operator.name == HANDLE:
                at = operator.outputs[0]
                self.handles[at] = key_of(operator)
                self.tensors[at] = replace(self.tensors[at], name=f"{self.tensors[at].name}:handle")
        self.assigned = {
            self.handles[o.inputs[0]]
            for o in self.network.operators
            if o.name == ASSIGN and o.inputs[0] in self.handles
        }

    def resolved(self) -> TfliteNetwork:
        for operator in self.network.operators:
            inputs = tuple(self.places.get(i, i) for i in operator.inputs)
            moved = replace(operator, inputs=inputs)
            reason = self.add(moved)
            if reason:
                said = {**operator.options, REASON: f"{reason}; {TRY}"}
                self.operators.append(replace(moved, options=said))
        for index in self.network.outputs:
            if index in self.places:
                self.same(self.places[index], index)
        pairs = {key: (self.ended(key), at) for key, at in sorted(self.states.items())}
        names = tuple((self.tensors[o].name, self.tensors[i].name) for o, i in pairs.values())
        return replace(
            self.network,
            tensors=tuple(self.tensors),
            operators=tuple(self.operators),
            inputs=(*self.network.inputs, *(i for _, i in pairs.values())),
            outputs=(*self.network.outputs, *(o for o, _ in pairs.values())),
            states=names,
        )

    def add(self, operator: Operator) -> str:
        """Takes an operator; why that cannot be done, or nothing."""
        if operator.name == ONCE:
            return self.starts.refused.get(operator.options.get("InitSubgraphIndex", -1), "")
        if operator.name == HANDLE:
            return ""
        if operator.name not in (READ, ASSIGN):
            self.operators.append(operator)
            return ""
        key = self.handles.get(operator.inputs[0])
        if key is None:
            return "the file does not say which variable it is for"
        if operator.name == READ:
            return self.read(key, operator.outputs[0])
        self.current[key] = operator.inputs[1]
        return self.fits(key, self.tensors[operator.inputs[1]])

    def read(self, key: Key, result: int) -> str:
        tensor, start = self.tensors[result], self.starts.held.get(key)
        if reason := self.fits(key, tensor):
            return reason
        if key not in self.current:
            if start is None:
                return f"nothing gives {said(key)} a value before it is read"
            if key not in self.assigned:
                self.tensors[result] = replace(tensor, data=start.data)
                return ""
            if reason := self.begun(key, result, start):
                return reason
        elif self.current[key] != result:
            self.places[result] = self.current[key]
        return ""

    def fits(self, key: Key, tensor: TfliteTensor) -> str:
        """Why a tensor cannot be the variable's value: its type, shape or scale is not that of the others."""
        others = [self.tensors[self.current[key]]] if key in self.current else []
        others += [self.starts.held[key]] if key in self.starts.held else []
        for other in others:
            for what, one, two in (
                ("type", tensor.dtype, other.dtype),
                ("shape", list(tensor.shape), list(other.shape)),
                ("scale", tensor.codes, other.codes),
            ):
                if one != two and not (what == "scale" and other.data is not None and two is None):
                    return f"{said(key)} has more than one {what}" + (
                        f": {one} and {two}" if what != "scale" else ""
                    )
        return ""

    def begun(self, key: Key, result: int, start: TfliteTensor) -> str:
        """Makes the tensor of the first read the state, or the sum of the state and the start."""
        tensor, held = self.tensors[result], start.data
        assert held is not None
        if tensor.codes is not None and tensor.codes.axis is not None:
            return f"{said(key)} has a scale for each channel"
        plain = bool((held == zero_of(tensor)).all())
        if not plain and tensor.dtype == "bool":
            return f"{said(key)} starts with values that are not zero"
        self.current[key], name = result, shown(key)
        if plain and result not in self.network.outputs:
            self.tensors[result] = replace(tensor, name=self.free(name))
            self.states[key] = result
            return ""
        if plain:                                     # the output has a name of its own
            self.states[key] = self.new(replace(tensor, name=self.free(name)))
            self.same(self.states[key], result)
            return ""
        other = difference(replace(tensor, name=self.free(name)), held)
        self.states[key] = self.new(other)
        self.operators.append(combined("ADD", self.states[key], self.started(key, tensor, held), result))
        return ""

    def ended(self, key: Key) -> int:
        """The tensor that is the state of the next call."""
        state, last = self.tensors[self.states[key]], self.current[key]
        made = self.new(replace(state, name=self.free(f"{state.name}:next")))
        held = self.starts.held[key].data
        if held is None or (held == zero_of(self.tensors[last])).all():
            self.same(last, made)
        else:
            start = self.started(key, self.tensors[last], held)
            self.operators.append(combined("SUB", last, start, made))
        return made

    def started(self, key: Key, like: TfliteTensor, held: Array) -> int:
        return self.new(replace(like, name=self.free(f"{shown(key)}:start"), data=held))

    def same(self, source: int, result: int) -> None:
        self.operators.append(Operator("RESHAPE", (source,), (result,), {}))

    def new(self, tensor: TfliteTensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def free(self, name: str) -> str:
        taken = {tensor.name for tensor in self.tensors}
        while name in taken:
            name += "'"
        return name


def shown(key: Key) -> str:
    container, name = (part.decode(errors="replace") for part in key)
    return f"{container}/{name}" if container else name or "variable"


def said(key: Key) -> str:
    return f'variable "{shown(key)}"'


def zero_of(tensor: TfliteTensor) -> int:
    """How a tensor holds zero."""
    return 0 if tensor.codes is None else tensor.codes.zero[0]


def difference(tensor: TfliteTensor, start: Array) -> TfliteTensor:
    """The type of a value less its start. Codes with one start keep their width, with its code as zero; with
    several the difference of two codes takes 16 bits."""
    if tensor.codes is None:
        return tensor
    if (start == start.flat[0]).all():
        return replace(tensor, codes=Codes(tensor.codes.scale, (int(start.flat[0]),), None))
    return replace(tensor, dtype="int16", codes=Codes(tensor.codes.scale, (0,), None))


def combined(kind: str, one: int, other: int, result: int) -> Operator:
    return Operator(kind, (one, other), (result,), {"FusedActivationFunction": 0})
