"""Which of many changes, made one after the other, is the first after which something is wrong."""

from __future__ import annotations

from collections.abc import Callable


def first_prefix(count: int, wrong: Callable[[int], bool]) -> int:
    """The length of a prefix that is wrong while the one shorter by 1 is right, found by bisection: that of
    length 0 is right and that of `count` is wrong, both without asking."""
    right, found = 0, count
    while found - right > 1:
        middle = (right + found) // 2
        if wrong(middle):
            found = middle
        else:
            right = middle
    return found
