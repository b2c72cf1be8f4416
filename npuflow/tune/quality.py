"""How close outputs come to the float network's on held-out samples: SQNR, sample by
sample, and equal answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.noise import SignalToNoise, decibels, difference, energy, noise_decibels
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.strategies import Noise, Output
from npuflow.tune.parts import OutputPart, output_parts
from npuflow.tune.places import ObjectPlaces, places

FAINT = 0.1                               # a sample's signal counts as at least this share of the mean one
SHARE = 0.2                               # of samples that may lie below `Output.low`
PIECES, FEWEST = 4, 2                     # disjoint parts of the samples, of so many samples each at least
# values from which on a thresholded output is a mask, compared by its overlap
MAP = 64
FAINTEST = 1 / 512                        # half a step of a score of 8 bits
NOTHING = 1e-300                          # a signal that is none: any noise is all noise
Outputs = Sequence[Sequence[Array]]       # per output its values, sample by sample


def energies(truth: Outputs, parts: Sequence[OutputPart], where: Sequence[ObjectPlaces | None] = ()) -> Noise:
    """[samples, parts]: the signal that noise is held against. A faint sample counts as a tenth of the mean
    one, or a mask without a single pixel would decide. `where`: the places at which a part counts."""
    known = where or [None] * len(parts)
    own = np.array([
        [_energy(p.of(truth[p.output][s]), at, s) for p, at in zip(parts, known, strict=True)]
        for s in range(len(truth[0]))
    ])
    return np.maximum(np.maximum(own, FAINT * own.mean(0)), NOTHING)


def noise_of(
    truth: Outputs,
    made: Outputs,
    parts: Sequence[OutputPart],
    signal: Noise,
    where: Sequence[ObjectPlaces | None] = (),
) -> Noise:
    """[samples, parts]: noise over signal of the first samples, as many as `made` has."""
    known = where or [None] * len(parts)
    wrong = np.array([
        [
            _energy(difference(p.of(made[p.output][s]), p.of(truth[p.output][s])), at, s)
            for p, at in zip(parts, known, strict=True)
        ]
        for s in range(len(made[0]))
    ])
    return wrong / signal[: len(wrong)]


def _energy(values: Array, at: ObjectPlaces | None, sample: int) -> float:
    return energy(values if at is None else at.of(values, sample))


def quality(graph: Graph, truth: Outputs, made: Outputs) -> tuple[Output, ...]:
    """Every output of real numbers, or every part of one that joins several kinds, as `Output` says."""
    found = []
    for part, at in _parts(graph, truth):
        real, own = ([part.of(a) for a in side[part.output]] for side in (truth, made))
        answered, compared = agreement(graph, part.value, real, own) if part.value else (None, 0)
        real, own = weighed(part, at, truth, made)
        found.append(Output(part.name, *levels(real, own), answered, compared=compared))
    return tuple(found)


def levels(real: Sequence[Array], own: Sequence[Array]) -> tuple[float, float]:
    """`Output.sqnr` and `Output.low` of numbers, sample by sample."""
    noise = noise_of([real], [own], [OutputPart(0)], energies([real], [OutputPart(0)]))
    return _pooled(real, own), float(np.quantile(noise_decibels(noise[:, 0]), SHARE, method="lower"))


def apart(graph: Graph, truth: Outputs, made: Outputs) -> dict[str, tuple[float, ...]]:
    """By name of the same, dB over disjoint parts of the samples, faint samples counted as in `energies`.
    Nothing where they are too few."""
    found = {}
    for part, at in _parts(graph, truth):
        real, own = weighed(part, at, truth, made)
        if len(real) >= PIECES * FEWEST:
            signal = energies([real], [OutputPart(0)])[:, 0]
            noise = noise_of([real], [own], [OutputPart(0)], signal[:, None])[:, 0] * signal
            pieces = ((signal[i::PIECES].sum(), noise[i::PIECES].sum()) for i in range(PIECES))
            found[part.name] = tuple(decibels(float(good), float(bad)) for good, bad in pieces)
    return found


def guarded(graph: Graph, truth: Outputs) -> dict[str, str]:
    """By name of the outputs that count at some places only, what says where."""
    return {part.name: at.scores for part, at in _parts(graph, truth) if at is not None}


def _parts(graph: Graph, truth: Outputs) -> list[tuple[OutputPart, ObjectPlaces | None]]:
    parts = output_parts(graph)
    return list(zip(parts, places(graph, truth, parts), strict=True))


def weighed(
    part: OutputPart, at: ObjectPlaces | None, truth: Outputs, made: Outputs
) -> tuple[list[Array], list[Array]]:
    """Both sides of a part, sample by sample, on the scale that it is judged on. Of a part that counts at
    some places only, those places, and the samples that have some."""
    real, own = ([part.of(a) for a in side[part.output]] for side in (truth, made))
    if at is not None:
        there = [s for s in range(len(real)) if at.flags[s].any()]
        return [at.of(real[s], s) for s in there], [at.of(own[s], s) for s in there]
    if faint(part, [real, own]):
        return [evidence(a) for a in real], [evidence(a) for a in own]
    return real, own


def _pooled(real: Sequence[Array], own: Sequence[Array]) -> float:
    pooled = SignalToNoise()
    for a, b in zip(real, own, strict=True):
        pooled.add(a, b)
    return pooled.decibels


def faint(part: OutputPart, sides: Sequence[Sequence[Array]]) -> bool:
    """Whether a part is a map with too few answers for its scores to be judged as they are, less than one a
    sample, by the values of one network or several, sample by sample."""
    if part.answers != "threshold" or not sides[0] or sides[0][0].size < MAP:
        return False
    answered = (np.logical_or.reduce([a > 0.5 for a in some]) for some in zip(*sides, strict=True))
    return sum(int(some.sum()) for some in answered) < len(sides[0])


def evidence(scores: Array) -> Array:
    """Scores of a map on the scale that adds up: the logarithm of p / (1 - p), 0 at the faintest score that
    8 bits tell from none. Maps almost without an object weigh their faint scores, not the squares of them."""
    p = np.clip(scores.astype(np.float64), FAINTEST, 1 - FAINTEST)
    return np.log(p / (1 - p)) - np.log(FAINTEST / (1 - FAINTEST))


def agreement(
    graph: Graph, name: str, truth: Sequence[Array], made: Sequence[Array]
) -> tuple[float | None, int]:
    """`Output.agreement` and `Output.compared`: the share of equal answers, None for outputs that are no
    answers, and for maps without any; and how many there are. A share of n is counted as one of n + 1 with
    one wrong. Of a map, pixels that are above .5 on both sides over those on either, and 0."""
    kind, axis = answers(graph, name)
    if kind == "argmax":
        pairs = [(a.argmax(axis).ravel(), b.argmax(axis).ravel()) for a, b in zip(truth, made, strict=True)]
        return _share(pairs)
    if kind == "threshold":
        masks = [((a > 0.5).ravel(), (b > 0.5).ravel()) for a, b in zip(truth, made, strict=True)]
        if masks and masks[0][0].size >= MAP:
            union = sum(int((a | b).sum()) for a, b in masks)
            return (sum(int((a & b).sum()) for a, b in masks) / union if union else None), 0
        return _share(masks)
    return None, 0


def answers(graph: Graph, name: str) -> tuple[str, int]:
    """What an application makes of an output, by the operator behind it: ("argmax", axis),
    ("threshold", 0) or ("", 0)."""
    node, shape = _answering(graph, name), graph.type(name).shape
    if node is None:
        return "", 0
    same = graph.type(node.outputs[0]).shape == shape
    return node.op.answers, node.op.answer_axis(len(shape)) if same else len(shape) - 1


def probe_scale(graph: Graph, part: OutputPart) -> Callable[[Array], Array]:
    """What the probe of a faint map is weighed as: the evidence of the scores that it gives. A score that 8
    bits do not tell from 0 says nothing, however far below its logit lies."""
    node = _answering(graph, part.value) if part.value else None
    if node is None or probe(graph, part.value) == part.value:
        return evidence
    op = node.op
    return lambda logits: evidence(np.asarray(op.reference(logits)[0]))


def probe(graph: Graph, name: str) -> str:
    """Where noise is measured that is to add up: what the Softmax or Sigmoid behind an
    output reads, else the output.
    Behind them a little more noise flips an answer, or does nothing; before them twice
    the noise is twice the noise."""
    node = _answering(graph, name)
    return node.inputs[0] if node is not None and graph.type(node.inputs[0]).dtype == "float32" else name


def _answering(graph: Graph, name: str) -> Node | None:
    """The Softmax, Sigmoid or the like behind an output; operators in between keep values as they are."""
    producer = graph.producer()
    while name in producer:
        node = producer[name]
        if node.op.answers:
            return node
        fixed = len(node.inputs) < 2 or graph.const(node.inputs[1]) is not None
        if not (node.op.shares_scale and node.inputs and fixed):
            break
        name = node.inputs[0]
    return None


def _share(pairs: Sequence[tuple[Array, Array]]) -> tuple[float | None, int]:
    count = sum(a.size for a, _ in pairs)
    return (sum(int((a == b).sum()) for a, b in pairs) / (count + 1) if count else None), count
