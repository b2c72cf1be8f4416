"""Whether a target runs a node, and why not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Yes:
    """The target runs this node."""


@dataclass(frozen=True)
class No:
    """The target does not run this node; `reason` carries the numbers."""

    reason: str


def need(condition: bool, reason: str) -> Yes | No:
    return Yes() if condition else No(reason)


def first_no(*answers: Yes | No) -> Yes | No:
    """The first refusal, else Yes."""
    return next((a for a in answers if isinstance(a, No)), Yes())
