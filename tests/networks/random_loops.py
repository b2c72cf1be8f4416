"""Random graphs with loops, and what must be equal of each: the loop and the same written out.

    python -m tests.networks.random_loops FIRST BEHIND [long | large] [pairs]

prints what differs of the seeds: values of loops, and what their programs make; and how many of them ran, fit
their targets, and have commands that are repeated. Of the long ones more are; large ones have bodies of up to
12 operators and up to 40 steps. With pairs, two loops have as many steps: where neither needs the other, they
run as one, too.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.checks.agreement import compare
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, contiguous, has_loops, loops, side_of
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import TensorType, Value
from npuflow.ir.unroll import may_nest, rolled, unnested, written_out
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import Interpreter, host_session
from npuflow.search.plan import plan_network
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.sim.hazards import hazards_of
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor
from tests.networks.harness import machine
from tests.networks.random_graphs import extended
from tests.networks.random_operators import MAKERS, Array, Draw
from tests.networks.random_targets import fitting, scheme, target

Feed = Mapping[str, Array]
BOUNDED = ("tanh", "sigmoid", "hardsigmoid", "softsign")
STEPS, LONG, LARGE = (1, 2, 3, 4, 4, 5, 6, 8, 12), (10, 11, 12, 13, 14, 17, 20, 24), (25, 28, 31, 36, 40)
MOST = 8                                  # operators of a body, those that hold and bound left out
PAIRS = False                             # two loops, of as many steps


class LoopDraw(Draw):
    """A graph that grows outside loops and inside them. `arrays`: of the values that may be read there, with
    those that a body's first step may have."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.loops = self.steps = 0

    def add(self, op: Op, inputs: tuple[str, ...]) -> bool:
        """No scalars: not all of the operators that are drawn take them."""
        kinds = op.infer(*(self.values[i].type for i in inputs))
        return all(kind.shape for kind in kinds) and super().add(op, inputs)

    def border(self, kind: str, source: str, of: tuple[int, ...], **said: Any) -> str:
        """A node at a loop's border, whose result has the shape `of`."""
        name = f"b{len(self.nodes)}"
        op = OPS[f"loop{kind}"](loop=f"loop{self.loops}", **said)
        self.nodes.append(Node(op, (source,), (name,), (f"{kind}_{len(self.nodes)}",)))
        self.values[name] = Value(name, TensorType(of))
        self.arrays[name] = self.array(of)
        return name

    def loop(self) -> None:
        """A loop over one or two inputs, with up to three carried values."""
        steps, count = self.rng.choice(STEPS), self.rng.randint(1, MOST)
        steps = self.steps = self.steps if PAIRS and self.steps else steps
        said, outer = {"steps": steps}, self.arrays
        entering: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = []
        shapes = [self._part() for _ in range(self.rng.choice((1, 1, 2)))]
        for shape in shapes:
            whole = (steps * shape[0], *shape[1:])
            source = self.const(whole) if self.chance(0.1) else self.input(whole)
            entering.append(("slice", source, shape, {**said, "reverse": self.chance(0.4)}))
        carried = [self.rng.choice(shapes) if self.chance(0.7) else self._part()
                   for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]
        for k, shape in enumerate(carried):
            entering.append(("carry", self._outside(shape), shape, {**said, "index": k}))
        if self.chance(0.4):
            shape = self.rng.choice(shapes)
            entering.append(("capture", self.input(shape), shape, said))
        mask = ""
        if carried and self.chance(0.3):
            ones = (self.numbers.random((steps * carried[0][0], *[1] * (len(carried[0]) - 1))) < 0.7)
            mask = self.const(ones.shape)
            self.consts.pop(self.values[mask].const)
            self.hold(mask, ones.astype(np.float32))
            entering.append(("slice", mask, (carried[0][0], *ones.shape[1:]), said))
        self.arrays = {}
        names = [self.border(kind, *rest[:2], **rest[2]) for kind, *rest in entering]
        before = names[len(shapes) : len(shapes) + len(carried)]
        first = len(self.nodes)
        for _ in range(40):
            if len(self.nodes) >= first + count:
                break
            seen = [v for v in self.arrays if not v.startswith("c")]
            made = self.rng.choice(MAKERS)(self, seen[-1] if self.chance(0.6) else self.rng.choice(seen))
            # onnxruntime infers other shapes of such windows than it computes, which a Scan does not forgive
            if made is not None and made[0] is not None and not getattr(made[0], "ceil_mode", 0):
                self.add(*made)
        following = [self._following(shape, at) for shape, at in zip(carried, before, strict=True)]
        if mask:
            following[0] = self._held(names[-1], following[0], before[0])
        self._leave(outer, following, steps)

    def hold(self, name: str, array: Array) -> None:
        """Other numbers for a constant."""
        from npuflow.ir.graph import constant

        self.values[name], found = constant(name, array)
        self.consts.update(found)
        self.arrays[name] = array

    def _part(self) -> tuple[int, ...]:
        rank = self.rng.choice((1, 2, 2, 2, 3, 4))
        return tuple(self.rng.randint(1, 4 if rank > 2 else 7) for _ in range(rank))

    def _outside(self, shape: tuple[int, ...]) -> str:
        """What a carried value is before the first step."""
        found = [v for v in self.arrays if self.shape(v) == shape and not v.startswith("c")]
        if found and self.chance(0.4):
            return self.rng.choice(found)
        if self.chance(0.5):
            return self.input(shape)
        name = self.const(shape)
        if self.chance(0.6):
            self.hold(name, np.zeros(shape, np.float32))
        return name

    def _following(self, shape: tuple[int, ...], before: str) -> str:
        """What is carried on: something of the body, bounded as a rule."""
        made = [v for v in self.arrays if self.shape(v) == shape and not v.startswith("c")]
        chosen = made[-1] if self.chance(0.6) else self.rng.choice(made)
        if chosen != before and self.chance(0.5) and self.add(OPS["add"](), (chosen, before)):
            chosen = self.nodes[-1].outputs[0]
        if self.chance(0.75) and self.add(OPS[self.rng.choice(BOUNDED)](), (chosen,)):
            chosen = self.nodes[-1].outputs[0]
        return chosen

    def _held(self, mask: str, new: str, old: str) -> str:
        """The new value where the mask is 1, the old one elsewhere."""
        self.hold(one := self.const(()), np.ones((), np.float32))
        kept = self._made("mul", new, mask)
        stays = self._made("mul", old, self._made("sub", one, mask))
        return self._made("add", kept, stays) or new

    def _made(self, op: str, *inputs: str) -> str:
        """"" where an input is, or the result is too large."""
        made = all(inputs) and self.add(OPS[op](), inputs)
        return self.nodes[-1].outputs[0] if made else ""

    def _leave(self, outer: dict[str, Array], following: list[str], steps: int) -> None:
        """The borders out of the body."""
        read = {i for n in self.nodes for i in n.inputs} | set(following)
        body = [v for v in self.arrays if not v.startswith("c")]
        rows = [v for v in body if v not in read or self.chance(0.1)]
        rows += [v for v in self.arrays if v.startswith("c") and self.shape(v) and self.chance(0.02)]
        if not rows and not following:
            rows = body[-1:]
        shapes = {v: self.shape(v) for v in self.arrays}
        fixed = {v: a for v, a in self.arrays.items() if v.startswith("c")}
        self.arrays = {**outer, **{v: self.arrays.get(v, a) for v, a in outer.items()}, **fixed}
        for value in rows:
            shape = shapes[value]
            whole = (steps * shape[0], *shape[1:]) if shape else (steps,)
            self.border("stack", value, whole, steps=steps, reverse=self.chance(0.3))
        for k, value in enumerate(following):
            self.border("last", value, shapes[value], steps=steps, index=k)
        self.loops += 1


def grow(seed: int) -> tuple[LoopDraw, Graph]:
    """One or two loops, with some operators before, between and behind them."""
    d = LoopDraw(seed)
    if d.chance(0.3):
        d.input(d._part())
        _more(d, d.rng.randint(1, 2))
    for _ in range(2 if PAIRS else d.rng.choice((1, 1, 1, 2))):
        d.loop()
        _more(d, d.rng.choice((0, 1, 2)))
    graph = _more(d, 0)
    lasts = [n.outputs[0] for n in d.nodes if n.op.border_of_loop == "last"]
    outputs = [*graph.outputs, *(v for v in lasts if d.chance(0.5))]
    inside = {o for loop in loops(graph) for i in loop.nodes for o in graph.nodes[i].outputs
              if graph.nodes[i].op.border_of_loop not in ("last", "stack")}
    kept = tuple(dict.fromkeys(v for v in outputs if v not in inside))
    return d, contiguous(graph.replaced(outputs=kept))


def _more(d: LoopDraw, count: int) -> Graph:
    """So many operators more, outside loops."""
    return extended(d, len(d.nodes) + count)


@dataclass(frozen=True)
class LoopSubject:
    """What a seed stands for."""

    graph: Graph
    feed: dict[str, Array]
    values: dict[str, Array]              # of the float session, those of bodies stacked
    config: Quantize
    target: Target


def subject(seed: int) -> LoopSubject | None:
    """None: the seed's values are not finite."""
    d, graph = grow(seed)
    verify(graph, f"seed {seed}")
    rng = np.random.default_rng(seed)
    feed = {i: rng.normal(0, 1, graph.type(i).shape).astype(np.float32) for i in graph.inputs}
    return ran(d, graph, feed)


def ran(d: Draw, graph: Graph, feed: dict[str, Array]) -> LoopSubject | None:
    """A graph with the values of an input, a target and a scheme that are drawn; None: not all are finite."""
    made = [o for n in graph.nodes for o in n.outputs if o]
    values = dict(zip(made, host_session(export_model(graph, made)).run(made, feed), strict=True))
    if not all(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e5 for a in values.values()):
        return None
    chip = target(d)
    return LoopSubject(graph, feed, {**feed, **values}, fitting(scheme(d), chip.numerics), chip)


Drawn = Callable[[int], LoopSubject | None]


def quantised(one: LoopSubject) -> Graph:
    held = {v: one.graph.const(v) for v in one.graph.values}
    arrays = {**{v: a for v, a in held.items() if a is not None}, **one.values}
    ranges = {v: (float(a.min()), float(a.max())) for v, a in arrays.items()}
    placed = place(one.graph, one.target)
    return quantize_graph(one.graph, placed, ranges, one.config, one.target.numerics).graph


def float_differences(one: LoopSubject) -> Iterator[str]:
    """Values of the loop's session against those of the graph written out."""
    straight = written_out(one.graph)
    verify(straight, "written out")
    made = [o for n in straight.nodes for o in n.outputs if o]
    feed = {i: one.feed[i] for i in straight.inputs}
    found = dict(zip(made, host_session(export_model(straight, made)).run(made, feed), strict=True))
    for name, mine, other in pairs(one.graph, one.values, straight, found):
        if not np.allclose(mine, other, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(other).max(initial=0)))):
            yield f"float {name}"


def integer_differences(one: LoopSubject, graph: Graph, whole: bool) -> Iterator[str]:
    """Codes of the quantised loop against those of it written out, by interpreter and executor. `whole`: no
    loop is left to the host, whose floats may differ in a bit."""
    numerics = one.target.numerics
    verify(graph, "quantised")
    straight = written_out(graph)
    verify(straight, "quantised and written out")
    mine, wanted = _interpreted(graph, one.feed, numerics), _interpreted(straight, one.feed, numerics)
    for name, a, b in pairs(graph, mine, straight, wanted):
        if a.shape != b.shape or (not np.array_equal(a, b) if whole else not _near(a, b)):
            yield f"interpreter {name}"
    for what, form, known in (("loop", graph, mine), ("written out", straight, wanted)):
        executed = Executor(form, numerics).run(_fed(form, one.feed), keep=lambda _: True)
        for name in known.keys() | executed.keys():
            if name not in executed and name in form.outputs:
                yield f"executor of the {what} lacks {name}"
            elif name in executed and name in known and not np.array_equal(executed[name], known[name]):
                yield f"executor of the {what} {name}"


def _near(a: Array, b: Array) -> bool:
    """Floats that are equal but for rounding; codes behind floats are not compared."""
    return a.dtype.kind != "f" or np.allclose(a, b, rtol=0.1, atol=0.1 * max(1.0, np.abs(b).max(initial=0)))


def _fed(graph: Graph, feed: Feed) -> Feed:
    return {i: feed[i] for i in graph.inputs}


def _interpreted(graph: Graph, feed: Feed, numerics: Numerics) -> dict[str, Array]:
    return dict(Interpreter(graph, numerics).run(_fed(graph, feed), keep=lambda _: True))


def pairs(
    graph: Graph, mine: Feed, straight: Graph, other: Feed
) -> Iterator[tuple[str, Array, Array]]:
    """Values that both forms have: a body's, step by step, and those of the outside."""
    compared = 0
    for value, names in _names_of_steps(graph):
        arrays = np.split(mine[value], len(names)) if value in mine else []
        for array, name in zip(arrays, names, strict=False):
            found = other[name] if name in other else (
                straight.const(name) if name in straight.values else None
            )
            if found is not None:
                compared += 1
                yield name, array.reshape(found.shape), found
    outside = {v for v in mine if v in other}
    assert outside >= set(graph.outputs) and outside >= set(straight.outputs)
    yield from ((v, mine[v], other[v]) for v in sorted(outside))


def _names_of_steps(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """Values of bodies, and what each is called in all steps, one after the other, where loops are written
    out: of an inner loop all its steps of the first outer one, then those of the second."""
    flat = {loop.name for loop in loops(unnested(graph))}
    for loop in loops(graph):
        inner = {v: one for one in loop.inner for v in _body(graph, one, ())}
        for value in _body(graph, loop, loop.inner):
            yield value, [f"{value}@{k}" for k in range(loop.steps)]
        for value, one in inner.items():
            yield value, [f"{value}@{j}@{k}" if loop.name in flat else f"{value}@{k}@{j}"
                          for k in range(loop.steps) for j in range(one.steps)]


def _body(graph: Graph, loop: Loop, inner: Sequence[Loop]) -> Iterator[str]:
    """The values of a body, without those of loops in it."""
    left_out = {v for one in inner for v in _body(graph, one, ())}
    for i in loop.nodes:
        if side_of(graph.nodes[i], loop) not in ("last", "stack"):
            yield from (o for o in graph.nodes[i].outputs if o and o not in left_out)


def differences(seed: int, drawn: Drawn = subject) -> tuple[list[str], bool]:
    """What differs of a seed, and whether its loops became integers."""
    one = drawn(seed)
    if one is None:
        return [], False
    found = list(float_differences(one))
    graph = quantised(one)
    whole = has_loops(graph) and all(graph.nodes[i].is_integer for loop in loops(graph) for i in loop.nodes)
    return found + list(integer_differences(one, graph, whole)), whole


def program_differences(seed: int, drawn: Drawn = subject) -> tuple[list[str], str]:
    """What differs of the program of a seed, hazards among it; and whether it is "rolled", "nested" with some
    steps of loops in loops, or "straight": its loops are written out; "paired": two of them run as one, too;
    "unfit": it has no plan; or "host": no loop of it runs on the NPU."""
    one = drawn(seed)
    if one is None:
        return [], "host"
    graph = quantised(one)
    if not any(graph.nodes[i].is_integer for loop in loops(graph) for i in loop.nodes):
        return [], "host"
    few, paired = rolled(graph), rolled(graph, True)
    beside = differing(one, graph, paired) if len(paired.rolls) < len(few.rolls) else None
    nested = [rolled(graph, nested=True)] if may_nest(graph) else []
    for form in (*nested, few, written_out(graph)):
        wrong = differing(one, graph, form)
        if wrong is not None:
            inner = any(roll.outer for roll in form.rolls)
            kind = "nested" if inner else "rolled" if form.rolls else "straight"
            return [*wrong, *(beside or ())], kind if beside is None else "paired"
    return [], "unfit"


def differing(one: LoopSubject, graph: Graph, form: Graph, level: int = DEFAULT_LEVEL) -> list[str] | None:
    """What differs of the program of a form; None: it has no plan."""
    numerics = one.target.numerics
    try:
        plan = plan_network(form, machine(one.target), numerics, level)
    except TargetError:
        return None
    program = Program.from_bytes(generate(form, plan, one.target).to_bytes())
    checks = compare(graph, program, numerics, [_fed(graph, one.feed)])
    wrong = [f"program {c.value}" for c in checks if c.different or c.executor]
    return wrong + [f"hazard {h}" for h in hazards_of(program, order_of(program))]


def main(first: int, behind: int, drawn: Drawn = subject) -> None:
    count, kinds = Counter[str](), Counter[str]()
    for seed in range(first, behind):
        try:
            (found, integers), (wrong, kind) = differences(seed, drawn), program_differences(seed, drawn)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            count["failed"] += 1
            continue
        count["all loops in integers"] += integers
        count["differ"] += bool(found or wrong)
        kinds[kind] += 1
        for text in (*found[:3], *wrong[:3]):
            print(f"seed {seed}: {text}", flush=True)
    said = ", ".join(f"{n} {what}" for what, n in (*count.items(), *kinds.items()))
    print(f"{behind - first} seeds from {first} on: {said}", flush=True)


if __name__ == "__main__":
    large, PAIRS = "large" in sys.argv, "pairs" in sys.argv
    STEPS, MOST = LARGE if large else LONG if "long" in sys.argv else STEPS, 12 if large else MOST
    main(int(sys.argv[1]), int(sys.argv[2]))
