"""The fast way out of a build that has nothing to do."""

from __future__ import annotations

from collections.abc import Sequence


def nothing_to_do(args: Sequence[str]) -> bool:
    """Whether a memo proves that these recipes are built; prints the result line if so."""
    return False
