"""Where values of a model have steps, and how many, by the number that a run has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from npuflow.base.errors import ModelError, Where
from npuflow.base.step_count import EACH, StepCount
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.windows import Window, window_along

NEXT = 2                                  # lengths below the most that are compared of layers with strides
Shape = tuple[int, ...]


@dataclass(frozen=True)
class ValueSteps:
    """Along which dimension a value has steps, and how many."""

    axis: int
    count: StepCount


@dataclass
class Sizes:
    """Shapes of a model's values by number of steps. `at`: reads the model of so many; `known`: models that
    have been read and are kept, and `shapes` those of all."""

    at: Callable[[int], Graph]
    least: int
    most: int
    known: dict[int, Graph] = field(default_factory=dict)
    shapes: dict[int, Mapping[str, Shape]] = field(default_factory=dict)

    def graph(self, steps: int) -> Graph:
        if steps not in self.known:
            self.known[steps] = self.at(steps)
        return self.known[steps]

    def shape(self, value: str, steps: int) -> Shape:
        """Of a value in the model of so many steps; () where that has no such value."""
        if steps not in self.shapes:
            one = self.known[steps] if steps in self.known else self.at(steps)
            self.shapes[steps] = {v: one.type(v).shape for v in one.values}
        return self.shapes[steps].get(value, ())

    def steps(self) -> dict[str, ValueSteps]:
        """Of the values that have as many steps as a run, or fewer behind strides."""
        found, alike = dict[str, ValueSteps](), dict[Shape, StepCount | None]()
        middle = (self.least + self.most) // 2
        first = [self.graph(n) for n in dict.fromkeys((self.most, self.least, middle, self.most - 1))]
        for value in first[0].values:
            if any(value not in one.values for one in first):
                continue
            shapes = [one.type(value).shape for one in first]
            apart = [d for d, sizes in enumerate(zip(*shapes, strict=False)) if len(set(sizes)) > 1]
            if len(apart) != 1 or len({len(shape) for shape in shapes}) > 1:
                continue
            (axis,) = apart
            key = tuple(shape[axis] for shape in shapes)
            if key not in alike:
                alike[key] = self._count(value, axis)
            count = alike[key]
            if count is not None:
                found[value] = ValueSteps(axis, count)
        return found

    def _count(self, value: str, axis: int) -> StepCount | None:
        """How many steps a dimension has; None where it has others than behind strides."""
        def size(steps: int) -> int:
            shape = self.shape(value, steps)
            return shape[axis] if axis < len(shape) else 0

        count = EACH if size(self.most) == self.most else self._behind(size)
        fits = count is not None and all(count.of(n) == size(n) for n in {*self.known, *self.shapes})
        return count if fits else None

    def _behind(self, size: Callable[[int], int]) -> StepCount | None:
        most, least = size(self.most), size(self.least)
        if not 0 < least < most:
            return None
        end = self._first(size, most, self.most)
        if size(end - 1) != most - 1:
            return None
        begin = self._first(size, most - 1, end - 1)
        # where it is the first of all lengths, the stride may be larger: any is right up to the most
        stride = end - begin if begin > self.least else max(end - begin, self.most + 1 - end)
        return StepCount(stride, stride * most - end)

    def _first(self, size: Callable[[int], int], wanted: int, known: int) -> int:
        """The least length of at least so many steps. `known`: one that has them."""
        far, low = 1, known - 1
        while low >= self.least and size(low) >= wanted:
            known, far = low, 2 * far
            low = max(known - far, self.least - 1)
        while known - low > 1:
            middle = (low + known) // 2
            if size(middle) >= wanted:
                known = middle
            else:
                low = middle
        return known

    def need_least(self, dim: str) -> None:
        """A ModelError where the least length leaves nothing to the windows of a layer."""
        fault = self._too_short(self.least)
        if not fault:
            return
        short, least = self.least, self.most
        while least - short > 1:
            middle = (short + least) // 2
            short, least = (middle, least) if self._too_short(middle) else (short, middle)
        raise ModelError(
            f"{dim} = {self.least} is too short", because=fault,
            hint=f'[model] dims {dim} = "{least}..{self.most}"' if least < self.most
            else f"[model] dims {dim} = {self.most}: one length",
            code="NF-MODEL-553",
        )

    def _too_short(self, steps: int) -> str:
        """Why a network of so many steps cannot be; an empty text of one that can."""
        try:
            graph = self.graph(steps)
        except ModelError as fault:
            return f"{fault.message}: {fault.because}" if fault.because else fault.message
        made, whole = graph.producer(), self.graph(self.most)
        for node in whole.nodes:
            twin = made.get(node.outputs[0], node)
            for axis in range(len(whole.type(node.inputs[0]).shape) if node.inputs and node.inputs[0] else 0):
                if node.op.framed(axis, 0, 0) is None:
                    continue
                # a reader leaves to the host what it cannot read as windows
                own = window(graph, twin, axis) if type(twin.op) is type(node.op) else None
                if own is None or own.span > own.before + own.size + own.after:
                    return f"{node.name} reads fewer steps than its windows have"
        return ""

    def compared(self, steps: Mapping[str, ValueSteps]) -> dict[int, Graph]:
        """Networks of fewer steps that a network of the most is compared with."""
        stride = max((own.count.stride for own in steps.values()), default=1)
        wanted = {self.least, (self.least + self.most) // 2, self.most - 1}
        if stride > 1:
            wanted |= {self.most - k for k in range(1, min(stride, NEXT) + 1)}
        return {n: self.graph(n) for n in sorted(wanted) if self.least <= n < self.most}


def window(graph: Graph, node: Node, axis: int) -> Window:
    """The windows of a layer along a dimension of what it reads."""
    return window_along(node.op, graph.type(node.inputs[0]).shape, axis)


def around(graph: Graph, node: Node, axis: int) -> tuple[int, int]:
    """How many steps the windows of a layer reach before the first one, and behind the last one."""
    own = window(graph, node, axis)
    return own.before, (own.out - 1) * own.stride + own.span - own.before - own.size


def need_one_border(
    graph: Graph, others: Mapping[int, Graph], steps: Mapping[str, ValueSteps], dim: str
) -> None:
    """A ModelError where a layer begins its first window elsewhere at some lengths, as those with a stride do
    whose border is chosen for the length."""
    for node, axis in windowed(graph, steps):
        mine, most = around(graph, node, axis)[0], graph.type(node.inputs[0]).shape[axis]
        for count, other in others.items():
            twin = other.producer().get(node.outputs[0])
            if twin is None or (theirs := around(other, twin, axis)[0]) == mine:
                continue
            stride = steps[node.outputs[0]].count.stride // steps[node.inputs[0]].count.stride
            raise ModelError(
                f"{dim} cannot be free: the border of {node.name} depends on the length",
                where=Where(value=node.outputs[0]),
                because=f"its first window begins {mine} before the first of {most} steps, and {theirs} "
                f"before it where {dim} is {count}, as auto_pad SAME has it for a stride of {stride}",
                hint=f"pads of the same width at all lengths, as of a Pad before it; or pad samples to a "
                f"multiple of {stride} steps, with [model] shapes of these",
                code="NF-MODEL-552",
            )


def windowed(graph: Graph, steps: Mapping[str, ValueSteps]) -> Iterator[tuple[Node, int]]:
    """Layers with windows along the steps, and the dimension that has these."""
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else ""
        if source in steps and node.outputs[0] in steps and node.op.framed(steps[source].axis, 0, 0):
            yield node, steps[source].axis
