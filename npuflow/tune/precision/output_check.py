"""Checks whether each output of a quantised network is close enough to the float network's.

The budget of [precision] is what is asked for. A few samples place an output's dB and its share of
equal answers only so well, so that a warning takes a clear miss: `SLACK` dB, and shares that
chance alone does not explain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.macs import pass_macs
from npuflow.ir.noise import EXACT, decibels, difference, energy
from npuflow.ir.types import Array, QuantType
from npuflow.run.floats import FloatRun
from npuflow.strategies import Budget, Output
from npuflow.tune.judge import Judge
from npuflow.tune.quality import Outputs, apart, guarded, levels, quality

Feed = Mapping[str, Array]
EFFORT = 25e9                             # multiply-accumulates of the float network over all judging samples
FEWEST, MOST = 8, 64                      # samples that judge, however large or small the network
SLACK = 1.0                               # dB by which an output may miss the budget without a warning
SURE = 0.01                               # share of answers by which it may
STUDENT = 3.18                            # t of 95 % for `PIECES` parts
APART = 10.0                              # dB between parts from which on they disagree ...
# ... unless all of them have so many, the usual budget and some: of 118 rows of the zoo (study 74) none whose
# score fell had more on its worst part, and six of those that kept it did
CLEAN = 25.0
# an offset hides an error that is so many dB too large beside what varies, where the whole is close to the
# budget; a score that is 1 nearly everywhere is far above it
HIDDEN, NEAR = 6.0, 10.0
LOOKED = 4                                # samples whose tensors are looked at for clipped values


@dataclass(frozen=True)
class JudgedOutput:
    """One output as it was found, and whether it is close enough. `nan`: the share of its values for which
    the float network has none; `parts_db`: dB on each of several disjoint parts of the samples, empty where
    there are too few; `where`: the output that says at which places this one counts, "" if at all;
    `varying_db`: dB of what differs from the mean of all its values, where that mean is most of the output
    and hides how large the error is beside the rest (None: it is not, or hides nothing)."""

    output: Output
    ok: bool
    nan: float = 0.0
    parts_db: tuple[float, ...] = ()
    where: str = ""
    varying_db: float | None = None

    @property
    def give_or_take(self) -> float | None:
        """dB by which its figure may be off on other samples of the same kind, 19 times of 20, if the parts
        scatter as normal numbers do. None: nothing is known of it."""
        count = len(self.parts_db)
        if count < 2:
            return None
        return float(STUDENT * np.std(self.parts_db, ddof=1) / np.sqrt(count))

    @property
    def unsteady(self) -> bool:
        """Whether parts of the samples disagree so far that none of their figures can be relied on."""
        parts = self.parts_db
        return bool(parts) and max(parts) - min(parts) > APART and min(parts) < CLEAN


def in_decibels(outputs: Sequence[JudgedOutput]) -> Sequence[JudgedOutput]:
    """Those whose dB say something; all where none do."""
    return [one for one in outputs if not one.output.whole] or outputs


def affordable(graph: Graph, feeds: Sequence[Feed]) -> list[Feed]:
    """As many of the samples as the effort allows, evenly spread."""
    count = min(len(feeds), MOST, max(FEWEST, int(EFFORT / pass_macs(graph))))
    return [feeds[int(i)] for i in np.linspace(0, len(feeds) - 1, count).round()] if count else []


def shown(judge: Judge, made: Outputs, budget: Budget) -> tuple[JudgedOutput, ...]:
    """Every output of a quantised network beside the float network's. `made`: per output what it gave on the
    samples of the judge."""
    real, truth = judge.graph, judge.truth
    found = (*quality(real, truth, made), *_whole(judge, made))
    whole = {n: _absent(a, np.asarray) for n, a in zip(real.outputs, truth, strict=True)}
    absent = whole | {part.name: _absent(truth[part.output], part.of) for part in judge.parts}
    parts, where = apart(real, truth, made), guarded(real, truth)
    varying = {n: around_mean(a, b) for n, a, b in zip(real.outputs, truth, made, strict=True)}
    return tuple(
        JudgedOutput(
            one, close(budget, one) and not nan, nan, parts.get(one.name, ()), where.get(one.name, ""),
            hidden(budget, one, varying.get(one.name)),
        )
        for one in found
        for nan in (absent.get(one.name, 0.0),)
    )


def around_mean(truth: Sequence[Array], made: Sequence[Array]) -> float | None:
    """SQNR in dB of real numbers, with the mean of all of them taken from the signal. None: they are none,
    or have other shapes."""
    pairs = list(zip(truth, made, strict=True))
    if not pairs or any(a.dtype.kind != "f" or a.shape != b.shape for a, b in pairs):
        return None
    if not all(np.isfinite(a).all() for a, _ in pairs):
        return None
    mean = sum(float(a.sum(dtype=np.float64)) for a in truth) / max(sum(a.size for a in truth), 1)
    signal = sum(energy(a.astype(np.float64) - mean) for a in truth)
    return decibels(signal, sum(energy(difference(b, a)) for a, b in pairs))


def hidden(budget: Budget, one: Output, varying: float | None) -> float | None:
    """`varying`, where the budget is met by the whole alone."""
    if varying is None or one.agreement is not None or one.drop is not None:
        return None
    met = budget.sqnr_db - SLACK <= min(one.sqnr, one.low) and one.sqnr < budget.sqnr_db + NEAR
    return varying if met and varying < budget.sqnr_db - HIDDEN else None


def _absent(values: Sequence[Array], part: Callable[[Array], Array]) -> float:
    """The share of NaN."""
    held = [part(array) for array in values if array.dtype.kind == "f"]
    return sum(int(np.isnan(one).sum()) for one in held) / max(sum(one.size for one in held), 1)


def no_numbers(graph: Graph) -> dict[str, int]:
    """How many numbers of each constant are NaN, of those that have some."""
    held = {name: array for name in graph.values if (array := graph.const(name)) is not None}
    counts = {name: int(np.isnan(array).sum()) for name, array in held.items() if array.dtype.kind == "f"}
    return {name: count for name, count in counts.items() if count}


def close(budget: Budget, one: Output) -> bool:
    """Whether an output meets the budget, or misses it by no more than the slack."""
    if one.agreement is not None and one.agreement >= budget.agreement - SURE:
        return True
    return replace(budget, sqnr_db=budget.sqnr_db - SLACK).met(one)


def _whole(judge: Judge, made: Outputs) -> list[Output]:
    """Outputs that the program's numbers are not: indices, labels and what has no fixed shape by the share
    of equal values, real numbers of another type (float64) as others are."""
    truth, found, plain = judge.truth, list[Output](), {part.output for part in judge.parts}
    for i, name in enumerate(judge.graph.outputs):
        if i in plain or not truth[i]:
            continue
        both = [*truth[i], *made[i]]
        if judge.graph.type(name).is_static and all(a.dtype.kind == "f" for a in both):
            found.append(Output(name, *levels(truth[i], made[i])))
            continue
        share = float(np.mean([_equal(a, b) for a, b in zip(truth[i], made[i], strict=True)]))
        level = EXACT if share == 1.0 else 0.0
        found.append(Output(name, level, level, share, whole=True))
    return found


def _equal(real: Array, made: Array) -> float:
    """Share of equal values; of real numbers, of those that are a tenth apart at most."""
    if real.shape != made.shape:
        return 0.0
    same = np.isclose(real, made, rtol=0.1) if real.dtype.kind == "f" else real == made
    return float(same.mean()) if same.size else 1.0


def clipped(real: Graph, types: Mapping[str, QuantType], feeds: Sequence[Feed]) -> dict[str, float]:
    """By quantised tensor the share of its values that lie beyond its codes, in the float network."""
    names = [
        v for v in types if v in real.values and real.const(v) is None and real.type(v).dtype == "float32"
    ]
    network = FloatRun.of(real, names)
    beyond, count = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for feed in feeds[:LOOKED]:
        values = {**feed, **network.run(feed)}
        for v in names:
            quant, array = types[v], np.asarray(values[v])
            low, high = (
                (code - quant.zero_point[0]) * quant.scale[0] for code in (quant.lo - 0.5, quant.hi + 0.5)
            )
            beyond[v] += int(((array < low) | (array > high)).sum())
            count[v] += array.size
    return {v: beyond[v] / count[v] for v in names if count[v]}
