"""Tensors as a graph: calls in order, names that are unique, what reaches no output left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from npuflow.base.errors import UsageError
from npuflow.frontends import Reading, finished
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.lang.tensor import Call, Tensor


def graph(*outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> Graph:
    """The network of these outputs. `inputs`: their order; those that are found, in order, if not given."""
    return reading(*outputs, inputs=inputs).graph


def reading(*outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> Reading:
    """The network with the codes that its tensors are stated to have, as a front end gives it."""
    wanted = [one for given in outputs for one in ([given] if isinstance(given, Tensor) else given)]
    if not wanted or not all(isinstance(one, Tensor) for one in wanted):
        raise UsageError("a network needs outputs", hint="lang.graph(y)", code="NF-USAGE-095")
    writer = _Writer()
    for one in inputs:
        writer.name(one)
    found = [writer.name(one) for one in wanted]
    return finished(writer.builder, writer.inputs, list(dict.fromkeys(found)))


def page(tensor: Tensor) -> str:
    """What a notebook shows of a tensor: the network that gives it."""
    return repr(tensor).strip("<>") if tensor.array is not None else graph(tensor)._repr_html_()


def save(path: str | Path, *outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> Path:
    """Writes the network as a `.npg` file, which recipes name as their model."""
    from npuflow.ir.packed import pack

    place, read = Path(path), reading(*outputs, inputs=inputs)
    if place.suffix != ".npg":
        raise UsageError(
            f'"{place.name}" does not end in .npg', hint=f"{place.stem}.npg", code="NF-USAGE-096"
        )
    place.write_bytes(pack(read.graph, read.stated))
    return place


@dataclass
class _Writer:
    """Values that were written so far, by tensor."""

    builder: Builder = field(default_factory=Builder)
    inputs: list[str] = field(default_factory=list)
    known: dict[Tensor, str] = field(default_factory=dict)
    results: dict[tuple[Call, str], str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def name(self, tensor: Tensor) -> str:
        """The value of a tensor, written where it is not yet."""
        todo = [tensor]
        while todo:
            missing = [t for t in self.read(todo[-1].base) if t not in self.known]
            if missing:
                todo += missing
                continue
            one = todo.pop()
            if one.base not in self.known:
                self.known[one.base] = self.written(one.base)
            self.known[one] = self.known[one.base]
            if one.quant is not None:
                self.builder.state(self.known[one], one.quant)
        return self.known[tensor]

    def read(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that have to be written before this one."""
        call = tensor.call
        if call is None or tensor in self.known or tensor.array is not None:
            return []
        return [] if (call, tensor.result) in self.results else list(call.inputs.values())

    def written(self, tensor: Tensor) -> str:
        if tensor.array is not None:
            return self.builder.constant(self.free(tensor.name or "constant"), tensor.array)
        if tensor.call is None:
            if tensor.name in self.builder.values:
                raise UsageError(
                    f'two values of the network are called "{tensor.name}"',
                    because="one of them is an input, which keeps its name", hint="rename one",
                    code="NF-USAGE-097",
                )
            self.inputs.append(tensor.name)
            return self.builder.input(tensor.name, tensor.type)
        if (tensor.call, tensor.result) not in self.results:
            self.call(tensor.call)
        return self.results[tensor.call, tensor.result]

    def call(self, call: Call) -> None:
        """The nodes of a call, its inner values under the names of its results."""
        base = call.name if call.name and call.name not in self.builder.values else self.free(
            call.name or call.function
        )
        names = {own: self.known[tensor] for own, tensor in call.inputs.items()}
        for own in call.values:
            number = own.removeprefix("o")
            plain = base if own == "o0" else f"{base}:{number if number.isdigit() else own}"
            names[own] = plain if plain not in self.builder.values else self.free(plain)
            if own in call.arrays:
                self.builder.constant(names[own], call.arrays[own])
        for node in call.nodes:
            outputs = [names[o] if o else "" for o in node.outputs]
            kinds = [call.values[o].type for o in node.outputs if o]
            self.builder.add(node.op, [names[i] if i else "" for i in node.inputs], outputs, (base,), kinds)
        self.results.update({(call, own): names[own] for own in call.values})

    def free(self, name: str) -> str:
        """A name that no value has: with a number from the second on."""
        while True:
            count = self.counts[name] = self.counts.get(name, 0) + 1
            found = name if count == 1 and name not in ("constant",) else f"{name}_{count}"
            if found not in self.builder.values:
                return found
