"""The table [prune], and which weights of a layer it keeps, by the layer's second moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from npuflow.base.tables import Config, Fault, Range
from npuflow.ir.sparsity import Mask, Pattern, refitted, selected
from npuflow.place.names import answers
from npuflow.rounders import Reals, damped


@dataclass(frozen=True)
class Prune(Config, table="prune"):
    """Weights that are set to zero; the others are moved to make up for them."""

    pattern: str = ""
    """Empty: none. "N:M": of every M consecutive input channels of an output N are kept; "rows": of every
    output's weights `share` become zero, wherever they are."""
    share: Annotated[float, Range(0.01, 0.99)] = 0.5
    """Of an output's weights, with pattern = "rows"."""
    method: Literal["moments", "magnitude"] = "moments"
    """By what weights are chosen: what their loss does to the layer's outputs on calibration samples, or
    their size."""
    refit: bool = True
    """Move the weights that are kept to where the layer's outputs come closest."""
    permute: bool = False
    """Bring channels into an order first in which "N:M" costs less; the network computes the same."""
    damp: Annotated[float, Range(1e-6, 10)] = 0.3
    """Share of the mean second moment that is added to each: the more, the closer weights stay."""
    layers: tuple[str, ...] = ()
    """Names, operators (conv, gemm) or patterns of names; empty: all layers without a window."""
    skip: tuple[str, ...] = ()
    """The same of layers that are left out."""

    @property
    def groups(self) -> Pattern | None:
        """Of N:M; None: of rows, or none."""
        return Pattern.read(self.pattern)

    def asks(self, names: Sequence[str], kind: str) -> bool:
        """Whether a layer is meant, if it can be pruned."""
        return (not self.layers or answers(self.layers, names, kind)) and not answers(self.skip, names, kind)

    def check(self) -> Iterator[Fault]:
        if self.pattern not in ("", "rows") and self.groups is None:
            yield Fault(
                "pattern", f'"{self.pattern}" is no pattern of zeros', hint='"2:4", "4:8" or "rows"',
                code="NF-QUANT-076",
            )


@dataclass(frozen=True)
class LayerMask:
    """[groups, outputs, terms]: what is kept of a layer; `damp`: of the refit, 0: the weights stay."""

    keep: Mask
    damp: float

    def weights(self, own: Reals, gram: Reals, along: Reals | None = None) -> Reals:
        """The layer's weights [groups, outputs, terms] with zeros, where its products come closest. `along`:
        what the wanted outputs have to do with the terms; None: the outputs of its own weights."""
        if not self.damp:
            return np.asarray(own * self.keep)
        firm = damped(gram, self.damp)
        wanted = np.matmul(own, firm)
        if along is not None:
            wanted = wanted + along - np.matmul(own, gram)
        pairs = zip(firm, wanted, self.keep, strict=True)
        return np.stack([refitted(one, each, keep) for one, each, keep in pairs])


def obstacle(shape: tuple[int, ...], channels: int, table: Prune, parts: int = 1) -> str:
    """Why a layer of weights [groups, outputs, terms] with so many input channels cannot be pruned; empty:
    it can. `parts`: blocks of input channels that its moments are of."""
    if parts > 1:
        return "its products have more terms than [moments] most_terms"
    groups, _, terms = shape
    if groups > 1:
        return "its channels are in groups"
    if channels != terms:
        return "it looks through a window"
    pattern = table.groups
    if pattern is not None and terms % pattern.of:
        return f"{terms} input channels are no multiple of {pattern.of}"
    return ""


def layer_mask(weight: Reals, gram: Reals, table: Prune) -> LayerMask:
    """`weight` [groups, outputs, terms], `gram` [groups, terms, terms]."""
    terms = weight.shape[-1]
    kept = min(terms - 1, max(1, round(terms * (1 - table.share))))
    pattern = table.groups or Pattern(kept, terms)
    damp = table.damp if table.refit else 0.0
    if table.method == "magnitude":
        return LayerMask(np.stack([pattern.strongest(np.abs(one)) for one in weight]), damp)
    firm = damped(gram, table.damp)
    return LayerMask(np.stack([selected(w, g, pattern) for w, g in zip(weight, firm, strict=True)]), damp)


def prunes(table: Prune) -> bool:
    """Whether the recipe asks for zeros."""
    return bool(table.pattern)
