"""Gradual pruning while a network is trained: masks on a schedule, by magnitude or from a build's masks.npz.

Source: M. Zhu, S. Gupta, "To prune, or not to prune", 2017 (the cubic schedule).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuflow.base.errors import UsageError
from npuflow.ir.op import Node
from npuflow.ir.sparsity import Pattern
from npuflow.place.names import answers, names_of
from npuflow.place.place import op_name
from npuflow.torch.prepared import PreparedNetwork


@dataclass(frozen=True)
class PruningSchedule:
    """What is zero after which step: nothing before `first`, everything from `last` on, by a cubic curve in
    between, at every multiple of `every` steps. An N:M pattern with `gradual` goes from M of M to N of M."""

    first: int = 0
    last: int = 0
    every: int = 1
    gradual: bool = True

    def share(self, step: int) -> float:
        """Of the zeros that there are in the end, how many there are at a step."""
        if step < self.first:
            return 0.0
        if step >= self.last or not self.gradual:
            return 1.0
        left = 1.0 - (step - self.first) / max(self.last - self.first, 1)
        return float(1.0 - left**3)


@dataclass
class Pruner:
    """`pattern`: "N:M" along input channels, "rows" for a `share` of every output's weights, "outputs" for a
    `share` of the output channels as a whole, or "" with `masks` (a `masks.npz`, or arrays by the id of the
    weight). `layers`: names, operators or patterns of names; empty: all layers that can have the pattern."""

    network: PreparedNetwork
    pattern: str = ""
    share: float = 0.5
    schedule: PruningSchedule = field(default_factory=PruningSchedule)
    masks: str | Path | Mapping[str, Any] | None = None
    layers: Collection[str] = ()
    skip: Collection[str] = ()

    def __post_init__(self) -> None:
        if self.pattern not in ("", "rows", "outputs") and Pattern.read(self.pattern) is None:
            raise UsageError(
                f'"{self.pattern}" is no pattern of zeros',
                hint='"2:4", "4:8", "rows" or "outputs"',
                code="NF-USAGE-203",
            )
        if bool(self.pattern) == (self.masks is not None):
            raise UsageError(
                "a pattern or masks: one of them has to be given",
                hint='Pruner(network, "2:4") or Pruner(network, masks="out/masks.npz")',
                code="NF-USAGE-204",
            )
        self._known = self._given()
        self._done: float | None = None

    def step(self, step: int) -> None:
        """Masks for a step of the training; to be called before it."""
        if step < self.schedule.first or (step % self.schedule.every and step < self.schedule.last):
            return
        share = self.schedule.share(step)
        if share in (0.0, self._done):
            return
        for name, final in self._known.items():
            self.network.set_mask(name, final)
        for node, name in self._layers() if self.pattern else ():
            self.network.set_mask(name, self._mask(node, name, share))
        self._done = share

    def zeros(self) -> float:
        """The share of zeros among the weights that have masks."""
        kept = list(self.network.masks.values())
        count = sum(mask.numel() for mask in kept)
        return 1.0 - float(sum(mask.sum() for mask in kept)) / count if count else 0.0

    def _given(self) -> dict[str, Any]:
        if self.masks is None:
            return {}
        if isinstance(self.masks, Mapping):
            return dict(self.masks)
        with np.load(self.masks, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}

    def _layers(self) -> list[tuple[Node, str]]:
        """Layers with a weight of their own that can have the pattern."""
        graph = self.network.target.graph
        found = []
        for node in graph.nodes:
            names = [v for i, v in enumerate(node.inputs) if v and node.op.role(i) == "weight"]
            if not names or names[0] not in self.network.weight_names:
                continue
            own, kind = names_of(node), op_name(node)
            asked = not self.layers or answers(tuple(self.layers), own, kind)
            if asked and not answers(tuple(self.skip), own, kind) and self._fits(node, names[0]):
                found.append((node, names[0]))
        return found

    def _fits(self, node: Node, name: str) -> bool:
        """Whether the weights of an output are as many as input channels, and a multiple of the pattern's."""
        if self.pattern == "outputs":
            return True
        graph = self.network.target.graph
        axis, array = node.op.group_axis(graph.site(node), 1), graph.const(name)
        if axis is None or array is None:
            return False
        rows = node.op.rows(array)
        pattern = Pattern.read(self.pattern)
        whole = rows.shape[1] == array.shape[axis]
        return whole and (pattern is None or rows.shape[1] % pattern.of == 0)

    def _mask(self, node: Node, name: str, share: float) -> Any:
        """By magnitude, of the float weights as they are."""
        with torch.no_grad():
            weight = self.network.constants[self.network._place[name]](self.network.source).numpy()
        site = self.network.target.graph.site(node)
        axis = node.op.channel_axis(site, 1) or 0
        size = np.abs(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1))
        if self.pattern == "outputs":
            gone = round(self.share * share * len(size))
            keep = np.ones(size.shape, np.bool_)
            keep[np.argsort(size.sum(1), kind="stable")[:gone]] = False
        else:
            keep = self._by_row(size, share)
        moved = np.moveaxis(weight, axis, 0).shape
        return np.moveaxis(keep.reshape(moved), 0, axis)

    def _by_row(self, size: Any, share: float) -> Any:
        pattern = Pattern.read(self.pattern)
        if pattern is None:
            kept = max(1, round(size.shape[1] * (1.0 - self.share * share)))
            pattern = Pattern(kept, size.shape[1])
        elif share < 1.0:
            gone = round((pattern.of - pattern.keep) * share)
            pattern = Pattern(pattern.of - gone, pattern.of)
        return pattern.strongest(size) if pattern.keep < pattern.of else np.ones(size.shape, np.bool_)
