"""Statistics of every needed tensor over all samples: exact, mergeable and
subtractable, free of any range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, InternalError
from npuflow.calibrators import TAILS, PrefixSums
from npuflow.ir.types import Array
from npuflow.statistics import tuned
from npuflow.statistics.observe import COLUMNS, Int64s, Observation

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StatisticsColumn:
    """One tensor's statistics, as threshold methods ask for them (see ir.contracts).

    `keys` ascending and `counts`: the occupied cells. `low`, `high`, `tails`: finite extrema, and values near
    them, per sample, in sample order. `totals`: elements, NaN, +inf, -inf. Cells are spread evenly where a
    question falls inside one; the outermost end at the exact extrema.
    """

    keys: Int64s
    counts: Int64s
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    totals: Int64s
    tails: npt.NDArray[np.float32]
    bounds: tuple[float, float] | None = None
    beyond: str = "clip"

    def within(self, bounds: tuple[float, float], beyond: str) -> StatisticsColumn:
        """The same values with those outside the bounds moved to them ("clip"), or left out ("drop": the
        extrema are then the outermost cells inside)."""
        part = replace(self, bounds=bounds, beyond=beyond)
        lower, upper, _ = part.cells()
        ends = (float(lower[0]), float(upper[-1])) if beyond == "drop" and lower.size else bounds
        low, high, tails = (
            np.clip(v, np.float32(ends[0]), np.float32(ends[1])) for v in (self.low, self.high, self.tails)
        )
        return replace(part, low=low, high=high, tails=tails)

    @property
    def sample_min(self) -> npt.NDArray[np.float32]:
        return self.low

    @property
    def sample_max(self) -> npt.NDArray[np.float32]:
        return self.high

    @property
    def sample_tails(self) -> npt.NDArray[np.float32]:
        return self.tails

    @cached_property
    def moments(self) -> PrefixSums:
        return PrefixSums(*self._cells)

    @cached_property
    def lo(self) -> float:
        return float(self.low.min()) if self.low.size else 0.0

    @cached_property
    def hi(self) -> float:
        return float(self.high.max()) if self.high.size else 0.0

    @property
    def count(self) -> int:
        """Finite values."""
        return int(self.totals[0] - self.totals[1:].sum())

    @cached_property
    def zeros(self) -> int:
        """Exact zeros (and what is below 2.3e-41)."""
        from npuflow.statistics.kernels import SIGN

        return int(self.counts[(self.keys == 0) | (self.keys == SIGN)].sum())

    def cells(self) -> tuple[Floats, Floats, Floats]:
        return self._cells

    @cached_property
    def _cells(self) -> tuple[Floats, Floats, Floats]:
        from npuflow.statistics.kernels import SHIFT, SIGN

        magnitude = self.keys & (SIGN - 1)
        negative = self.keys >= SIGN
        near = _real(magnitude << SHIFT)
        far = np.where(magnitude == 0, 0.0, _real((magnitude + 1) << SHIFT))
        lower, upper = np.where(negative, -far, near), np.where(negative, -near, far)
        order = np.lexsort((upper, lower))
        lower, upper, counts = lower[order], upper[order], self.counts[order].astype(np.float64)
        if self.bounds is not None:
            lower, upper, counts = _bounded(lower, upper, counts, self.bounds, self.beyond)
        return np.clip(lower, self.lo, self.hi), np.clip(upper, self.lo, self.hi), counts

    def histogram(
        self, bins: int, lo: float, hi: float, absolute: bool = False, points: bool = True
    ) -> Floats:
        if hi <= lo:
            return np.zeros(bins)
        place = np.linspace(lo, hi, bins + 1)
        below = np.interp(place, *self._ramp)
        if absolute:
            below -= np.interp(-place, *self._ramp)
        found = np.diff(below)
        if points:
            lower, upper, weight = self._cells
            flat = lower == upper
            single, weight = np.abs(lower[flat]) if absolute else lower[flat], weight[flat]
            inside = (single >= lo) & (single <= hi)
            index = np.minimum(((single[inside] - lo) / (hi - lo) * bins).astype(np.int64), bins - 1)
            np.add.at(found, index, weight[inside])
        return found

    @cached_property
    def _ramp(self) -> tuple[Floats, Floats]:
        """Places, ascending, and how much of the evenly filled cells lies below each;
        straight lines between them."""
        lower, upper, weight = self._cells
        wide = upper > lower
        place = np.stack([lower[wide], upper[wide]], axis=1).reshape(-1)
        total = np.cumsum(weight[wide])
        below = np.stack([total - weight[wide], total], axis=1).reshape(-1)
        return (place, below) if place.size else (np.zeros(1), np.zeros(1))

    def quantile(self, fraction: float, absolute: bool = False) -> float:
        lower, upper, weight = _folded(*self._cells) if absolute else self._cells
        if not weight.size:
            return 0.0
        order = np.argsort(upper, kind="stable")
        lower, upper, weight = lower[order], upper[order], weight[order]
        total = np.cumsum(weight)
        wanted = fraction * total[-1]
        at = min(int(np.searchsorted(total, wanted)), len(total) - 1)
        share = 1 - (total[at] - wanted) / weight[at]
        return float(lower[at] + (upper[at] - lower[at]) * min(max(share, 0.0), 1.0))

    @cached_property
    def mean(self) -> float:
        """From cell middles: within 2^-10 of the magnitude."""
        lower, upper, weight = self._cells
        return float((weight * (lower + upper)).sum() / (2 * weight.sum())) if weight.size else 0.0

    @cached_property
    def std(self) -> float:
        lower, upper, weight = self._cells
        if not weight.size:
            return 0.0
        square = (lower * lower + lower * upper + upper * upper) / 3      # of an evenly filled cell
        return float(np.sqrt(max(0.0, (weight * square).sum() / weight.sum() - self.mean**2)))


def _bounded(
    lower: Floats, upper: Floats, counts: Floats, bounds: tuple[float, float], beyond: str
) -> tuple[Floats, Floats, Floats]:
    """Cells cut at the bounds; what lies outside becomes a point at the bound, or nothing."""
    below, above = upper <= bounds[0], lower >= bounds[1]
    inside = ~(below | above)
    ends = ([], []) if beyond == "drop" else ([counts[below].sum()], [counts[above].sum()])
    kept = np.concatenate([ends[0], counts[inside], ends[1]])
    points = [[bounds[i]] * len(ends[i]) for i in (0, 1)]
    low = np.concatenate([points[0], np.clip(lower[inside], *bounds), points[1]])
    high = np.concatenate([points[0], np.clip(upper[inside], *bounds), points[1]])
    return low[kept > 0], high[kept > 0], kept[kept > 0]


def _real(patterns: Int64s) -> Floats:
    return np.asarray(patterns.astype(np.uint32).view(np.float32), np.float64)


def _folded(lower: Floats, upper: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Cells of the magnitudes (they may overlap at the exact extrema)."""
    negative = upper <= 0
    near = np.where(negative, -upper, np.maximum(lower, 0))
    return near, np.where(negative, -lower, upper), weight


@dataclass(frozen=True)
class ObservedStatistics:
    """Rows are samples, columns tensors. Counts are sums over samples; extrema are kept per sample."""

    names: tuple[str, ...]
    samples: tuple[str, ...]
    lo: npt.NDArray[np.float32]
    hi: npt.NDArray[np.float32]
    tails: npt.NDArray[np.float32]          # [samples, tensors, 2, len(TAILS)]
    totals: Int64s                          # [samples, tensors, len(COLUMNS)]
    offsets: Int64s                         # cells of tensor i: keys[offsets[i]:offsets[i + 1]]
    keys: Int64s
    counts: Int64s

    def __getitem__(self, name: str) -> StatisticsColumn:
        """One tensor; kept for the next question, since many methods may ask, unless all of
        them would fill the memory."""
        if len(self.keys) > tuned.CELLS_KEPT:
            return self._tensor(name)
        if name not in self._asked:
            self._asked[name] = self._tensor(name)
        return self._asked[name]

    @cached_property
    def _asked(self) -> dict[str, StatisticsColumn]:
        return {}

    def _tensor(self, name: str) -> StatisticsColumn:
        i = self.index[name]
        part = slice(self.offsets[i], self.offsets[i + 1])
        finite = self.totals[:, i, 0] > self.totals[:, i, 1:].sum(1)
        total = self.totals[:, i].sum(0)
        low, high, tails = self.lo[finite, i], self.hi[finite, i], self.tails[finite, i]
        return StatisticsColumn(self.keys[part], self.counts[part], low, high, total, tails)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def plus(self, shards: Iterable[tuple[str, Observation]]) -> ObservedStatistics:
        """With more samples, which come after those already in."""
        found = self
        walk = iter(shards)
        while part := list(islice(walk, tuned.CELLS_SAMPLES)):
            found = found._more([one for _, one in part], tuple(name for name, _ in part))
        return found

    def minus(self, shards: Mapping[str, Observation]) -> ObservedStatistics:
        """Without these samples: exactly what the statistics of the others are."""
        return self._less(list(shards.values()), tuple(shards))

    def without(self, part: ObservedStatistics) -> ObservedStatistics:
        """Without the samples of a part of these statistics."""
        return self._less([part], part.samples)

    def _more(
        self, parts: Sequence[Observation | ObservedStatistics], samples: tuple[str, ...]
    ) -> ObservedStatistics:
        rows = [_rows(one) for one in parts]
        lo, hi, tails, totals = (
            np.concatenate([mine, *(row[k] for row in rows)])
            for k, mine in enumerate((self.lo, self.hi, self.tails, self.totals))
        )
        return ObservedStatistics(
            self.names, (*self.samples, *samples), lo, hi, tails, totals, *self._cells(parts, 1)
        )

    def _less(
        self, parts: Sequence[Observation | ObservedStatistics], samples: tuple[str, ...]
    ) -> ObservedStatistics:
        held, gone = set(self.samples), set(samples)
        missing = [name for name in samples if name not in held]
        if missing:
            raise DataError(f"these statistics lack the sample {missing[0]}", code="NF-DATA-018")
        kept = [i for i, name in enumerate(self.samples) if name not in gone]
        names = tuple(self.samples[i] for i in kept)
        rows = self.lo[kept], self.hi[kept], self.tails[kept], self.totals[kept]
        return ObservedStatistics(self.names, names, *rows, *self._cells(parts, -1))

    def _cells(
        self, parts: Sequence[Observation | ObservedStatistics], sign: int
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Offsets, keys and counts with (1) or without (-1) some parts."""
        from npuflow.statistics.kernels import KEYS, SIGN, collect, occupied

        dense = np.zeros(KEYS, np.int64)
        room, space = np.zeros(KEYS, np.int64), np.zeros(KEYS, np.int64)
        keys, counts, offsets = [], [], [0]
        seen = _Seen([one for one in parts if not isinstance(one, ObservedStatistics)], len(self.names))
        for i in range(len(self.names)):
            span = np.array([[SIGN, -1], [KEYS, SIGN - 1]])
            _count(self, i, dense, 1, span)
            for one in parts:
                if isinstance(one, ObservedStatistics):
                    _count(one, i, dense, sign, span)
            collect(*seen.of(i), dense, sign, span)
            size = occupied(dense, span, room, space)
            keys.append(room[:size].copy())
            counts.append(space[:size].copy())
            offsets.append(offsets[-1] + size)
        return np.array(offsets, np.int64), _joined(keys), _joined(counts)


class _Seen:
    """The cells of several observations, tensor by tensor."""

    def __init__(self, seen: Sequence[Observation], tensors: int) -> None:
        from npuflow.statistics.kernels import GROUP

        self.groups = np.concatenate([np.zeros(0, np.uint16), *(one.groups for one in seen)])
        cells = np.concatenate([np.zeros((0, GROUP), np.uint8), *(one.cells for one in seen)])
        self.cells = cells.reshape(-1)
        bases = np.cumsum([0, *(one.groups.size for one in seen)])[:-1, None]
        ends = np.array([one.offsets for one in seen], np.int64).reshape(len(seen), tensors + 1)
        self.ends = np.ascontiguousarray((ends + bases).T)           # [tensors + 1, observations]
        # Large counts of all, by tensor: their keys instead of their places.
        tensor, large = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
        for one in seen:
            at, key = np.divmod(one.large[:, 0].astype(np.int64), GROUP)
            tensor.append(np.searchsorted(one.offsets, at, "right") - 1)
            large.append(np.stack([one.groups[at] * np.int64(GROUP) + key, one.large[:, 1]], axis=1))
        order = np.argsort(found := np.concatenate(tensor), kind="stable")
        self.large = np.concatenate(large)[order]
        self.of_tensor = np.searchsorted(found[order], np.arange(tensors + 1))

    def of(self, tensor: int) -> tuple[Array, Array, Array, Int64s, Int64s]:
        """All groups and cells, this tensor's large counts, and where its groups start and stop."""
        large = self.large[self.of_tensor[tensor] : self.of_tensor[tensor + 1]]
        return self.groups, self.cells, large, self.ends[tensor], self.ends[tensor + 1]


def _rows(one: Observation | ObservedStatistics) -> tuple[Array, Array, Array, Array]:
    """What is kept for each sample, samples first."""
    if isinstance(one, ObservedStatistics):
        return one.lo, one.hi, one.tails, one.totals
    return one.lo[None], one.hi[None], one.tails[None], one.counts[None]


def _count(one: ObservedStatistics, i: int, dense: Int64s, sign: int, span: Int64s) -> None:
    """Add the cells of one tensor to dense counts, and widen the span of keys
    touched on each side of zero."""
    part = slice(one.offsets[i], one.offsets[i + 1])
    keys = one.keys[part]
    dense[keys] += sign * one.counts[part]
    middle = int(np.searchsorted(keys, dense.size >> 1))
    for side, half in enumerate((keys[:middle], keys[middle:])):
        if half.size:
            span[side] = min(span[side, 0], half[0]), max(span[side, 1], half[-1])


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def empty(names: Sequence[str]) -> ObservedStatistics:
    """Statistics of no samples."""
    none = np.zeros((0, len(names)), np.float32)
    cells = np.zeros(0, np.int64)
    totals, offsets = np.zeros((0, len(names), len(COLUMNS)), np.int64), np.zeros(len(names) + 1, np.int64)
    tails = np.zeros((0, len(names), 2, len(TAILS)), np.float32)
    return ObservedStatistics(tuple(names), (), none, none, tails, totals, offsets, cells, cells)


def merged(shards: Iterable[tuple[str, Observation]]) -> ObservedStatistics | None:
    """Statistics of all shards, which may be read one by one; None if there are none."""
    walk = iter(shards)
    first = next(walk, None)
    return None if first is None else empty(first[1].names).plus(chain([first], walk))


def added(parts: Iterable[ObservedStatistics]) -> ObservedStatistics:
    """The statistics of all samples of some statistics of the same tensors, in their
    order; however they are nested."""
    walk = iter(parts)
    found = next(walk)
    while some := list(islice(walk, tuned.CELLS_SAMPLES)):
        found = found._more(some, tuple(name for one in some for name in one.samples))
    return found


def beside(parts: Sequence[ObservedStatistics]) -> ObservedStatistics:
    """The statistics of other tensors over the same samples, as one."""
    if any(one.samples != parts[0].samples for one in parts):
        raise InternalError(
            "statistics of different samples cannot be combined", code="NF-INTERNAL-008",
        )
    names = tuple(name for one in parts for name in one.names)
    starts = np.cumsum([0, *(one.keys.size for one in parts)])
    offsets = [
        np.zeros(1, np.int64),
        *(one.offsets[1:] + start for one, start in zip(parts, starts, strict=False)),
    ]
    lo, hi, tails, totals = (
        np.concatenate([getattr(one, field) for one in parts], axis=1)
        for field in ("lo", "hi", "tails", "totals")
    )
    keys, counts = _joined([one.keys for one in parts]), _joined([one.counts for one in parts])
    starts = np.concatenate(offsets)
    return ObservedStatistics(names, parts[0].samples, lo, hi, tails, totals, starts, keys, counts)
