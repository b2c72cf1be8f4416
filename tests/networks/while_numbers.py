"""WHILEs of TFLite that carry whole numbers, as files: a decoder, and random small bodies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.frontends.tflite_models import Net, reference

STEPS, MOST, WIDE, END = 8, 12, 6, 2
First = np.ndarray | str                          # a constant, or the name of an input
PLAIN = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "MAXIMUM": "MaximumMinimumOptions"}


class Step(Net):
    """Another subgraph of a network's file. `made` gives each result a name of its own."""

    def __init__(self, whole: Net, states: Mapping[str, tuple[Sequence[int], str]]) -> None:
        super().__init__()
        self.model, self.graph = whole.model, schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs.append(self.graph)
        for name, (shape, dtype) in states.items():
            self.tensor(name, shape, dtype)
        self.graph.inputs = list(range(len(states)))

    def new(
        self, kind: str, inputs: Sequence[str], shape: Sequence[int], dtype: str = "float32", **fields: Any
    ) -> str:
        """An operator's result."""
        out = self.tensor(f"{kind.lower()}{len(self.graph.tensors)}", shape, dtype)
        if kind == "SLICE":                       # of a list, whose rows before and behind a place vary
            self.graph.tensors[-1].shapeSignature = [-1, *shape[1:]]
        self.op(kind, inputs, [out], fields.pop("options", PLAIN.get(kind, "")), **fields)
        return out

    def held(self, values: Any, dtype: str = "float32") -> str:
        return self.constant(f"constant{len(self.graph.tensors)}", np.asarray(values, dtype))

    def shaped(self, value: str, shape: Sequence[int], dtype: str) -> str:
        if not shape:
            return self.new("SQUEEZE", [value], (), dtype, options="SqueezeOptions", squeezeDims=[0])
        return self.new("RESHAPE", [value, self.held(np.array(shape), "int32")], shape, dtype)

    def largest(self, value: str, dtype: str = "int32") -> str:
        """Where the largest element of a row is: [1]."""
        kind = getattr(schema.TensorType, dtype.upper())
        inputs, more = [value, self.held(1, "int32")], {"options": "ArgMaxOptions", "outputType": kind}
        return self.new("ARG_MAX", inputs, (1,), dtype, **more)

    def even(self, count: str) -> str:
        rest = self.new("FLOOR_MOD", [count, self.held(2, "int32")], (), "int32")
        return self.new("EQUAL", [rest, self.held(0, "int32")], (), "bool")

    def row(self, table: np.ndarray, place: str) -> str:
        """Of a table, by a place [1]."""
        return self.new("GATHER", [self.held(table), place], (1, table.shape[1]), options="GatherOptions")

    def product(self, value: str, weights: np.ndarray) -> str:
        inputs = [value, self.held(weights), ""]
        return self.new("FULLY_CONNECTED", inputs, (1, len(weights)), options="FullyConnectedOptions")

    def number(self, value: str, dtype: str, shape: Sequence[int]) -> str:
        return self.new("CAST", [value], shape, dtype, options="CastOptions")

    def written(self, rows: str, value: str, at: str, shape: Sequence[int], dtype: str, old: bool) -> str:
        """A list with a row [1, ...] at a place. `old`: as a row between those before and behind it."""
        item = self.shaped(value, (1, *shape[1:]), dtype)
        rest, whole = [0] * (len(shape) - 1), self.held([-1] * len(shape), "int32")
        pack: dict[str, Any] = {"options": "PackOptions", "valuesCount": len(shape)}
        zeros, all_ = (([self.held(v, "int32")] * len(rest)) for v in (0, -1))
        place = self.new("PACK", [at, *zeros], (len(shape),), "int32", **pack)
        if not old:
            return self.new("DYNAMIC_UPDATE_SLICE", [rows, item, place], shape, dtype)
        size = self.new("PACK", [at, *all_], (len(shape),), "int32", **pack)
        behind = self.new("ADD", [place, self.held([1, *rest], "int32")], (len(shape),), "int32")
        start = self.held([0, *rest], "int32")
        parts = [self.new("SLICE", [rows, start, size], (1, *shape[1:]), dtype), item,
                 self.new("SLICE", [rows, behind, whole], (1, *shape[1:]), dtype)]
        return self.new("CONCATENATION", parts, shape, dtype, options="ConcatenationOptions", axis=0)


@dataclass(frozen=True)
class WhileFile:
    """A file of one WHILE with the names of its states; the first one counts."""

    states: Mapping[str, First]
    body: Callable[[Step], Sequence[str]]         # of the states but the first one
    steps: int = STEPS
    ends: Callable[[Step], str] | None = None     # whether it goes on, beside the number of steps
    shown: Sequence[str] = ()
    kinds: Mapping[str, tuple[Sequence[int], str]] | None = None      # of states that are inputs

    @property
    def bound(self) -> int | None:
        """The most steps that a recipe states, where data decide the end."""
        return None if self.ends is None else MOST

    def data(self) -> bytes:
        main = Net()
        main.tensor("x", (1, WIDE))
        for name, (shape, dtype) in (self.kinds or {}).items():
            main.tensor(name, shape, dtype)
        self.into(main, {})
        shown = self.shown or self.states
        return main.done(["x", *(self.kinds or {})], [f"{name}:last" for name in shown])

    def into(self, net: Net, given: Mapping[str, str], mark: str = "last") -> None:
        """Add the WHILE to a network or a step of one; a result has its state's name and the mark. `given`:
        what states begin with instead of theirs."""
        firsts = {"i": np.array(0, np.int32), **self.states, **given}
        inputs = {"x": ((1, WIDE), "float32"), **(self.kinds or {})}
        own = {"i": ((), "int32")}
        for name, first in self.states.items():
            own[name] = inputs[first] if isinstance(first, str) else (first.shape, first.dtype.name)
        count = len(net.model.subgraphs)
        cond, body = Step(net, own), Step(net, own)
        goes = cond.new("LESS", ["i", cond.held(self.steps, "int32")], (), "bool")
        if self.ends is not None:
            goes = cond.new("LOGICAL_AND", [goes, self.ends(cond)], (), "bool")
        cond.graph.outputs = [cond.index[goes]]
        following = ["i", *self.body(body)]
        following[0] = body.new("ADD", ["i", body.held(1, "int32")], (), "int32")
        body.graph.outputs = [body.index[name] for name in following]
        read = [one if isinstance(one, str) else net.constant(f"{name}:first for {mark}", one)
                for name, one in firsts.items()]
        results = [net.tensor(f"{name}:{mark}", *kind) for name, kind in own.items()]
        net.op("WHILE", read, results, "WhileOptions", condSubgraphIndex=count, bodySubgraphIndex=count + 1)


def behind_each_other(one: WhileFile, other: WhileFile) -> bytes:
    """Two WHILEs: the second begins with the first one's state."""
    main = Net()
    main.tensor("x", (1, WIDE))
    one.into(main, {})
    other.into(main, {"h": "h:last"}, "end")
    found = [f"{name}:last" for name in one.states] + [f"{name}:end" for name in other.states]
    return main.done(["x"], found)


def looked_up(one: WhileFile) -> bytes:
    """A WHILE, and rows of a table by the tokens that it has stacked."""
    main = Net()
    main.tensor("x", (1, WIDE))
    one.into(main, {})
    table, count = main.constant("table", weights(6, WIDE, 4)), len(one.states["rows"])
    main.op("GATHER", [table, "rows:last"], [main.tensor("y", (count, 1, 4))], "GatherOptions")
    return main.done(["x"], ["y", "h:last"])


def repeated(one: WhileFile, times: int) -> WhileFile:
    """A WHILE in the body of another one."""
    def body(step: Step) -> list[str]:
        one.into(step, {"h": "h"})
        return ["h:last"]

    return WhileFile({"h": "x"}, body, times)


def weights(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.6, shape).astype(np.float32)


def decoder(ending: bool = False, dtype: str = "int32", alone: bool = False, old: bool = False) -> WhileFile:
    """Takes the likeliest token of each step: its row of a table, a product, a state. `ending`: until a token
    ends it; `alone`: a token without a dimension; `old`: rows as older converters write them."""
    steps = MOST if ending else STEPS
    shape: tuple[int, ...] = () if alone else (1,)

    def body(step: Step) -> list[str]:
        token = step.shaped("t", (1,), dtype) if alone else "t"
        added = step.new("ADD", [step.product("h", weights(3, WIDE, WIDE)),
                                 step.row(weights(4, WIDE, WIDE), token)], (1, WIDE))
        made = step.new("TANH", [added], (1, WIDE))
        place = step.largest(made, dtype)
        following = step.shaped(place, (), dtype) if alone else place
        return [following, made, step.written("rows", place, "i", (steps, 1), dtype, old)]

    def ends(cond: Step) -> str:
        other = cond.new("NOT_EQUAL", ["t", cond.held(np.full(shape, END), dtype)], shape, "bool")
        return other if alone else cond.shaped(other, (), "bool")

    first = {"t": np.zeros(shape, dtype), "h": "x", "rows": np.zeros((steps, 1), dtype)}
    return WhileFile(first, body, steps, ends if ending else None)


def drawn(seed: int) -> WhileFile:
    """A random body: a state of floats that whole numbers of several kinds follow, one of which it reads, or
    which end it in half of all cases."""
    rng = random.Random(seed)
    dtype, alone = rng.choice(("int32", "int64")), rng.random() < 0.3
    kinds = rng.sample(("count", "counts", "most", "swap", "chosen", "turns", "signed"), rng.randint(1, 3))
    shapes: dict[str, tuple[int, ...]] = {"counts": (1, WIDE)}
    one: tuple[int, ...] = () if alone else (1,)
    names = [*kinds, *(["other"] if "swap" in kinds else [])]
    start = {name: np.full(shapes.get(name, one), rng.randrange(WIDE), dtype) for name in names}
    reads = [name for name in names if name in ("most", "swap", "chosen", "turns")]
    limit = rng.uniform(-0.3, 0.3)

    def body(step: Step) -> list[str]:
        value = step.product("h", weights(seed, WIDE, WIDE))
        if reads:
            token = step.shaped(reads[0], (1,), dtype) if alone else reads[0]
            value = step.new("ADD", [value, step.row(weights(seed + 1, WIDE, WIDE), token)], (1, WIDE))
        made = step.new("TANH", [value], (1, WIDE))
        above = step.new("GREATER", [made, step.held(limit)], (1, WIDE), "bool")
        place = step.largest(made, dtype)
        place = step.shaped(place, (), dtype) if alone else place
        ones = step.number(above, dtype, (1, WIDE))
        both: dict[str, Any] = {"options": "ReducerOptions", "keepDims": False}
        axes = step.held([0, 1] if alone else [1], "int32")
        count = step.new("SUM", [ones, axes], one, dtype, **both)
        flag = step.new("GREATER", [count, step.held(WIDE // 2, dtype)], one, "bool")
        found = {
            "count": lambda: step.new("ADD", ["count", count], one, dtype),
            "counts": lambda: step.new("ADD", ["counts", ones], (1, WIDE), dtype),
            "most": lambda: step.new("MAXIMUM", ["most", place], one, dtype),
            "swap": lambda: step.new("SELECT_V2", [flag, "other", "swap"], one, dtype),
            "other": lambda: step.new("SELECT_V2", [flag, "swap", "other"], one, dtype),
            "chosen": lambda: step.new("SELECT_V2", [flag, place, "chosen"], one, dtype),
            "turns": lambda: step.new("SELECT_V2", [step.even("i"), place, "turns"], one, dtype),
            "signed": lambda: step.new("SUB", [step.new("MUL", [place, count], one, dtype),
                                               step.held(WIDE, dtype)], one, dtype),
        }
        return [made, *(found[name]() for name in names)]

    first, wide = int(start[names[0]].flat[0]), names[0] == "counts"
    end = rng.choice([n for n in range(WIDE) if n != first])          # else it never begins

    def ends(cond: Step) -> str:
        value = names[0] if not wide else cond.new(
            "REDUCE_MAX", ["counts", cond.held([1], "int32")], (1,), dtype, options="ReducerOptions")
        other = cond.new("NOT_EQUAL", [value, cond.held(end, dtype)], (1,) if wide else one, "bool")
        return cond.shaped(other, (), "bool") if wide or one else other

    return WhileFile({"h": "x", **start}, body, rng.randint(4, 9), ends if rng.random() < 0.5 else None)


def refused(kind: str, ending: bool = False) -> WhileFile:
    """A WHILE whose whole numbers no loop carries."""
    def body(step: Step) -> list[str]:
        made = step.new("TANH", [step.product("h", weights(5, WIDE, WIDE))], (1, WIDE))
        place = step.largest(made)
        total = step.new("SUM", [made, step.held([1], "int32")], (1,), options="ReducerOptions")
        more = step.new("ADD", [place, step.held([9], "int32")], (1,), "int32")
        last = {
            "no range": lambda: step.new("ADD", ["k", step.number(total, "int32", (1,))], (1,), "int32"),
            "16 bits": lambda: step.new("MUL", ["k", more], (1,), "int32"),
            "an input": lambda: step.new("MAXIMUM", ["k", place], (1,), "int32"),
            "another type": lambda: step.number(place, "int64", (1,)),
            "another shape": lambda: step.new("CONCATENATION", ["k", place], (2,), "int32",
                                              options="ConcatenationOptions"),
        }
        return [made, last[kind]()]

    def ends(cond: Step) -> str:
        low = cond.new("REDUCE_MAX", ["h", cond.held([0, 1], "int32")], (), options="ReducerOptions")
        return cond.new("GREATER", [low, cond.held(0.2)], (), "bool")

    first: First = "k0" if kind == "an input" else np.ones(1, np.int32)
    given = {"k0": ((1,), "int32")} if kind == "an input" else None
    return WhileFile({"h": "x", "k": first}, body, 5, ends if ending else None, kinds=given)


def samples(count: int = 6, seed: int = 1) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(0, 0.7, (count, 1, WIDE)).astype(np.float32))


def witness(data: bytes, *feeds: np.ndarray) -> list[np.ndarray]:
    """What LiteRT computes."""
    return reference(data, feeds, plain=False)
