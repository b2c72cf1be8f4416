"""The table [prune.channels]: output channels that are removed from a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range
from npuflow.place.names import answers, stated


@dataclass(frozen=True)
class ChannelShare(Config):
    """Another share for some layers, and for those whose channels are coupled with theirs."""

    layers: tuple[str, ...]               # node names, operator names (conv, gemm), or patterns (*/head/*)
    share: Annotated[float, Range(0.0, 0.95)]


@dataclass(frozen=True)
class ChannelPruning(Config, table="prune.channels"):
    """Whole output channels that are removed, with everything that reads them or is coupled with them; the
    layers that read them make up for it."""

    share: Annotated[float, Range(0.0, 0.95)] = 0.25
    """Of every group of coupled channels this share is removed."""
    multiple: Annotated[int, Range(1, None)] = 8
    """Channels that are kept are a multiple of it: arrays work on so many at once."""
    method: Literal["moments", "magnitude"] = "moments"
    """By what channels are chosen: what their loss does to the outputs of the layers that read them on
    calibration samples, after the refit; or the norm of their weights (L2)."""
    refit: bool = True
    """Move the weights of the layers that read removed channels to where their outputs come closest."""
    damp: Annotated[float, Range(1e-6, 10)] = 0.01
    """Share of the mean second moment that is added to each: the more, the closer weights stay."""
    layers: tuple[str, ...] = ()
    """Names, operators (conv, gemm) or patterns of names of layers that lose channels; empty: all."""
    skip: tuple[str, ...] = ()
    """The same of layers that are left out."""
    overrides: tuple[ChannelShare, ...] = ()
    """Exceptions; later ones win."""

    def share_of(self, layers: Iterable[tuple[tuple[str, ...], str]]) -> float:
        """That of a group of coupled channels, by names and operator of each layer that makes them."""
        known = list(layers)

        def meant(patterns: tuple[str, ...]) -> bool:
            return any(answers(patterns, names, op) for names, op in known)

        if meant(self.skip):
            return 0.0
        asked = [one.share for one in self.overrides if meant(one.layers)]
        return asked[-1] if asked else self.share if not self.layers or meant(self.layers) else 0.0

    @property
    def named(self) -> list[tuple[str, tuple[str, ...]]]:
        """The names of layers that the table states, by recipe key."""
        plain = [("prune.channels.layers", self.layers), ("prune.channels.skip", self.skip)]
        return [*(one for one in plain if one[1]), *stated("prune.channels.overrides", self.overrides)]
