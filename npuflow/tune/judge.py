"""How close networks come to the float one on samples that choose: what every choice of numbers is judged by.

A judge holds the samples of one part, by which choices are made; the verdict alone makes one of the samples
that verify. What it is asked about is a candidate, which is built here and nowhere else before the build
itself, or a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_

import numpy as np

from npuflow.compare.comparison import Comparison
from npuflow.ir.graph import Graph
from npuflow.ir.macs import pass_macs
from npuflow.ir.types import Array
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.graph import Quantization, build
from npuflow.strategies import Budget, Noise, Output
from npuflow.tune.bias import Real, correct_biases, mean_outputs
from npuflow.tune.error import Feed, output_error, outputs_of
from npuflow.tune.improve import ASKED
from npuflow.tune.parts import OutputPart, output_parts
from npuflow.tune.places import ObjectPlaces, places
from npuflow.tune.quality import Outputs, energies, noise_of, quality
from npuflow.tune.walk import SampleWalk

LayerMeans = tuple[Graph, list[str], list[Feed], Mapping[str, Real]]
KEPT = 2                                  # candidates whose graphs are kept
AT_ONCE = 4                               # samples after which outputs are looked at ...
LOOKED = 1 << 15                          # ... where a number of theirs has so many multiplications behind it


@dataclass(frozen=True)
class Rating:
    """Means over the outputs: signal over noise in dB, and cosine, all samples together."""

    sqnr: float
    cosine: float

    def by(self, objective: str) -> float:
        return self.sqnr if objective == "sqnr" else self.cosine


@dataclass(frozen=True, eq=False)
class Closeness:
    """What a network makes of the samples, beside what the float network does, output by output."""

    graph: Graph
    truth: Outputs
    made: Outputs

    @cached_property
    def error(self) -> float:
        """Noise over signal, the mean over the outputs."""
        return output_error(self.truth, self.made)

    @cached_property
    def rating(self) -> Rating:
        return rating(self.truth, self.made)


@dataclass(eq=False)
class Judge:
    """`graph`: the float network that is quantised, whose outputs can be judged; `held`: the samples; `fit`:
    others, by which biases are corrected; `reference`: what says how outputs should be, where the model
    states roundings or channels were removed."""

    graph: Graph
    held: Sequence[Feed]
    fit: Sequence[Feed] = ()
    reference: Graph | None = None
    _built: list[tuple[Candidate, Quantization]] = field(default_factory=list, init=False, repr=False)
    _means: list[LayerMeans] = field(default_factory=list, init=False, repr=False)
    _noise: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    @property
    def real(self) -> Graph:
        return self.graph if self.reference is None else self.reference

    @cached_property
    def truth(self) -> Outputs:
        """The outputs as they should be."""
        return outputs_of(self.real, self.held)

    @cached_property
    def parts(self) -> tuple[OutputPart, ...]:
        """What the outputs are judged by."""
        return output_parts(self.graph)

    @cached_property
    def where(self) -> tuple[ObjectPlaces | None, ...]:
        """The places at which each part counts."""
        return places(self.graph, self.truth, self.parts)

    @cached_property
    def signal(self) -> Noise:
        return energies(self.truth, self.parts, self.where)

    def objects_first(self) -> Judge:
        """With those samples in front that have places at which parts count: a search that looks at the first
        few would see no noise in the others."""
        guards = [one for one in self.where if one is not None]
        if not guards:
            return self
        empty = [sum(not guard.flags[s].any() for guard in guards) for s in range(len(self.held))]
        held = [self.held[s] for s in sorted(range(len(empty)), key=empty.__getitem__)]
        return Judge(self.graph, held, self.fit, self.reference)

    def noise(self, made: Outputs) -> Noise:
        """[samples, parts]: noise over signal of the first samples, as many as `made` has."""
        return noise_of(self.truth, made, self.parts, self.signal, self.where)

    @property
    def noisiest_first(self) -> list[int]:
        """The samples, by the noise that networks had on them which missed a budget; the mean where none is
        known."""
        usual = sum(self._noise.values()) / max(len(self._noise), 1)
        return sorted(range(len(self.held)), key=lambda sample: -self._noise.get(sample, usual))

    def remember(self, noise: Noise, samples: Sequence[int]) -> None:
        """Noise that a network had on some samples, in the place of what others had."""
        self._noise.update({sample: float(noise[sample].max(initial=0.0)) for sample in samples})

    def outputs(self, graph: Graph) -> Outputs:
        """What a graph makes of the samples."""
        return outputs_of(graph, self.held)

    def score(self, network: Candidate | Graph, fit: Sequence[Feed] = ()) -> Closeness:
        """Run the samples. `fit`: of a candidate, those by which its biases are corrected before."""
        graph = network if isinstance(network, Graph) else self.built(network, fit)
        return self.of(self.outputs(graph))

    def of(self, made: Outputs) -> Closeness:
        """The score of outputs, however they were made."""
        return Closeness(self.graph, self.truth, made)

    def quantised(self, candidate: Candidate) -> Quantization:
        """The candidate as a build makes it, before corrections. What was built last is kept."""
        made = next((found for one, found in self._built if _equal(one, candidate)), None)
        if made is None:
            made = build(candidate)
            self._built = [*self._built, (candidate, made)][-KEPT:]
        return made

    def built(self, candidate: Candidate, fit: Sequence[Feed] = ()) -> Graph:
        """The candidate as a build makes it."""
        made = self.quantised(candidate).graph
        real = self.real if candidate.graph is self.graph else candidate.graph
        if not fit:
            return made
        return correct_biases(real, made, candidate.numerics, fit, (), ASKED, self._mean_outputs).graph

    def _mean_outputs(self, real: Graph, names: Sequence[str], fit: Sequence[Feed]) -> Mapping[str, Real]:
        """As `mean_outputs`, once: candidates differ in widths, and seldom in the layers that have biases."""
        for graph, some, feeds, means in self._means:
            if graph is real and some == names and len(feeds) == len(fit) and all(map(is_, feeds, fit)):
                return means
        self._means.append((real, list(names), list(fit), mean_outputs(real, names, fit)))
        return self._means[-1][-1]


@dataclass(eq=False)
class PartialOutputs:
    """Outputs of some samples, in the `order` of which most noise is expected first: that of networks that
    were run before. `run`: makes those of some samples in that order."""

    judge: Judge
    run: Callable[[slice], Outputs]
    order: Sequence[int]
    count: int = field(default=0, init=False)
    _made: list[dict[int, Array]] = field(default_factory=list, init=False)

    @classmethod
    def of(cls, judge: Judge, network: Graph | Callable[[Sequence[Feed]], Outputs]) -> PartialOutputs:
        """Of a graph, or of what runs samples."""
        order = judge.noisiest_first
        feeds = [judge.held[sample] for sample in order]
        if not isinstance(network, Graph):
            return cls(judge, lambda some: network(feeds[some]), order)
        walk, graph = SampleWalk(network, feeds), network

        def run(some: slice) -> Outputs:
            made = walk.ahead(len(graph.nodes), graph.outputs, samples=some)
            given = {o: walk.values[o][some] for o in graph.outputs if o in walk.values}
            return [walk.real(o, found) for o in graph.outputs if (found := {**given, **made}.get(o))]

        return cls(judge, run, order)

    def hold(self, budget: Budget) -> bool:
        """Whether all outputs hold a budget. No sample is run behind those that miss it even if the outputs
        on all others were exact."""
        judge, held = self.judge, len(self.judge.held)
        while self.count < held:
            self._more(min(self.count + self._step, held))
            best = self._filled()
            if not budget.holds(self.judged if self.complete else quality(judge.graph, judge.truth, best)):
                if self._step < held:
                    judge.remember(judge.noise(best), self.order[: self.count])
                return False
        return budget.holds(self.judged)

    @cached_property
    def _step(self) -> int:
        """All samples where outputs take long to compare, and where samples of both networks together decide
        how a map with few answers is weighed."""
        judge = self.judge
        numbers = sum(array[0].size for array in judge.truth if array)
        maps = any(part.answers == "threshold" for part in judge.parts)
        return len(judge.held) if maps or numbers * LOOKED > pass_macs(judge.graph) else AT_ONCE

    @property
    def complete(self) -> bool:
        return self.count == len(self.judge.held)

    @cached_property
    def judged(self) -> tuple[Output, ...]:
        """Every output, by all samples."""
        self._more(len(self.judge.held))
        return judged_outputs(self.judge.of(self._filled()))

    def _filled(self) -> Outputs:
        """The outputs, exact ones for samples that were not run."""
        pairs = zip(self.judge.truth, self._made, strict=True)
        return [[made.get(s, array) for s, array in enumerate(real)] for real, made in pairs]

    def _more(self, stop: int) -> None:
        if stop > self.count:
            found = self.run(slice(self.count, stop))
            self._made = self._made or [{} for _ in found]
            for made, new in zip(self._made, found, strict=True):
                made.update(zip(self.order[self.count : stop], new, strict=True))
            self.count = stop


def judged_outputs(found: Closeness) -> tuple[Output, ...]:
    """Every output, or part of one, with its SQNR and share of equal answers. No method: keys of stages that
    compare errors alone do not hold how answers are read."""
    return quality(found.graph, found.truth, found.made)


def _equal(one: Candidate, other: Candidate) -> bool:
    """Of graphs and codes of weights, which are large and never changed in place, the same are equal."""
    return one.graph is other.graph and one.weights is other.weights and one == other


def rating(truth: Outputs, made: Outputs) -> Rating:
    """An output that has another shape than it should counts as zeros."""
    sqnr, cosine = [], []
    for real, found in zip(truth, made, strict=True):
        same = [y if y.shape == x.shape else np.zeros_like(x) for x, y in zip(real, found, strict=True)]
        a, b = (np.concatenate([x.reshape(-1) for x in part]).astype(np.float64) for part in (real, same))
        whole = Comparison()
        whole.add(a, b)
        sqnr.append(whole.decibels)
        cosine.append(whole.cosine)
    return Rating(float(np.mean(sqnr)), float(np.mean(cosine))) if sqnr else Rating(0.0, 1.0)
