"""Boxes are judged where a score is high; depth, masks and outputs without scores everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array
from npuflow.report.statement import figures
from npuflow.strategies import Budget
from npuflow.tune.parts import output_parts
from npuflow.tune.places import places
from npuflow.tune.precision.output_check import shown
from npuflow.tune.quality import guarded, quality
from tests.networks.floats import Net
from tests.precision.harnesses import harness_of

SIDE, SAMPLES = 12, 10
RNG = np.random.default_rng(4)


def detector(*, sigmoid: bool, last: bool = False, joined: bool = False, least: float = 0.0) -> Graph:
    """One score and four numbers a place; `last`: as rows of anchors; `joined`: in one output; `least`: what
    scores must exceed."""
    net = Net(3, 1, 4, SIDE, SIDE)
    net.conv("c", "x", 8, clip=(0.0, float("inf")))
    score = net.conv("score", "c", 1, 1)
    score = net.add("above", OPS["sub"](), score, net.const("least", least)) if least else score
    score = net.add("map", OPS["sigmoid"](), score) if sigmoid else score
    boxes = net.conv("boxes", "c", 4, 1)
    if joined:
        return net.graph(net.add("y", OPS["concat"](axis=1), boxes, score))
    if last:
        score, boxes = (
            net.add(
                f"{name} rows", OPS["reshape"]((1, SIDE * SIDE, count)),
                net.add(f"{name} last", OPS["transpose"]((0, 2, 3, 1)), name),
            )
            for name, count in ((score, 1), (boxes, 4))
        )
    return net.graph(score, boxes)


def scene(graph: Graph, objects: int, low: float) -> dict[str, Array]:
    """Outputs with objects at some places: scores of 5 or .9 there, `low` elsewhere."""
    found = {o: RNG.normal(size=graph.type(o).shape).astype(np.float32) for o in graph.outputs}
    score = np.full(SIDE * SIDE, low, np.float32)
    score[RNG.permutation(SIDE * SIDE)[:objects]] = 0.9 if low == 0.0 else 5.0
    first = graph.outputs[0]
    if len(graph.outputs) == 1:
        found[first][0, 4] = score.reshape(SIDE, SIDE)
    else:
        found[first] = score.reshape(graph.type(first).shape)
    return found


def outputs(graph: Graph, objects: int, low: float) -> list[list[Array]]:
    scenes = [scene(graph, objects, low) for _ in range(SAMPLES)]
    return [[one[o] for one in scenes] for o in graph.outputs]


def noisy(graph: Graph, truth: list[list[Array]], there: float, elsewhere: float) -> list[list[Array]]:
    """Noise on the boxes, of one size where there is an object and of another where there is none."""
    made = [[a.copy() for a in column] for column in truth]
    for s in range(SAMPLES):
        score = truth[0][s][:, 4:] if len(truth) == 1 else truth[0][s]
        box = made[-1][s][:, :4] if len(truth) == 1 else made[-1][s]
        high = np.broadcast_to(score > 0.5, box.shape)
        box += np.where(high, there, elsewhere) * RNG.normal(size=box.shape).astype(np.float32)
    return made


KINDS = [(True, False, False), (False, False, False), (False, True, False), (True, True, False),
         (True, False, True)]


def of_boxes(graph: Graph, truth: list[list[Array]], made: list[list[Array]]) -> float:
    return next(one.sqnr for one in quality(graph, truth, made) if "boxes" in one.name)


@pytest.mark.parametrize(("sigmoid", "last", "joined"), KINDS)
def test_boxes_are_judged_where_there_are_objects(sigmoid: bool, last: bool, joined: bool) -> None:
    graph = detector(sigmoid=sigmoid, last=last, joined=joined)
    truth = outputs(graph, 6, 0.0 if sigmoid else -5.0)
    assert of_boxes(graph, truth, noisy(graph, truth, 0.01, 1.0)) == pytest.approx(40, abs=1.5)
    assert of_boxes(graph, truth, noisy(graph, truth, 1.0, 0.001)) == pytest.approx(0, abs=1.5)
    assert len(guarded(graph, truth)) == 1


@pytest.mark.parametrize("objects", [0, SIDE * SIDE // 3])
def test_without_objects_or_with_a_mask_of_a_third_they_are_judged_everywhere(objects: int) -> None:
    graph = detector(sigmoid=True)
    truth = outputs(graph, objects, 0.0)
    assert guarded(graph, truth) == {}
    assert of_boxes(graph, truth, noisy(graph, truth, 1.0, 1.0)) == pytest.approx(0, abs=1)


def test_a_sample_without_an_object_says_nothing() -> None:
    """Nine of ten scenes are empty, and noise there counts neither as good nor as bad."""
    graph = detector(sigmoid=True)
    truth, some = outputs(graph, 0, 0.0), outputs(graph, 6, 0.0)
    truth = [[some[i][0], *column[1:]] for i, column in enumerate(truth)]
    (boxes,) = (one for one in quality(graph, truth, noisy(graph, truth, 0.1, 3.0)) if one.name == "boxes")
    assert boxes.sqnr == boxes.low == pytest.approx(20, abs=5)


def test_vectors_and_other_places_are_not_guarded() -> None:
    net = Net(3, 1, 6)
    net.gemm("a", "x", 1)
    net.gemm("boxes", "x", 5)
    vectors = net.graph(net.add("p", OPS["sigmoid"](), "a"), "boxes")
    net = Net(3, 1, 4, SIDE, SIDE)
    net.conv("score", "x", 1, 1)
    boxes = net.add("boxes", OPS["reshape"]((1, 4, 6, 24)), net.conv("c", "x", 4, 1))
    for graph in (vectors, net.graph("score", boxes)):
        truth = [[RNG.normal(size=graph.type(o).shape) - 2 for _ in range(4)] for o in graph.outputs]
        assert places(graph, truth, output_parts(graph)) == (None, None)


def test_the_harness_and_the_verdict_look_at_the_same_places() -> None:
    graph = detector(sigmoid=False)
    judge = harness_of(graph).judge
    judge.truth[0][:] = [np.where(a > np.quantile(a, 0.95), 5.0, -5.0) for a in judge.truth[0]]
    made = [judge.truth[0], [a + 0.1 * (np.asarray(s) < 0) for s, a in zip(*judge.truth, strict=True)]]
    assert judge.noise(made)[:, 1].max() == 0.0
    worse = [judge.truth[0], [a + 0.1 * (np.asarray(s) > 0) for s, a in zip(*judge.truth, strict=True)]]
    assert judge.noise(worse)[:, 1].min() > 0.0


def test_samples_with_objects_come_first() -> None:
    """The first few rank tensors and weights: without an object they show no noise at all."""
    graph = detector(sigmoid=False)
    judge = harness_of(graph).judge
    objects = [0, 0, 6] + [0, 6] * len(judge.held)
    truth = judge.truth[0]
    truth[:] = [scene(graph, n, -5.0)[graph.outputs[0]] for n, _ in zip(objects, truth, strict=False)]
    first = judge.objects_first()
    whose = [next(i for i, one in enumerate(judge.held) if one is mine) for mine in first.held]
    assert whose == sorted(range(len(judge.held)), key=lambda s: objects[s] == 0)
    assert whose != list(range(len(judge.held)))
    everywhere = harness_of(detector(sigmoid=False, joined=False, last=False)).judge
    assert everywhere.where == (None, None) and everywhere.objects_first() is everywhere


def test_a_verdict_says_where() -> None:
    """The bias of the scores is so low that few places are high."""
    plain = harness_of(detector(sigmoid=False))
    graph = detector(sigmoid=True, least=float(np.quantile(np.concatenate(plain.judge.truth[0]), 0.97)))
    judge = harness_of(graph).judge
    made = {one.output.name: one for one in shown(judge, judge.outputs(graph), Budget())}
    assert made["map"].where == "" and made["boxes"].where == "map"
    assert 'where "map" is high' in figures(made["boxes"])


FRAMES = 120


def tracker(*, sigmoid: bool = True, rows: int = 1) -> Graph:
    """A number and a score of every frame; `rows`: of every place of a picture."""
    net = Net(3, 1, 4, rows, FRAMES)
    score = net.conv("score", "x", 1, 1)
    score = net.add("confidence", OPS["sigmoid"](), score) if sigmoid else score
    value = net.conv("value", "x", 1, 1)
    if rows > 1:
        return net.graph(value, score)
    flat = [net.add(f"{name} flat", OPS["reshape"]((1, FRAMES)), name) for name in (value, score)]
    return net.graph(*flat)


def stretches(graph: Graph, share: float) -> list[Array]:
    """Scores near 1 for a share of the frames, in one stretch that moves from sample to sample."""
    shape = graph.type(graph.outputs[1]).shape
    one = (np.arange(FRAMES) < share * FRAMES).astype(np.float32)
    found = [np.roll(one, int(RNG.integers(FRAMES))) * 0.96 + 0.02 for _ in range(SAMPLES)]
    return [np.broadcast_to(row, shape).astype(np.float32) for row in found]


def tracked(scores: list[Array], guessed: float, calm: float, jumping: bool = True) -> list[Array]:
    """Numbers that wander by `calm`; where scores are low (`jumping`) or high they are guesses, as far apart
    as `guessed`."""
    made = []
    for score in scores:
        wander = 10 + calm * RNG.normal(size=score.shape).cumsum(-1)
        guess = 10 + guessed * RNG.normal(size=score.shape)
        made.append(np.where((score < 0.5) == jumping, guess, wander).astype(np.float32))
    return made


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.85])
@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("sigmoid", [True, False])
def test_a_number_is_judged_where_it_is_no_guess(share: float, rows: int, sigmoid: bool) -> None:
    """The pitch of frames beside how sure it is, whatever makes the score: it is known by its values."""
    graph = tracker(sigmoid=sigmoid, rows=rows)
    scores = stretches(graph, share)
    truth = [tracked(scores, 4.0, 0.05), scores]
    value, score = graph.outputs
    assert guarded(graph, truth) == {value: score}
    made = [[a + (s < 0.5) for a, s in zip(*truth, strict=True)], scores]
    assert quality(graph, truth, made)[0].sqnr > 100
    made = [[a + (s > 0.5) for a, s in zip(*truth, strict=True)], scores]
    assert quality(graph, truth, made)[0].sqnr == pytest.approx(20, abs=1)


def test_what_looks_like_a_guess_and_is_none_is_judged_everywhere() -> None:
    """Depth beside a mask of a person; a number beside how unsure it is; one that is nothing, but for noise,
    where the score is low; scores of which few are certain, or all high; and another score."""
    graph = tracker()
    scores = stretches(graph, 0.4)
    noise = [RNG.normal(size=s.shape) * 0.2 for s in scores]
    unsure = [RNG.uniform(0, 1, s.shape).astype(np.float32) for s in scores]
    cases = {
        "depth": [tracked([np.ones_like(s) for s in scores], 0.0, 0.3), scores],
        "unsure": [tracked(scores, 4.0, 0.05, jumping=False), scores],
        "nothing": [[(s > 0.5) * 10 + n for s, n in zip(scores, noise, strict=True)], scores],
        "restless": [tracked(scores, 4.0, 4.0), scores],
        "few certain": [tracked(unsure, 4.0, 0.05), unsure],
        "all": [tracked(scores, 4.0, 0.05), stretches(graph, 1.0)],
        "logits": [tracked(scores, 4.0, 0.05), [10 * s - 5 for s in scores]],
        "a score": [stretches(graph, 0.4), scores],
    }
    for what, truth in cases.items():
        assert guarded(graph, truth) == {}, what
