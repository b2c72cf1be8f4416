"""Which calibration samples fit, which choose, and which verify: by what they hold, whatever their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from npuflow.base.digest import digest, digest_array
from npuflow.input.data.config import InputSample

VERIFIED_FROM = 6
"""Samples from which some verify. Fewer are all needed to fit and to choose."""
MOST = 64
"""Of the samples that choose, and of those that verify: more of them would cost time and say no more."""


class Splits(NamedTuple):
    """Names of disjoint samples: those that ranges, codes and corrections come from; those by which one
    choice is taken and not another; those that no choice has seen."""

    fit: tuple[str, ...]
    choose: tuple[str, ...]
    verify: tuple[str, ...]


def identity(sample: InputSample) -> str:
    """The digest of what a sample holds, whatever it is called."""
    arrays = {name: digest_array(array) for name, array in sample.arrays.items()}
    return digest([arrays, [dict(step) for step in sample.steps], sample.noise])


def divided(contents: Mapping[str, str], clips: Mapping[str, str]) -> Splits:
    """Divide samples by the digests of their contents: a fifth verifies, a quarter chooses, the rest fits.

    `contents`: digest by name. `clips`: for samples that are steps of one sequence, the name of that. What is
    of one sequence, and what is equal, stays together. Each part is in the order of its digests, so that the
    first samples of a part are a random choice of it.
    """
    members: dict[str, list[str]] = {}
    for name, content in contents.items():
        members.setdefault(clips.get(name, content), []).append(name)
    ranked = sorted(members.values(), key=lambda names: digest(sorted(contents[n] for n in names)))

    def taken(wanted: int, left: int) -> list[str]:
        """Whole groups until there are as many samples as wanted, while more groups than `left` remain."""
        found: list[str] = []
        while len(ranked) > left and len(found) < wanted:
            found += ranked.pop(0)
        return found

    total = len(contents)
    verify = taken(min(MOST, total // 5) if total >= VERIFIED_FROM else 0, 2)
    choose = taken(min(MOST, max(1, total // 4)), 1)
    fit = [name for names in ranked for name in names]

    def ordered(names: list[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=lambda name: (contents[name], name)))

    return Splits(ordered(fit), ordered(choose), ordered(verify))
