"""Puts what reads and makes values into an order that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Unit = TypeVar("Unit")


def in_order(
    units: Iterable[Unit], known: Iterable[str], read: Callable[[Unit], Iterable[str]],
    made: Callable[[Unit], Iterable[str]],
) -> tuple[list[Unit], list[Unit]]:
    """The units in topological order, as they are where that is one already; and those that wait for each
    other. `known`: values that are there before; `read` and `made`: the values of a unit."""
    ready, order, waiting = set(known), list[Unit](), list(units)
    while waiting:
        rest = []
        for unit in waiting:
            if all(v in ready for v in read(unit)):
                ready.update(made(unit))
                order.append(unit)
            else:
                rest.append(unit)
        if len(rest) == len(waiting):
            return order, rest
        waiting = rest
    return order, []
