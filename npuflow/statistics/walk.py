"""Samples walk through the segments of a network, in groups of segments that fit into memory together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from npuflow.base.digest import digest
from npuflow.ir.types import Array
from npuflow.statistics import tuned
from npuflow.statistics.observe import Observation, Observer, Scratch
from npuflow.statistics.segments import ModelSegment

Feed = Callable[[], Mapping[str, Array] | None]
"""What the network is fed for a sample, when it is asked for; None for one that cannot be read."""


def observed(
    segments: Mapping[str, ModelSegment],
    asked: Sequence[str],
    samples: Mapping[str, Feed],
    room: int | None = None,
) -> Iterator[tuple[str, str, Observation]]:
    """What every sample shows in the segments asked for: (segment, sample, observation).

    With `room`, bytes, only so many consecutive segments are loaded at a time as fit, and what a later group
    reads of an earlier one is kept in files until then. Each segment is a session of its own in any case, so
    that the groups change no result.
    """
    needed = needs(segments, asked)
    parts = groups({name: segments[name] for name in needed}, room)
    unread: set[str] = set()
    with TemporaryDirectory(prefix="npuflow-") as folder:
        for index, part in enumerate(parts):
            later = {v for other in parts[index + 1 :] for name in other for v in segments[name].fed}
            group = _Group({name: segments[name] for name in part}, set(asked), later, Path(folder))
            for number, (sample, feed) in enumerate(samples.items()):
                if sample not in unread and not (
                    yield from group.observe(number, sample, feed, first=index == 0)
                ):
                    unread.add(sample)


def needs(segments: Mapping[str, ModelSegment], asked: Sequence[str]) -> tuple[str, ...]:
    """The segments asked for and all above them, in order."""
    wanted = {*asked, *(name for one in asked for name in segments[one].above)}
    return tuple(name for name in segments if name in wanted)


def groups(segments: Mapping[str, ModelSegment], room: int | None) -> list[tuple[str, ...]]:
    """Consecutive segments that fit into `room` together; one that does not fit stands alone."""
    found: list[tuple[str, ...]] = [()]
    for name in segments:
        more = (*found[-1], name)
        if found[-1] and room is not None and footprint([segments[one] for one in more]) > room:
            found.append((name,))
        else:
            found[-1] = more
    return found


def footprint(segments: Sequence[ModelSegment]) -> int:
    """Bytes that the sessions of some segments take, and the activations of one sample in them."""
    weights = tuned.WEIGHT_COPIES * sum(one.weights for one in segments)
    return weights + max(one.activations for one in segments)


class _Group:
    """Some segments as sessions, at once in memory."""

    def __init__(
        self, segments: Mapping[str, ModelSegment], asked: set[str], later: Collection[str], folder: Path
    ) -> None:
        self.segments, self.asked, self.folder = segments, asked, folder
        scratch = Scratch()
        self.observers = {
            name: Observer(one.model, one.fed, one.names, one.made, scratch)
            for name, one in self.segments.items()
        }
        own = {v for one in self.segments.values() for v in one.made}
        read = {v for one in self.segments.values() for v in (*one.fed, *one.names)}
        network = next(iter(self.segments.values())).inputs if self.segments else {}
        self.given = [v for v in network if v in read]
        self.stored = sorted(read - own - set(network))
        self.kept = sorted(own & set(later))
        # value -> the segment of this group that reads it last
        self.last: dict[str, str] = {}
        for name, one in self.segments.items():
            self.last.update(dict.fromkeys(one.fed, name))

    def observe(
        self, number: int, sample: str, feed: Feed, first: bool
    ) -> Generator[tuple[str, str, Observation], None, bool]:
        """One sample; whether it could be read."""
        given = feed() if first or self.given else {}
        if given is None:
            return False
        values: dict[str, Array] = {v: given[v] for v in self.given}
        for v in self.stored:
            values[v] = np.load(self._file(number, v))
        for segment, one in self._run(values):
            yield segment, sample, one
        for v in self.kept:
            np.save(self._file(number, v), values[v])
        return True

    def _run(self, values: dict[str, Array]) -> Iterator[tuple[str, Observation]]:
        """One sample; `values` gains what is made, and loses what is read no more."""
        for name, observer in self.observers.items():
            one = self.segments[name]
            needed = (
                one.made if name in self.asked else [v for v in one.made if v in self.last or v in self.kept]
            )
            results = observer.run(values, needed)
            if name in self.asked:
                yield name, observer.count(values, results)
            values.update((v, a) for v, a in results.items() if v in self.last or v in self.kept)
            for v in one.fed:
                if self.last[v] == name and v not in self.kept:
                    values.pop(v, None)

    def _file(self, number: int, value: str) -> Path:
        return self.folder / f"{number}-{digest(value).partition(':')[2]}.npy"
