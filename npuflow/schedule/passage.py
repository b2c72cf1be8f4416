"""What frames with the same parts, cuts and buffers have in common, found once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npuflow.schedule.geometry import Spread, Stripe
from npuflow.schedule.joined import Joins
from npuflow.schedule.model import Layer


@dataclass(eq=False)
class Passage:
    """How parts pass through their strips, once that is asked for: the same whatever their tiles."""

    strips: tuple[list[Stripe], ...] | None = None
    layers: tuple[Layer, ...] | None = None
    holds: Mapping[str, int] | None = None
    slots: Mapping[str, int] | None = None
    joins: Joins | None = None
    spreads: dict[object, Spread] = field(default_factory=dict)     # of values made here, by who reads them
