"""Idle processors that a step is lent: the results are those of one thread, and so are the errors."""

from __future__ import annotations

import threading
import time

import pytest

from npuflow.base.processors import ROOM, WORTH, Processors


def processors(count: int) -> Processors:
    made = Processors()
    made.count = count
    return made


def threads_of(made: Processors, items: int = 6, each: int = WORTH) -> tuple[list[int], set[int]]:
    """Results of items that wait, and the threads that they were computed in."""
    seen = set()

    def call(item: int) -> int:
        seen.add(threading.get_ident())
        time.sleep(0.01)
        return item * item

    return made.all_of(call, range(items), each), seen


def test_results_are_in_the_order_of_the_items() -> None:
    made = processors(3)
    with made.at_work():
        found, seen = threads_of(made, 40)
    assert found == [item * item for item in range(40)]
    assert len(seen) == 3 and threading.get_ident() in seen


@pytest.mark.parametrize(
    ("count", "each", "threads"), [(1, WORTH, 1), (3, WORTH - 1, 1), (3, ROOM, 2), (3, 2 * ROOM, 1)]
)
def test_what_is_short_or_large_is_not_spread(count: int, each: int, threads: int) -> None:
    made = processors(count)
    with made.at_work():
        assert len(threads_of(made, each=each)[1]) == threads


def test_processors_of_other_steps_are_not_taken() -> None:
    made, begins, ends = processors(2), threading.Event(), threading.Event()

    def other() -> None:
        with made.at_work():
            begins.set()
            ends.wait(10)

    beside = threading.Thread(target=other)
    beside.start()
    assert begins.wait(10)
    with made.at_work():
        assert len(threads_of(made)[1]) == 1
        ends.set()
        beside.join()
        assert len(threads_of(made)[1]) == 2
    assert len(threads_of(made)[1]) == 1, "no step is at work"


def test_the_first_error_is_raised_and_processors_are_given_back() -> None:
    made = processors(4)

    def call(item: int) -> int:
        time.sleep(0.01 * (item == 2))
        if item >= 2:
            raise ValueError(f"item {item}")
        return item

    with made.at_work():
        for _ in range(3):
            with pytest.raises(ValueError, match="item 2"):
                made.all_of(call, range(40), WORTH)
        assert len(threads_of(made, 12)[1]) == 4


def test_an_interrupt_leaves_no_thread_behind() -> None:
    made, before = processors(2), threading.active_count()
    main = threading.get_ident()

    def call(item: int) -> None:
        if threading.get_ident() == main:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with made.at_work(), pytest.raises(KeyboardInterrupt):
        made.all_of(call, range(1000), WORTH)
    assert threading.active_count() == before


def test_seconds_of_lent_processors_are_the_steps() -> None:
    def call(_: int) -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    made = processors(2)
    with made.at_work() as work:
        made.all_of(call, range(10), WORTH)
    assert 0.2 <= work.seconds < 2.0
