"""Objects that have locks or threads, made usable again in a process that was forked from theirs."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something whose locks a thread of the parent may have held when the process was forked."""

    def forked(self) -> None:
        """Called in the child, where no other thread lives: make locks and threads anew."""


_LIVE: WeakSet[Forked] = WeakSet()


def renewed_in_children(one: Forked) -> None:
    """Have `forked` of this object called in every child that `os.fork` makes of this process."""
    _LIVE.add(one)


def _renew() -> None:
    for one in list(_LIVE):
        one.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
