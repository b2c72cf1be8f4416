"""Which calibration samples fit, which choose, and which verify: by what they hold, whatever their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

VERIFIED_FROM = 6
"""Samples from which some verify. Fewer are all needed to fit and to choose."""
CHOOSE, VERIFY = 32, 64
"""Most samples of these parts: more would cost time and say no more, and ranges gain by samples that fit."""


class Division(NamedTuple):
    """Names of disjoint samples: those that ranges, codes and corrections come from; those by which one
    choice is taken and not another; those that no choice has seen."""

    fit: tuple[str, ...]
    choose: tuple[str, ...]
    verify: tuple[str, ...]


def divided(identities: Mapping[str, str]) -> Division:
    """Divide samples by the digests that identify them: a fifth verifies, a quarter chooses, the rest fits.

    `identities`: digest by name. Equal samples stay together. Each part is in the order of its digests, so
    that the first samples of a part are a random choice of it.
    """
    equal: dict[str, list[str]] = {}
    for name, digest in identities.items():
        equal.setdefault(digest, []).append(name)
    ranked = [sorted(equal[digest]) for digest in sorted(equal)]

    def taken(wanted: int, left: int) -> tuple[str, ...]:
        """Groups until there are as many samples as wanted, while more groups than `left` remain."""
        found: list[str] = []
        while len(ranked) > left and len(found) < wanted:
            found += ranked.pop(0)
        return tuple(found)

    total = len(identities)
    verify = taken(min(VERIFY, total // 5) if total >= VERIFIED_FROM else 0, 2)
    choose = taken(min(CHOOSE, max(1, total // 4)), 1)
    return Division(tuple(name for names in ranked for name in names), choose, verify)
