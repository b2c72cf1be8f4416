"""Bias correction: means are right afterwards, by an independent account; what does not help is not kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.tune.bias import biased, correct_biases, mean_output, mean_outputs, originals, shifted
from npuflow.tune.improve import ASKED, NETWORK, Trial
from tests.networks.floats import USUAL, Feed, Net, channel_means, floats, integers, quantised
from tests.networks.onnx_cases import through
from tests.networks.onnx_text import model, normal

NAMES = [f"c{i}" for i in range(6)]


def codes(graph: Graph, feed: Feed) -> Feed:
    """Values of a quantised graph under the float graph's names, codes where there are any."""
    found = integers(graph, feed)
    return {
        name.removesuffix(":q"): array for name, array in found.items() if name != "c5" or "c5:q" not in found
    }


def judged(trial: Trial) -> tuple[float, float]:
    """Errors before and after."""
    assert trial.before is not None and trial.after is not None
    return trial.before, trial.after


COARSE = Quantize(weights=Weights(bits=3, per="tensor"))


def chain(seed: int, clip: tuple[float, float] | None = None) -> Net:
    net = Net(seed, 1, 3, 7, 6)
    net.conv("a", "x", 6, spread=1.0, clip=clip)
    net.conv("b", "a", 6, depthwise=True, spread=1.0, bias=False, clip=clip)
    net.conv("c", "b", 5, 1)
    net.add("sum", OPS["add"](), "c", "c")
    net.add("mean", OPS["globalaveragepool"](), "sum")
    net.add("flat", OPS["reshape"]((1, 5)), "mean")
    net.gemm("logits", "flat", 4, beta=0.5)
    return net


def test_a_network_without_biased_layers_stays_as_it_is() -> None:
    net = Net(0, 1, 3, 7, 6)
    net.add("sum", OPS["add"](), "x", "x")
    graph, feeds = net.graph("sum"), net.feeds(4)
    plain = quantised(graph, feeds, Quantize())
    done = correct_biases(graph, plain, USUAL, feeds[:2], feeds[2:])
    assert done.graph is plain and done.trials == ()


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_afterwards_every_layer_has_the_float_layers_means(seed: int) -> None:
    net = chain(seed)
    graph, feeds = net.graph("logits"), net.feeds(6, mean=0.7)
    # Wide activations with room at the ends: what is wrong with the means is the weights' doing alone.
    rough = quantised(graph, feeds, replace(COARSE, activations=Activations(bits=16)), room=4.0)
    done = correct_biases(graph, rough, USUAL, feeds, feeds[:1], ASKED)
    truth = [floats(graph, f) for f in feeds]
    wrong, right = ([integers(g, f) for f in feeds] for g in (rough, done.graph))
    worst_before = 0.0
    for name in ("a", "b", "c", "logits"):
        codes = f"{name}:q" if name == "logits" else name
        values = done.graph.values
        node = next(n for n in done.graph.nodes if codes in n.outputs)
        quant = [values[v].quant for v in (*node.inputs[:2], codes)]
        (of_input, of_weight, step) = (q.scale[0] for q in quant if q is not None)
        bound = step + of_input * of_weight / 2  # the output is rounded, and so is the bias
        zero, most = quant[2].zero_point[0], 2 ** quant[2].bits - 1  # type: ignore[union-attr]
        low, high = -zero * step, (most - zero) * step
        # Sums of one sign in every sample have no codes on the other side: such channels
        # are cut, which no bias mends.
        inside = np.all([(r[codes] > low) & (r[codes] < high) for r in right], axis=0)
        free = inside.all(axis=tuple(range(2, inside.ndim)))[0]
        means = channel_means([t[name] for t in truth])
        assert np.abs(channel_means([r[codes] for r in right]) - means)[free].max(initial=0.0) < bound
        worst_before = max(
            worst_before, np.abs(channel_means([w[codes] for w in wrong]) - means).max() / step
        )
    assert worst_before > 100, "the test must have something to correct"


def test_means_through_clips_are_those_before_the_clip() -> None:
    net = chain(3, clip=(0.0, 1.0))
    graph, feeds = net.graph("logits"), net.feeds(5)
    assert mean_outputs(graph, [], feeds) == {}          # a network without biases
    found = mean_outputs(graph, ["a", "logits"], feeds)
    open_net = chain(3)
    same = [floats(open_net.graph("logits"), f)["a"] for f in feeds]
    assert np.allclose(found["a"], channel_means(same), atol=1e-5)
    assert np.allclose(found["logits"], channel_means([floats(graph, f)["logits"] for f in feeds]), atol=1e-5)


@pytest.mark.parametrize("case", [
    {"kernel": 1}, {"kernel": 3, "pad": 1, "group": 4}, {"kernel": 3, "stride": 2, "pad": 1, "group": 2},
    {"kernel": 2, "dilation": 2, "batch": 3}, {"kernel": 5, "stride": 3, "pad": 2, "batch": 2, "group": 4},
])
def test_the_mean_of_a_convolution_is_that_of_all_its_outputs(
    case: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npuflow.tune.bias.AT_ONCE", 7)          # places in several parts
    k, group, batch = case["kernel"], case.get("group", 1), case.get("batch", 1)
    each = {"strides": case.get("stride", 1), "dilations": case.get("dilation", 1), "kernel_shape": k}
    attributes = ", ".join(f"{name}=[{n}, {n}]" for name, n in each.items())
    attributes += f", group={group}, pads={[case.get('pad', 0)] * 4}"
    weights = {"w": normal(1, 8, 4 // group, k, k), "b": normal(2, 8)}
    text = f"float[{batch},4,9,8] x => float[{batch},8,H,W] y"
    data = model(text, f"y = Conv<{attributes}>(x, w, b)", weights)
    graph = through(data)
    mean = normal(3, batch, 4, 9, 8).astype(np.float64)
    [node] = graph.nodes
    (whole,) = node.op.reference(mean, *(graph.const(v) for v in node.inputs[1:]))
    assert np.allclose(mean_output(graph, node, mean), channel_means([whole]), rtol=1e-12, atol=1e-12)


def test_the_error_falls_and_the_trials_say_so() -> None:
    net = chain(11, clip=(0.0, 2.0))
    graph, feeds = net.graph("logits"), net.feeds(24, mean=0.5)
    rough = quantised(graph, feeds, COARSE)
    fit, held = feeds[8:], feeds[:8]
    done = correct_biases(graph, rough, USUAL, fit, held)
    assert [t.layer for t in done.trials] == ["/a", "/b", "/c", "/logits", NETWORK]

    def error(graph_: object, name: str) -> float:
        pairs = [(floats(graph, f)["logits"], integers(graph_, f)[name]) for f in held]  # type: ignore[arg-type]
        return sum(((a - b) ** 2).sum() for a, b in pairs) / sum(
            (a.astype(float) ** 2).sum() for a, _ in pairs
        )

    last = done.trials[-1]
    before, after = judged(last)
    assert last.kept and after < before
    assert error(rough, "logits") == pytest.approx(before, rel=0.05)
    assert error(done.graph, "logits") == pytest.approx(after, rel=0.05)


def test_what_does_not_hold_on_other_samples_is_rejected() -> None:
    net = chain(5)
    graph, feeds = net.graph("logits"), net.feeds(8)
    fine = quantised(graph, feeds)
    # saturates: shifts taken from these are wrong for the others
    far: list[Feed] = net.feeds(2, mean=40.0)
    done = correct_biases(graph, fine, USUAL, far, feeds)
    before, after = judged(done.trials[-1])
    assert not done.trials[-1].kept or after < before
    assert any(not t.kept for t in done.trials)
    forced = correct_biases(graph, fine, USUAL, far, feeds, ASKED)
    before, after = judged(forced.trials[-1])
    assert after > before
    assert all(t.kept for t in forced.trials)


def test_a_bias_that_does_not_fit_is_refused_with_the_numbers() -> None:
    narrow = Numerics(bias_bits=8)
    net = Net(2, 1, 3, 6, 6)
    net.conv("a", "x", 4, bias=False)
    graph, feeds = net.graph("a"), net.feeds(4, mean=5.0)
    rough = quantised(graph, feeds, Quantize(), narrow)
    done = correct_biases(graph, rough, narrow, feeds[:2], feeds[2:])
    assert "exceeds 8 bits" in done.trials[0].reason and not done.trials[0].kept
    assert done.graph.nodes == rough.nodes


def test_parts_on_the_host_are_walked_through() -> None:
    """A layer in float between integer ones is not corrected itself, but what follows it is."""
    net = chain(21)
    graph, feeds = net.graph("logits", "b"), net.feeds(12, mean=0.5)
    mixed = quantised(graph, feeds, COARSE, host=("b", "mean"))
    done = correct_biases(graph, mixed, USUAL, feeds[:8], feeds[8:], ASKED)
    assert [t.layer for t in done.trials] == ["/a", "/c", "/logits", NETWORK]
    before, after = judged(done.trials[-1])
    assert after < before


def test_corrections_found_side_by_side_count_the_same_shift_twice() -> None:
    """Why the walk is strictly layer by layer: with all shifts taken from the uncorrected
    network the error is larger."""
    net = Net(4, 1, 4, 8, 8)
    for i in range(6):
        net.conv(f"c{i}", f"c{i - 1}" if i else "x", 4, spread=0.8)
    graph, feeds = net.graph("c5"), net.feeds(12, mean=1.0)
    rough = quantised(graph, feeds, COARSE, room=2.0)
    serial = correct_biases(graph, rough, USUAL, feeds[:8], feeds[8:], ASKED)
    before, after = judged(serial.trials[-1])

    at_once = rough
    seen = [[run(g, f) for f in feeds[:8]] for run, g in ((floats, graph), (codes, rough))]
    truth, wrong = ([channel_means([values[n] for values in rows]) for n in NAMES] for rows in seen)
    for (at, _), right, found in zip(list(biased(rough, originals(graph, rough))), truth, wrong, strict=True):
        at_once = shifted(at_once, at, right - found, USUAL)
    pairs = [(floats(graph, f)["c5"], integers(at_once, f)["c5"]) for f in feeds[8:]]
    side_by_side = sum(((a - b) ** 2).sum() for a, b in pairs) / sum(
        (a.astype(float) ** 2).sum() for a, _ in pairs
    )
    assert after < before and after < 0.5 * side_by_side


def test_steps_of_a_recurrent_layer_keep_equal_constants() -> None:
    """A bias of its own for each step would make the weights of the steps different blocks of constants.
    Steps are written out where the ends of sequences are known."""
    shape = 1, 32, 8
    weights = {"w": normal(0, *shape, scale=0.3), "r": normal(1, *shape, scale=0.3)}
    weights["n"] = np.array([9], np.int32)
    layer = 'y = LSTM<hidden_size=8>(x, w, r, "", n)'
    data = model("float[10,1,8] x => float[10,1,1,8] y", layer, weights)
    graph = through(data)
    feeds = [{"x": normal(seed, 10, 1, 8)} for seed in range(4)]
    rough = quantised(graph, feeds, COARSE)
    done = correct_biases(graph, rough, USUAL, feeds[:2], feeds[2:], ASKED)
    before, after = ([n.inputs for n in g.nodes if n.op.onnx == "Gemm"] for g in (rough, done.graph))
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert sum(changed) <= 2, "the products of the input alone"
    assert len({i[1:] for i in after if i[0] != "x"}) < len(after) / 2
