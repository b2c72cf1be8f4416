"""What jobs of both rounds of a loop wait for: for what either does, as commands of a block.

A file has one round, whose waits hold for all of them. So a job of the first round also waits for what its
twin of the second waits for, as many jobs of that queue behind the beginning of its round, and the other way
round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from npuflow.schedule.nested import RolledLoop, by_depth

Waits = list[tuple[int, ...]]             # by job those that it waits for


def wait_alike(
    after: Waits, queues: Sequence[int], groups: Sequence[int], loops: Sequence[RolledLoop],
    first: int, width: int,
) -> None:
    """Changes `after` of the jobs from `first` on. `queues`: of jobs, `width` of them a core; `groups`: of
    jobs. Loops in rounds of others come first: a round of these has their blocks."""
    lines: dict[int, list[int]] = {}
    cores: dict[int, list[int]] = {}
    place = [0] * (len(queues) - first)   # of a job in its queue
    for job in range(first, len(queues)):
        line = lines.setdefault(queues[job], [])
        place[job - first] = len(line)
        line.append(job)
        cores.setdefault(queues[job] // width, []).append(job)
    for jobs in cores.values():
        begins: dict[int, int] = {}
        for k, job in enumerate(jobs):
            begins.setdefault(groups[job], k)
        for loop in (loop for some in by_depth(loops) for loop in some):
            for pair in _twins(jobs, begins, loop):
                _together(after, queues, lines, place, pair, first)


def _twins(
    jobs: Sequence[int], begins: dict[int, int], loop: RolledLoop
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The jobs of both rounds on a core, in their order; nothing where it has none of them."""
    one, two, end = (
        min((begins[g] for g in groups if g in begins), default=-1)
        for groups in (loop.first, loop.second, loop.groups[-1])
    )
    if min(one, two, end) >= 0 and two - one == end - two:
        yield jobs[one:two], jobs[two:end]


def _together(
    after: Waits, queues: Sequence[int], lines: dict[int, list[int]], place: Sequence[int],
    pair: tuple[Sequence[int], Sequence[int]], first: int,
) -> None:
    """`place`: of each job from `first` on in its queue's line."""
    base = [{q: bisect_left(line, jobs[0]) for q, line in lines.items()} for jobs in pair]
    for twins in zip(*pair, strict=True):
        wanted: dict[int, int] = {}
        for job, begin in zip(twins, base, strict=True):
            for other in (other for other in after[job] if other >= first):
                far = place[other - first] - begin[queues[other]]
                wanted[queues[other]] = max(wanted.get(queues[other], far), far)
        for job, begin in zip(twins, base, strict=True):
            after[job] = tuple(
                lines[q][begin[q] + far] for q, far in wanted.items() if begin[q] + far >= 0
            )
