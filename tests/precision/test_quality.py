"""How close outputs are: dB over all samples and of four in five, and shares of equal
answers, against plain counting."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, TensorType, Value
from npuflow.tune.parts import OutputPart, output_parts
from npuflow.tune.quality import (
    agreement,
    answers,
    energies,
    noise_of,
    probe,
    quality,
)
from tests.networks.floats import Net
from tests.precision.harnesses import mixed_net

RNG = np.random.default_rng(0)


def plain() -> Graph:
    net = Net(1, 1, 6)
    net.gemm("y", "x", 5)
    return net.graph("y")


def classifier(*, moved: bool = False) -> Graph:
    net = Net(1, 1, 6)
    net.gemm("z", "x", 5)
    last = net.add("p", OPS["softmax"](axis=-1), "z")
    return net.graph(net.add("q", OPS["reshape"]((1, 1, 5)), last) if moved else last)


def samples(graph: Graph, count: int, scale: float = 1.0) -> list[list[Array]]:
    return [
        [scale * RNG.normal(size=graph.type(o).shape).astype(np.float32) for _ in range(count)]
        for o in graph.outputs
    ]


def with_noise(truth: list[list[Array]], db: list[float]) -> list[list[Array]]:
    """Each sample with white noise at exactly so many dB."""
    made = []
    for column in truth:
        rows = []
        for a, level in zip(column, db, strict=True):
            noise = RNG.normal(size=a.shape)
            noise *= np.sqrt((a.astype(np.float64) ** 2).sum() / 10 ** (level / 10) / (noise**2).sum())
            rows.append(a.astype(np.float64) + noise)
        made.append(rows)
    return made


def test_decibels_are_pooled_over_samples_and_of_the_fifth_that_is_worst() -> None:
    graph, levels = plain(), [40.0, 30.0, 25.0, 10.0, 35.0, 38.0, 28.0, 33.0, 22.0, 31.0]
    truth = samples(graph, 10)
    truth = [[a / np.sqrt((a**2).sum()) for a in truth[0]]]
    (one,) = quality(graph, truth, with_noise(truth, levels))
    pooled = -10 * np.log10(np.mean([10 ** (-db / 10) for db in levels]))
    assert one.sqnr == pytest.approx(pooled, abs=1e-3)
    # a fifth: the second of ten from below
    assert one.low == pytest.approx(22.0, abs=1e-3) and one.agreement is None


def test_a_loud_sample_decides_the_pooled_figure_and_not_the_other() -> None:
    graph = plain()
    truth = samples(graph, 5)
    truth[0] = [a / np.sqrt((a**2).sum()) for a in truth[0]]
    truth[0][0] = 5 * truth[0][0]
    (one,) = quality(graph, truth, with_noise(truth, [40.0, 12.0, 12.0, 12.0, 12.0]))
    assert one.sqnr == pytest.approx(10 * np.log10(29 / (25e-4 + 4 * 10**-1.2)), abs=0.01)
    assert one.low == pytest.approx(12.0, abs=0.01)


def test_faint_samples_are_held_against_a_tenth_of_the_mean() -> None:
    """An empty mask with a little noise would otherwise be minus infinity."""
    graph = plain()
    truth = samples(graph, 4)
    truth[0][0] = np.zeros_like(truth[0][0])
    signal = energies(truth, [OutputPart(0)])
    own = [float((a.astype(np.float64) ** 2).sum()) for a in truth[0]]
    assert signal[:, 0].tolist() == pytest.approx([0.1 * np.mean(own), *own[1:]])
    made = [[a + np.float32(0.01) for a in truth[0]]]
    noise = noise_of(truth, made, [OutputPart(0)], signal)
    assert noise[0, 0] == pytest.approx(5 * 0.01**2 / signal[0, 0], rel=1e-3) and noise.shape == (4, 1)


def test_values_that_are_no_numbers_are_left_out_but_made_ones_count() -> None:
    graph = plain()
    truth = samples(graph, 2)
    truth[0][0][0, 1] = np.inf
    made = [[a.copy() for a in truth[0]]]
    assert quality(graph, truth, made)[0].sqnr == 200.0
    made[0][1][0, 0] = np.nan
    (one,) = quality(graph, truth, made)
    assert 0 < one.sqnr < 30 and np.isfinite(one.low)
    made[0][1][0, 0] = np.inf
    assert quality(graph, truth, made)[0].sqnr < -100


@pytest.mark.parametrize("moved", [False, True])
def test_answers_of_a_softmax_are_its_arg_max(moved: bool) -> None:
    graph = classifier(moved=moved)
    name = graph.outputs[0]
    assert answers(graph, name)[0] == "argmax"
    truth = [
        np.eye(5, dtype=np.float32)[[k]].reshape(graph.type(name).shape) for k in (0, 1, 2, 3, 4, 0, 1, 2, 3)
    ]
    made = [a.copy() for a in truth]
    made[0] = np.roll(made[0], 1, -1)
    assert agreement(graph, name, truth, truth) == (9 / 10, 9)          # nine right answers do not prove 99 %
    assert agreement(graph, name, truth, made) == (8 / 10, 9)
    assert probe(graph, name) == "z"


def test_few_thresholded_values_are_counted_and_maps_are_compared_by_overlap() -> None:
    graph = mixed_net()
    assert answers(graph, "map")[0] == "threshold" and answers(graph, "y") == ("", 0)
    assert probe(graph, "map") == "heat" and probe(graph, "y") == "y"
    truth, made = np.zeros((1, 2, 8, 8), np.float32), np.zeros((1, 2, 8, 8), np.float32)
    truth[0, 0, 0, :4], made[0, 0, 0, 2:5] = 0.9, 0.9              # 4 pixels, 3 pixels, 2 in both
    assert agreement(graph, "map", [truth], [made]) == (pytest.approx(2 / 5), 0)
    assert agreement(graph, "map", [0.3 * truth], [0.2 * truth]) == (None, 0)    # no pixel is an answer
    net = Net(0, 1, 3)
    small = net.graph(net.add("s", OPS["sigmoid"](), "x"))
    rows = [np.array([[0.2, 0.6, 0.9]], np.float32), np.array([[0.6, 0.4, 0.1]], np.float32)]
    assert agreement(small, "s", rows, [rows[0], 1 - rows[1]]) == (pytest.approx(3 / 7), 6)


def test_outputs_that_are_no_real_numbers_are_not_measured() -> None:
    net = Net(1, 1, 6)
    net.gemm("y", "x", 5)
    graph = net.graph("y")
    values = MappingProxyType({**graph.values, "i": Value("i", TensorType((1,), "int64"))})
    both = Graph(("x",), ("i", "y"), graph.nodes, values, graph.consts)
    assert [part.output for part in output_parts(both)] == [1]


def test_whether_a_map_is_faint_does_not_hang_on_the_number_of_samples() -> None:
    """Two answers a sample: the figure of 5 samples is that of 100 like them."""
    net = Net(0, 1, 100)
    graph = net.graph(net.add("p", OPS["sigmoid"](), "x"))
    few = [np.full((1, 100), 0.01, np.float32) for _ in range(5)]
    for k, a in enumerate(few):
        a.reshape(-1)[[3 * k, 3 * k + 1]] = 0.9
    wrong = [a + 0.02 for a in few]
    (one,), (many,) = (quality(graph, [some], [bad]) for some, bad in ((few, wrong), (20 * few, 20 * wrong)))
    assert one.sqnr == pytest.approx(many.sqnr)
