"""Moves that cancel, copies that go, equal nodes that are shared, constants that fold."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.testing.rule import RuleSuite
from tests.networks.onnx_text import model, normal, ops, rewritten

GELU = (
    "a = Transpose<perm=[0,2,1]>(x) b = Pow(a, three) d = Mul(b, cubic) e = Transpose<perm=[0,2,1]>(d) "
    "s = Add(x, e) t = Mul(s, root) u = Tanh(t) v = Add(u, one) w = Mul(x, less) y = Mul(w, v)"
)
"""Written for channels last, as a converter lays it out."""


@pytest.mark.parametrize(
    ("signature", "body", "left"),
    [
        (
            "float[2,3,4] x => float[2,3,4] y",
            "a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[0,2,1]>(a) y = Tanh(b)",
            ["tanh"],
        ),
        (
            "float[2,3,4] x => float[4,2,3] y",
            "a = Transpose<perm=[1,0,2]>(x) y = Transpose<perm=[2,1,0]>(a)",
            ["transpose"],
        ),
        ("float[2,3,4] x => float[2,3,4] y", "a = Reshape(x, f) b = Reshape(a, g) y = Tanh(b)", ["tanh"]),
        (
            "float[2,3,4] x => float[6,4] y",
            "a = Reshape(x, f) b = Reshape(a, g) y = Reshape(b, h)",
            ["reshape"],
        ),
        ("float[1,3,4] x => float[3,1,4] y", "y = Transpose<perm=[1,0,2]>(x)", ["reshape"]),
        (
            "float[2,3,4] x => float[2,3,4] y",
            "a = Transpose<perm=[0,2,1]>(x) b = Tanh(a) d = Sigmoid(b) y = Transpose<perm=[0,2,1]>(d)",
            ["tanh", "sigmoid"],
        ),
        (
            "float[2,3,4] x => float[2,4,3] y",
            "a = Transpose<perm=[0,2,1]>(x) s = Tanh(x) b = Transpose<perm=[0,2,1]>(s) y = Add(a, b)",
            ["tanh", "add", "transpose"],
        ),
        (
            "float[2,3,4] x => float[2,3,4] y",
            "a = Transpose<perm=[0,2,1]>(x) b = Mul(a, two) y = Transpose<perm=[0,2,1]>(b)",
            ["mul"],
        ),
        (
            "float[2,3,4] x => float[2,3,4] y",
            "a = Transpose<perm=[0,2,1]>(x) b = Tanh(a) d = Mul(b, two) y = Transpose<perm=[0,2,1]>(d)",
            ["tanh", "mul"],
        ),
        ("float[2,3,4] x => float[2,3,4] y", GELU, ["gelu"]),
    ],
)
def test_moves_cancel(signature: str, body: str, left: list[str]) -> None:
    weights = {
        "f": np.array([24]),
        "g": np.array([2, 3, 4]),
        "h": np.array([6, 4]),
    }
    numbers = {"two": 2.0, "three": 3.0, "cubic": 0.044715, "root": np.sqrt(2 / np.pi), "one": 1.0}
    weights |= {name: np.array(number, np.float32) for name, number in {**numbers, "less": 0.5}.items()}
    assert ops(rewritten(model(signature, body, weights))) == left


def test_different_transposes_stay() -> None:
    body = "a = Transpose<perm=[1,0,2]>(x) b = Transpose<perm=[0,2,1]>(x) d = Tanh(a) y = Add(d, b)"
    assert ops(rewritten(model("float[3,3,3] x => float[3,3,3] y", body))).count("transpose") == 2


@pytest.mark.parametrize(
    "body",
    [
        "a = Identity(x) y = Tanh(a)",
        "a = Dropout(x) y = Tanh(a)",
        "a = Cast<to=1>(x) y = Tanh(a)",
        "a = Concat<axis=0>(x) y = Tanh(a)",
        "a = Sum(x) y = Tanh(a)",
        "a = Pad(x, nothing) y = Tanh(a)",
        "a = Reshape(x, same) y = Tanh(a)",
        "a = Transpose<perm=[0,1]>(x) y = Tanh(a)",
        "a = Slice(x, start, far) y = Tanh(a)",
        "a = Expand(x, same) y = Tanh(a)",
        "a = Clip(x) y = Tanh(a)",
        "a = Tanh(x) y = Identity(a)",
    ],
)
def test_copies_to_the_same_place_go(body: str) -> None:
    weights = {
        "nothing": np.zeros(4, np.int64),
        "same": np.array([3, 4]),
        "start": np.array([0, 0]),
        "far": np.array([99, 99]),
    }
    done = rewritten(model("float[3,4] x => float[3,4] y", body, weights))
    assert ops(done) == ["tanh"] and done.graph.nodes[0].outputs == ("y",)


@pytest.mark.parametrize(
    ("signature", "body", "left"),
    [
        ("float[2,3] x => float[2,3] y", "a = Concat<axis=1>(none, x) y = Tanh(a)", ["tanh"]),
        ("float[2,3] x, float[2,2] z => float[2,5] y", "y = Concat<axis=1>(z, none, x)", ["concat"]),
    ],
)
def test_parts_without_elements_are_left_out(signature: str, body: str, left: list[str]) -> None:
    weights = {"zero": np.array([0]), "one": np.array([1])}
    done = rewritten(model(signature, f"none = Slice(x, zero, zero, one) {body}", weights))
    assert ops(done) == left and "drop_empty" in [one.rule for one in done.applied]


def test_outputs_that_are_inputs_or_the_same_value_keep_their_names() -> None:
    body = "y = Identity(x) t = Tanh(x) z = Identity(t) u = Identity(t)"
    signature = "float[3,4] x => float[3,4] y, float[3,4] z, float[3,4] u"
    assert rewritten(model(signature, body)).graph.outputs == ("y", "z", "u")


def test_constant_outputs_build() -> None:
    body = "y = Tanh(x) z = Constant<value_floats=[1.0, 2.0]>()"
    assert rewritten(model("float[3,4] x => float[3,4] y, float[2] z", body)).graph.outputs == ("y", "z")


def test_equal_nodes_become_one() -> None:
    body = "a = Sigmoid(x) b = Sigmoid(x) d = Tanh(x) e = Add(a, b) y = Mul(e, d)"
    assert sorted(ops(rewritten(model("float[3,4] x => float[3,4] y", body)))) == [
        "add",
        "mul",
        "sigmoid",
        "tanh",
    ]


def test_nodes_with_constants_of_equal_numbers_become_one() -> None:
    """Constants by what they hold, not by their names; in the same place."""
    constants = {"c": normal(1, 4), "d": normal(1, 4), "e": normal(2, 4)}
    body = "a = Max(x, c) b = Max(x, d) f = Max(x, e) g = Tanh(a) h = Sigmoid(b) i = Mul(g, h) y = Mul(i, f)"
    done = rewritten(model("float[3,4] x => float[3,4] y", body, constants))
    assert sorted(ops(done)) == ["max", "max", "mul", "mul", "sigmoid", "tanh"]
    assert [a.rule for a in done.applied].count("share_equal") == 1


@pytest.mark.parametrize(("op", "name"), [("Sum", "add"), ("Max", "max"), ("Min", "min")])
def test_operators_of_many_operands(op: str, name: str) -> None:
    weights = {"w": normal(0, 4)}
    found = ops(
        rewritten(
            model("float[3,4] x, float[3,1] z => float[3,4] y", f"t = Tanh(x) y = {op}(x, z, t, w)", weights)
        )
    )
    assert name in found and not any(f.startswith("host:") for f in found)


def test_shape_arithmetic_folds() -> None:
    body = """s = Shape(x) i = Constant<value_ints=[0]>() n = Gather(s, i) m = Constant<value_ints=[-1]>()
              f = Concat<axis=0>(n, m) a = Reshape(x, f) y = Tanh(a)"""
    done = rewritten(model("float[2,3,4] x => float[2,12] y", body))
    assert ops(done) == ["reshape", "tanh"] and not any(v.const for v in done.graph.values.values())


def shuffled(body: str, out: str = "2,12,3,5", **shapes: tuple[int, ...]) -> bytes:
    """The channels of an image, as rows that are turned."""
    given = {"cut": (2, 3, 4, 3, 5), "back": (2, 12, 3, 5), **shapes}
    return model(
        f"float[2,12,3,5] x => float[{out}] y", body, {k: np.array(v, np.int64) for k, v in given.items()}
    )


TURNED = "a = Reshape(x, cut) b = Transpose<perm=[0,2,1,3,4]>(a) y = Reshape(b, back)"


class TestMergePermutation(RuleSuite):
    name = "merge_permutation"
    applies = (
        shuffled(TURNED),
        shuffled(TURNED.replace("0,2,1,3,4", "0,2,1,3"), cut=(2, 3, 4, 15)),
        shuffled(TURNED.replace("0,2,1,3,4", "0,1,3,2,4,5"), cut=(2, 2, 3, 2, 3, 5)),
    )
    leaves = (
        shuffled(TURNED, out="2,4,9,5", back=(2, 4, 9, 5)),
        shuffled(TURNED.replace("0,2,1,3,4", "1,0,2,3,4")),
        shuffled(TURNED.replace("0,2,1,3,4", "0,2,1"), cut=(24, 3, 5)),
        shuffled(TURNED.replace("b, back)", "b, back) z = Tanh(b)"), out="2,4,3,3,5] z, float[2,12,3,5"),
    )


def test_a_shuffle_is_one_run_of_indices() -> None:
    done = rewritten(shuffled(TURNED))
    (node,) = done.graph.nodes
    assert ops(done) == ["gather"] and len(node.op.moves(done.graph.site(node)) or ()) == 1


@pytest.mark.parametrize(
    ("given", "sizes", "left"),
    [
        ("float[2,9,4] x", (3, 5, 1), ["slice"] * 3),
        ("float[2,9,4] x", (1,) * 9, ["split"]),              # as rows of a sequence are
        ("float[2,9,4] x", (9,), []),
        ("int64[2,9,4] x", (4, 5), ["split"]),
    ],
)
def test_few_parts_of_a_split_are_slices(given: str, sizes: tuple[int, ...], left: list[str]) -> None:
    kind = given.partition("[")[0]
    names = [f"p{k}" for k in range(len(sizes))]
    body = f"{', '.join(names)} = Split<axis=1>(x, s) "
    body += " ".join(f"y{k} = Abs({n})" for k, n in enumerate(names))
    results = ", ".join(f"{kind}[2,{size},4] y{k}" for k, size in enumerate(sizes))
    done = rewritten(model(f"{given} => {results}", body, {"s": np.array(sizes, np.int64)}), feeds={
        "x": normal(3, 2, 9, 4, scale=5.0).astype("float32" if kind == "float" else kind)
    })
    assert [o for o in ops(done) if o in ("split", "slice")] == left
