"""Gives a network whose file says a batch of 1 another batch.
Types are inferred anew, shapes that operators hold are rewritten, and every value is compared with that of
the samples one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.ir.graph import Graph, constant, prune
from npuflow.ir.op import Node, Op
from npuflow.ir.types import Array, TensorType, Value
from npuflow.onnx.export import export_model
from npuflow.onnx.run import CannotRunError, run
from npuflow.place.place import op_name

TRIED = 2  # samples that the values are compared on
ATOL, RTOL = 1e-4, 1e-3  # float32 in another order of sums
LARGEST = 1 << 30  # bytes of constants above which no runtime is given the whole network


def with_batch(graph: Graph, batch: int) -> Graph:
    """The graph for `batch` samples at once: the first dimension of every input, 1 in the file, is `batch`.
    A ModelError names the first operator whose result for several samples is not that of each."""
    sizes = {graph.type(i).shape[:1] for i in graph.inputs}
    if sizes == {(batch,)}:
        return graph
    for name in graph.inputs:
        if graph.type(name).shape[:1] != (1,):
            raise ModelError(
                f'the input "{name}" has no batch that could become {batch}',
                because=f"its shape is {list(graph.type(name).shape)}, and a batch is a first dimension of 1",
                hint="[model] batch is for models whose inputs all begin with a dimension of 1",
                code="NF-MODEL-371",
            ).at(value=name)
    if sum(a.nbytes for a in graph.consts.values()) < LARGEST:
        _compare(graph, _Batched(graph, TRIED, batch))
    return _Batched(graph, batch, batch).graph


class _Batched:
    """A graph made anew for a batch. `axes`: the dimension of each value that holds the samples; `wanted`:
    the batch that was asked for, which messages name."""

    def __init__(self, graph: Graph, batch: int, wanted: int) -> None:
        self.old, self.batch, self.wanted = graph, batch, wanted
        self.axes: dict[str, int] = dict.fromkeys(graph.inputs, 0)
        self.values: dict[str, Value] = dict(graph.values)
        self.consts: dict[str, Array] = dict(graph.consts)
        for name in graph.inputs:
            self._put(name, self._scaled(graph.type(name), 0))
        nodes = tuple(self._node(n) if any(i in self.axes for i in n.inputs) else n for n in graph.nodes)
        self.graph = prune(
            graph.replaced(
                nodes=nodes,
                values=MappingProxyType(self.values),
                consts=MappingProxyType(self.consts),
            )
        )

    def _put(self, name: str, kind: TensorType) -> None:
        self.values[name] = replace(self.values[name], type=kind)

    def _scaled(self, kind: TensorType, axis: int) -> TensorType:
        shape = kind.shape
        return replace(kind, shape=(*shape[:axis], shape[axis] * self.batch, *shape[axis + 1 :]))

    def _node(self, node: Node) -> Node:
        for inputs, op, axes in self._candidates(node):
            for name in inputs:
                if name not in self.values:
                    value, held = constant(name, self._repeated(name))
                    self.values[name] = value
                    self.consts |= held
            for output, axis in zip(node.outputs, axes, strict=True):
                if output:
                    self._put(output, self._scaled(self.old.type(output), axis))
                    self.axes[output] = axis
            return replace(node, op=op, inputs=inputs)
        raise refusal(node, self.wanted, "its result for several samples is not that of each of them")

    def _candidates(self, node: Node) -> Iterator[tuple[tuple[str, ...], Op, tuple[int, ...]]]:
        """Inputs, operator, and where its results hold the samples, the plainest first."""
        old = [self.old.type(o) if o else None for o in node.outputs]
        choices = dict.fromkeys((node.inputs, self._with_repeats(node)))
        for inputs in choices:
            made: tuple[TensorType, ...] = ()
            with suppress(Exception):  # shapes that do not go together: an operator says so in its own way
                made = node.op.infer(*(self._type(i) if i else None for i in inputs))
            axes = tuple(self._axis(a, b) for a, b in zip(old, made, strict=False))
            if len(axes) == len(old) and None not in axes:
                found = tuple(a for a in axes if a is not None)
                if len(choices) == 1 or self._equal(node, node.op, inputs, found):
                    yield inputs, node.op, found
        for inputs in choices:
            for axis in self._likely(node, [kind.shape for kind in old if kind is not None]):
                kinds = [self._scaled(kind, axis) if kind is not None else TensorType(()) for kind in old]
                op = node.op.with_results(kinds)
                if op is not None and self._equal(node, op, inputs, (axis,) * len(old)):
                    yield inputs, op, (axis,) * len(old)

        if node.op.hosted:
            yield from self._measured(node, old)

    def _measured(
        self, node: Node, old: Sequence[TensorType | None]
    ) -> Iterator[tuple[tuple[str, ...], Op, tuple[int, ...]]]:
        """Of a layer of the host, the dimension of each of its results by what it gives."""
        made = self._results(node, node.op, node.inputs)
        if made is None:
            return
        axes = []
        for k, array in enumerate(made[0][: len(old)]):
            parts = [one[k] for one in made[1]]
            fits = [d for d in range(array.ndim) if _alike(np.concatenate(parts, d), array)]
            if not fits and old[k] is not None:
                return
            axes.append(fits[0] if fits else 0)
        kinds = [
            self._scaled(kind, axis) if kind is not None else TensorType(())
            for kind, axis in zip(old, axes, strict=False)
        ]
        op = node.op.with_results(kinds)
        if op is not None and len(axes) == len(old):
            yield node.inputs, op, tuple(axes)

    def _type(self, name: str) -> TensorType:
        if name in self.values:
            return self.values[name].type
        return self._scaled(self.old.type(_source(name)), _axis_of(name))

    def _axis(self, old: TensorType | None, new: TensorType) -> int | None:
        """The one dimension that is larger by the batch; an absent output's does not matter."""
        if old is None:
            return 0
        if len(old.shape) != len(new.shape):
            return None
        apart = [d for d, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if a != b]
        whole = len(apart) == 1 and new.shape[apart[0]] == old.shape[apart[0]] * self.batch
        return apart[0] if whole else None

    def _likely(self, node: Node, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """Dimensions of a result that may hold the samples: first those of size 1, of them the operands'."""
        own = [self.axes[i] for i in node.inputs if i in self.axes]
        rank = min(map(len, shapes), default=0)
        found = [d for d in dict.fromkeys((*own, *range(rank))) if d < rank]
        return sorted(found, key=lambda d: any(shape[d] != 1 for shape in shapes))

    def _with_repeats(self, node: Node) -> tuple[str, ...]:
        """Inputs whose constants, of one sample, are there once for each."""
        axis = next(self.axes[i] for i in node.inputs if i in self.axes)
        rank = max(len(self.old.type(i).shape) for i in node.inputs if i in self.axes)
        found = []
        for name in node.inputs:
            held = self.old.const(name) if name else None
            one = held is not None and held.ndim == rank and held.shape[axis] == 1
            found.append(f"{name}{MARK}{axis}" if one else name)
        return tuple(found)

    def _repeated(self, name: str) -> Array:
        held = self.old.const(_source(name))
        assert held is not None
        return np.repeat(held, self.batch, _axis_of(name))

    def _equal(self, node: Node, op: Op, inputs: Sequence[str], axes: Sequence[int]) -> bool:
        """Whether the operator on all samples gives what the old one gives on each."""
        made = self._results(node, op, inputs)
        return made is not None and all(
            _alike(np.concatenate([p[k] for p in made[1]], axis), array)
            for k, (axis, array) in enumerate(zip(axes, made[0], strict=False))
        )

    def _results(
        self, node: Node, op: Op, inputs: Sequence[str]
    ) -> tuple[Sequence[Array], Sequence[Sequence[Array]]] | None:
        """What the operator gives on all samples of random numbers, and the old one on each."""
        each: list[list[Array | None]] = [[] for _ in range(self.batch)]
        whole: list[Array | None] = []
        for position, name in enumerate(inputs):
            own = self._operands(node.inputs[position], position) if name else [None] * self.batch
            for held, array in zip(each, own, strict=True):
                held.append(array)
            if not name:
                whole.append(None)
            elif MARK in name:
                whole.append(self._repeated(name))
            elif name in self.axes:
                whole.append(np.concatenate([a for a in own if a is not None], self.axes[name]))
            else:
                whole.append(own[0])
        try:
            return op.reference(*whole), [node.op.reference(*one) for one in each]
        except Exception:  # whatever an operator says of arrays that it cannot take
            return None

    def _operands(self, name: str, seed: int) -> list[Array | None]:
        """What each sample has at an operand: a constant is the same for all."""
        held = self.old.const(name)
        if held is not None:
            return [held] * self.batch
        count = self.batch if name in self.axes else 1
        drawn: list[Array | None] = [_random(self.old.type(name), seed * 1000 + k) for k in range(count)]
        return drawn if name in self.axes else drawn * self.batch


MARK = ":batch"  # behind the name of a constant that is there once for each sample


def _source(name: str) -> str:
    return name.rpartition(MARK)[0]


def _axis_of(name: str) -> int:
    return int(name.rpartition(MARK)[2])


def _random(kind: TensorType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(kind.dtype)
    if dtype.kind == "f":
        return rng.normal(size=kind.shape).astype(dtype)
    return rng.integers(0, 2, kind.shape).astype(dtype)


def _alike(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype.kind not in "biufc":
        return one.shape == other.shape and bool(np.all(one == other))
    return bool(np.allclose(one, other, RTOL, ATOL * (1 + np.abs(one).max(initial=0)), equal_nan=True))


def refusal(node: Node, batch: int, because: str) -> NpuflowError:
    """The error for a network that has no such batch, with the operator that is why."""
    return ModelError(
        f"the network cannot be made for a batch of {batch}: {node.name} ({op_name(node)})",
        because=because,
        hint="build it for the file's own batch; npuflow runs several samples one after another",
        code="NF-MODEL-372",
    ).at(value=node.name)


def _compare(graph: Graph, made: _Batched) -> None:
    """All values of the samples together beside those of each, on onnxruntime."""
    feeds = [
        {name: _random(graph.type(name), 100 * k + n) for n, name in enumerate(graph.inputs)}
        for k in range(made.batch)
    ]
    together = {name: np.concatenate([feed[name] for feed in feeds], 0) for name in graph.inputs}
    names = [o for n in graph.nodes for o in n.outputs if o in made.axes and o in made.graph.values]
    try:
        each = [dict(zip(names, run(export_model(graph, names), feed), strict=True)) for feed in feeds]
    except CannotRunError:
        return  # nothing to compare with: the operators were compared one by one
    found: Mapping[str, Array] = {}
    try:
        found = dict(zip(names, run(export_model(made.graph, names), together), strict=True))
    except CannotRunError as fault:
        last = next((n for n in graph.nodes if n.name in str(fault)), graph.nodes[-1])
        raise refusal(last, made.wanted, str(fault)) from None
    producer = graph.producer()
    for name in names:
        if not _alike(np.concatenate([one[name] for one in each], made.axes[name]), found[name]):
            raise refusal(
                producer[name], made.wanted, "its result for several samples is not that of each of them"
            )
