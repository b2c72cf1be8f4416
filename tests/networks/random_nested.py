"""Random networks with a loop in the body of a loop: one with a Scan in it is the body of another Scan.

    python -m tests.networks.random_nested FIRST BEHIND [graphs]

prints what differs of the seeds, from the file of ONNX to the program: see `random_loops.py`. Front ends
write inner loops of few steps out; with `graphs` borders are put around a graph instead, and these stay; with
`long` they and the loops around them have rounds.
"""

from __future__ import annotations

import sys
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper

from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import EXPORT_OPSET, run
from npuflow.onnx.types import value_info
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.rule import graph_of
from tests.networks import random_loops
from tests.networks.random_loops import LoopDraw, LoopSubject, grow, ran

ROUNDS = (10, 11, 12)                     # steps of loops in plans that have some of both
SHORT, LONG = (1, 2, 3, 4, 5, 6), (4, 5, 6, 8, 9, 10)
OUTER, INNER = (4, 5, 6, 9, 12, 14, 17), (1, 2, 2, 3, 4, 5, 6)


def nested(seed: int) -> tuple[LoopDraw, bytes]:
    """A network with a loop as the body of a Scan: its inputs are parts of tensors, carried from an output of
    the same shape, or captured."""
    held, random_loops.STEPS = random_loops.STEPS, INNER
    try:
        d, graph = grow(seed)
    finally:
        random_loops.STEPS = held
    body, steps = onnx.ModelProto.FromString(export_model(graph)).graph, d.rng.choice(OUTER)
    free = {o: graph.type(o) for o in graph.outputs}
    states, slices, captured = list[tuple[str, str]](), list[str](), list[str]()
    for k, name in enumerate(graph.inputs):
        match = next((o for o, kind in free.items() if kind == graph.type(name)), None)
        if k and match is not None and d.chance(0.7):
            free.pop(match)
            states.append((name, match))
        elif k and d.chance(0.3):
            captured.append(name)
        else:
            slices.append(name)
    return d, _scan(body, graph, steps, (states, slices, captured))


def _scan(
    body: onnx.GraphProto, graph: Graph, steps: int, ports: tuple[list[tuple[str, str]], list[str], list[str]]
) -> bytes:
    states, slices, captured = ports
    for own, made in states:
        body.node.append(helper.make_node("Tanh", [made], [f"{own}_next"]))
    rows = list(graph.outputs)
    inner = [*(own for own, _ in states), *slices]
    results = [*((f"{own}_next", graph.type(own)) for own, _ in states), *((o, graph.type(o)) for o in rows)]
    del body.input[:], body.output[:]
    body.input.extend(value_info(name, graph.type(name)) for name in inner)
    body.output.extend(value_info(name, kind) for name, kind in results)
    node = helper.make_node(
        "Scan", [*(f"{own}_first" for own, _ in states), *(f"{name}_all" for name in slices)],
        [*(f"{own}_last" for own, _ in states), *(f"{name}_all" for name in rows)], "walk",
        body=body, num_scan_inputs=len(slices),
    )

    def whole(name: str) -> TensorType:
        return TensorType((steps, *graph.type(name).shape))

    ins = [*(value_info(f"{own}_first", graph.type(own)) for own, _ in states),
           *(value_info(f"{name}_all", whole(name)) for name in slices),
           *(value_info(name, graph.type(name)) for name in captured)]
    outs = [*(value_info(f"{own}_last", graph.type(own)) for own, _ in states),
            *(value_info(f"{name}_all", whole(name)) for name in rows)]
    outside, opsets = helper.make_graph([node], "nested", ins, outs), [helper.make_opsetid("", EXPORT_OPSET)]
    made = helper.make_model(outside, opset_imports=opsets, ir_version=10)
    return bytes(made.SerializeToString())


def subject(seed: int) -> LoopSubject | None:
    """None: the seed's values are not finite, or no loop is left of it."""
    d, data = nested(seed)
    graph = rewrite(graph_of(data)).graph
    if not loops(graph):
        return None
    rng = np.random.default_rng(seed)
    feed = {i: rng.normal(0, 1, graph.type(i).shape).astype(np.float32) for i in graph.inputs}
    d.nodes[:] = graph.nodes               # which schemes name
    one = ran(d, graph, feed)
    if one is not None:
        wanted = run(data, {i: feed[i] for i in graph.inputs})
        for name, array in zip(graph.outputs, wanted, strict=True):
            np.testing.assert_allclose(
                one.values[name], array, 1e-3, 1e-4 * max(1.0, float(np.abs(array).max(initial=0)))
            )
    return one


def around(
    seed: int, inner: tuple[int, ...] = SHORT, outer: tuple[int, ...] = LONG
) -> tuple[LoopDraw, Graph] | None:
    """A graph with loops as the body of a loop; None: something in it depends on constants alone, which is no
    body's. `inner`, `outer`: numbers of steps."""
    held, random_loops.STEPS = random_loops.STEPS, inner
    try:
        d, graph = grow(seed)
    finally:
        random_loops.STEPS = held
    steps, known = d.rng.choice(outer), set(graph.inputs)
    for node in graph.nodes:
        known.update(node.outputs if not known.isdisjoint(node.inputs) else ())
    if any(not known.issuperset(node.outputs) for node in graph.nodes if not node.op.border_of_loop):
        return None
    if any(known.isdisjoint(loop.inputs) for loop in loops(graph)):
        return None
    values, nodes, inputs, ends = dict(graph.values), list[Node](), list[str](), list[Node]()
    free = {o: graph.type(o) for o in graph.outputs}

    def put(to: list[Node], kind: str, source: str, out: str, shape: tuple[int, ...], **said: object) -> str:
        op = OPS[f"loop{kind}"](loop="walk", steps=steps, **said)
        to.append(Node(op, (source,), (out,), (f"walk_{out}",)))
        values[out] = Value(out, TensorType(shape, "float32"))
        return out

    def whole(name: str) -> tuple[int, ...]:
        shape = graph.type(name).shape
        return (steps * shape[0], *shape[1:]) if shape else (steps,)

    for k, name in enumerate(graph.inputs):
        shape, given = graph.type(name).shape, f"{name}_given"
        inputs.append(given)
        match = next((o for o, kind in free.items() if kind == graph.type(name)), None)
        if k and match is not None and d.chance(0.7):
            free.pop(match)
            values[given] = Value(given, TensorType(shape, "float32"))
            put(nodes, "carry", given, name, shape, index=k)
            bounded = f"{name}_next"
            ends.append(Node(OPS["tanh"](), (match,), (bounded,), (bounded,)))
            values[bounded] = Value(bounded, TensorType(shape, "float32"))
            put(ends, "last", bounded, f"{name}_last", shape, index=k)
        elif k and d.chance(0.3):
            values[given] = Value(given, TensorType(shape, "float32"))
            put(nodes, "capture", given, name, shape)
        else:
            values[given] = Value(given, TensorType(whole(name), "float32"))
            put(nodes, "slice", given, name, shape, reverse=d.chance(0.4))
    for name in graph.outputs:
        put(ends, "stack", name, f"{name}_rows", whole(name), reverse=d.chance(0.3))
    given = tuple(n.outputs[0] for n in ends if n.op.border_of_loop)
    made = Graph(tuple(inputs), given, (*nodes, *graph.nodes, *ends), MappingProxyType(values), graph.consts)
    return d, verify(made, f"seed {seed}")


def graph_subject(seed: int) -> LoopSubject | None:
    """None: there is no such graph, or its values are not finite."""
    return _subject(seed, around(seed))


def long_subject(seed: int) -> LoopSubject | None:
    """The same with loops that are long enough for rounds of both."""
    return _subject(seed, around(seed, ROUNDS, ROUNDS))


def _subject(seed: int, found: tuple[LoopDraw, Graph] | None) -> LoopSubject | None:
    if found is None:
        return None
    d, graph = found
    rng = np.random.default_rng(seed)
    feed = {i: rng.normal(0, 1, graph.type(i).shape).astype(np.float32) for i in graph.inputs}
    d.nodes[:] = graph.nodes               # which schemes name
    return ran(d, graph, feed)


if __name__ == "__main__":
    drawn = long_subject if "long" in sys.argv else graph_subject if "graphs" in sys.argv else subject
    random_loops.main(int(sys.argv[1]), int(sys.argv[2]), drawn)
