"""Outputs that join tensors are judged tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session
from npuflow.strategies import NARROW
from npuflow.testing.rule import graph_of
from npuflow.tune.parts import OutputPart, output_parts
from npuflow.tune.quality import energies, noise_of, quality
from tests.networks.onnx_text import model, normal
from tests.precision.harnesses import harness_of

HEADS = (
    "s = Sigmoid(x) b = Add(x, x) j = Concat<axis=1>(b, s) t = Sigmoid(z) c = Add(z, z)"
    " k = Concat<axis=1>(c, t) m = Concat<axis=2>(j, k) y = Transpose<perm=[0,2,1]>(m)"
)
BOTH = "float[1,4,6] x, float[1,4,5] z => float[1,11,8] y"


def graph(body: str, signature: str) -> Graph:
    return rewrite(graph_of(model(signature, body))).graph


def values(one: Graph) -> dict[str, Array]:
    feeds = {i: normal(k, *one.type(i).shape) for k, i in enumerate(one.inputs)}
    names = [o for n in one.nodes for o in n.outputs]
    return dict(zip(names, host_session(export_model(one, names)).run(names, feeds), strict=True))


def test_parts_are_the_tensors_that_are_joined() -> None:
    """Whatever turns and reshapes them behind the join, each part has its elements in their own order."""
    body = (
        "s = Sigmoid(x) b = Add(x, x) j = Concat<axis=1>(b, s) t = Transpose<perm=[0,2,1]>(j) y = Flatten(t)"
    )
    one = graph(body, "float[1,4,6] x => float[1,48] y")
    found, made = output_parts(one), values(one)
    assert [(p.name, p.value) for p in found] == [("y (b)", "b"), ("y (s)", "s")]
    for part in found:
        np.testing.assert_array_equal(part.of(made["y"]), made[part.value])


def test_parts_of_one_operator_are_one() -> None:
    one = graph(HEADS, BOTH)
    found, made = output_parts(one), values(one)
    assert [p.name for p in found] == ["y (b and 1 more)", "y (s and 1 more)"]
    scores = np.concatenate([made["s"].ravel(), made["t"].ravel()])
    np.testing.assert_array_equal(found[1].of(made["y"]), scores)
    places = np.concatenate([p.at for p in found if p.at is not None])
    assert np.array_equal(np.sort(places), np.arange(made["y"].size))


@pytest.mark.parametrize("body", ["a = Add(x, x) b = Add(x, a) y = Concat<axis=1>(a, b)", "y = Add(x, x)"])
def test_an_output_of_one_operator_is_whole(body: str) -> None:
    one = graph(body, "float[1,4,6] x => float[1,n,6] y")
    (part,) = output_parts(one)
    assert (part.output, part.name, part.value, part.at) == (0, "y", "y", None)


def test_lost_scores_are_seen() -> None:
    """Boxes of some hundred pixels beside scores that are all 0: 60 dB over the whole."""
    one = graph("s = Sigmoid(x) b = Add(x, x) y = Concat<axis=1>(b, s)", "float[1,16,6] x => float[1,32,6] y")
    rng = np.random.default_rng(0)
    truth = [
        np.concatenate([rng.uniform(0, 300, (1, 16, 6)), rng.uniform(0, 0.4, (1, 16, 6))], 1) for _ in "abc"
    ]
    made = [a.copy() for a in truth]
    for array in made:
        array[:, 16:] = 0
    boxes, scores = quality(one, [truth], [made])
    assert (boxes.name, boxes.sqnr) == ("y (b)", 200.0)
    assert scores.name == "y (s)" and abs(scores.sqnr) < 0.1 and scores.agreement is None


def test_faint_scores_are_judged_by_what_they_add_up_from() -> None:
    """A tenth of the logarithm of odds in error is about 20 dB where there is no object; where there are
    many, scores are compared as they are."""
    one = graph("y = Sigmoid(x)", "float[1,16,6] x => float[1,16,6] y")
    odds = np.linspace(0.5, 4, 96).reshape(1, 16, 6)
    truth, made = (1 / (1 + np.exp(-(odds * by - 6))) for by in (1.0, 1.1))  # at most 0.2, from 1 / 245 on
    (found,) = quality(one, [[truth]], [[made]])
    size = np.linalg.norm(odds - 6 + np.log(511))
    assert found.sqnr == pytest.approx(20 * np.log10(size / np.linalg.norm(0.1 * odds)), abs=0.1)
    assert found.agreement is None
    truth, made = (1 / (1 + np.exp(-(odds * by + 1))) for by in (1.0, 1.1))  # all above 0.5
    (found,) = quality(one, [[truth]], [[made]])
    wanted = 20 * np.log10(np.linalg.norm(truth) / np.linalg.norm(truth - made))
    assert found.sqnr == pytest.approx(wanted, abs=0.01) and found.agreement == 1.0


def test_noise_of_a_faint_map_is_that_of_the_scores_it_gives() -> None:
    """Logits of -30 are scores of 0, as are those of -10: the probe in front of the Sigmoid does not see
    them, where the bare logits drown what the few scores lose."""
    one = graph("h = Add(x, x) y = Sigmoid(h)", "float[1,16,16] x => float[1,16,16] y")
    logits = np.full((1, 16, 16), -15.0, np.float32)
    logits[0, 0, :4] = -0.5
    harness = harness_of(one, feeds=[{"x": logits}] * 12)
    truth, far, near = 2 * logits, 2 * logits, 2 * logits
    far[0, 1:] += 20.0
    near[0, 0, :4] -= 1.0

    def noise(made: np.ndarray, parts: list[OutputPart]) -> float:
        return float(noise_of([[truth]], [[made]], parts, energies([[truth]], parts))[0, 0])

    assert noise(far, harness._probes) == 0.0
    assert noise(near, harness._probes) > 10 ** (-20 / 10) and noise(near, [OutputPart(0)]) < 10 ** (-40 / 10)


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
def test_numbers_cast_at_the_end_are_judged_as_they_were(kind: str) -> None:
    """A search for widths would look for nothing, and so find nothing to widen."""
    number = {"float": 1, "double": 11, "float16": 10}[kind]
    body = f"t = Transpose<perm=[0,2,1]>(x) a = MatMul(x, t) y = Cast<to={number}>(a)"
    one = graph(body, f"float[1,64,64] x => {kind}[1,64,64] y")
    (part,) = output_parts(one)
    assert part.name == "y" and one.type(part.value).dtype == "float32"
    harness = harness_of(one)
    noise = harness.judge.noise(harness.mixed((NARROW,) * len(harness.names), harness.judge.held[:2]))
    assert noise.shape == (2, 1) and 0 < noise.max() < 1e-3
    assert harness.together(range(len(harness.names)), NARROW, 2).max() > 0


def test_whole_numbers_cast_at_the_end_are_no_part() -> None:
    assert not output_parts(graph("y = Cast<to=7>(x)", "float[1,4,6] x => int64[1,4,6] y"))
