"""How a layer is cut into tiles, and what the search estimates that it costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from npuflow.ir.space import Interval


@dataclass(frozen=True)
class TileChoice:
    """How a layer is cut: tile size per axis, nesting (outermost first), and local slots per stream. `begin`:
    an axis and the tile that runs first on it (those before it run last); negative: tiles run from the axis'
    end to its start (where `search.tilings.reverses` allows it)."""

    sizes: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    slots: tuple[int, ...]
    local_bytes: int
    begin: tuple[str, int] = ("", 0)

    def cuts(self, axis: str, window: Interval) -> list[Interval]:
        """The pieces of an axis in a window, in the order in which they run."""
        (low, high), size = window, dict(self.sizes)[axis]
        first = self.begin[1] if axis == self.begin[0] else 0
        if first < 0:
            found, first = [(max(low, b - size), b) for b in range(high, low, -size)], -first
        else:
            found = [(a, min(a + size, high)) for a in range(low, high, size)]
        return [*found[first:], *found[:first]]


@dataclass(frozen=True)
class Costs:
    """Estimated figures of a tiled layer, in cycles and bytes, with the layer's own lower bounds."""

    cycles: float
    load: float
    store: float
    tensor: float
    vector: float
    bus: float
    head: float
    early: float
    tail: float
    bytes: float
    bound_cycles: float
    bound_bytes: float
    # from the first computation to the last, when nothing has to be waited for
    compute: float = 0.0
    const: float = 0.0                    # bytes of constants that a core loads

    def times(self, count: float) -> Costs:
        """Of as many such layers, one after the other."""
        return Costs(*(getattr(self, f.name) * count for f in fields(self)))
