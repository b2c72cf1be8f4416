"""Which channels are removed, by what their loss does to the layers that read them, and these refitted.

Source: B. Hassibi, D. Stork, "Second order derivatives for network pruning: optimal brain surgeon", 1993 (the
loss of a weight after the best change of the others; here of all weights that read a channel), on the second
moments of each layer's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.rounders import Reals, damped

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ROUNDS = 8  # in which the channels of a group are removed, losses taken anew in each
TINY = 1e-200


@dataclass
class ReadChannels:
    """A layer that reads channels: `weight` [outputs, terms], `gram` [terms, terms] of what it reads, `label`
    of each term; `keep`: the terms that are left."""

    weight: Reals
    gram: Reals
    label: Ints
    keep: Mask
    damp: float

    @classmethod
    def of(cls, weight: Reals, gram: Reals, label: Ints, damp: float) -> ReadChannels:
        return cls(weight, gram, label, np.ones(len(label), np.bool_), damp)

    def refitted(self) -> Reals:
        """The weights of the terms that are left, where the products come closest in least squares."""
        firm = damped(self.gram[None], self.damp)[0]
        along = (self.weight @ firm)[:, self.keep]
        return np.asarray(np.linalg.solve(firm[np.ix_(self.keep, self.keep)], along.T).T)

    def losses(self, labels: Sequence[int]) -> Reals:
        """Noise over signal of the layer's outputs that the loss of each of these channels adds, the other
        weights moved."""
        firm = damped(self.gram[None], self.damp)[0]
        left = np.flatnonzero(self.keep)
        inverse = np.linalg.inv(firm[np.ix_(left, left)])
        now = (self.weight @ firm)[:, left] @ inverse
        signal = max(float(((self.weight @ self.gram) * self.weight).sum()), TINY)
        own, found = self.label[left], np.zeros(len(labels))
        for k, label in enumerate(labels):
            at = np.flatnonzero(own == label)
            if len(at):
                part = now[:, at]
                solved = np.linalg.solve(inverse[np.ix_(at, at)], part.T)
                found[k] = max(float((part.T * solved).sum()), 0.0) / signal
        return found

    def noise(self, made: Reals, gram: Reals) -> float:
        """Noise over signal of the outputs with weights `made` of the terms that are left."""
        off = self.weight.copy()
        off[:, self.keep] -= made
        signal = max(float(((self.weight @ gram) * self.weight).sum()), TINY)
        return float(((off @ gram) * off).sum()) / signal


def removed_count(count: int, share: float, multiple: int) -> int:
    """How many of so many channels go: the share, those that are kept a multiple."""
    kept = -(-round(count * (1 - share)) // multiple) * multiple
    return max(0, count - max(kept, min(multiple, count)))


def by_moments(labels: Sequence[int], readers: Sequence[ReadChannels], count: int) -> list[int]:
    """The channels whose loss costs the layers that read them least; these lose them."""
    gone: list[int] = []
    for turn in range(ROUNDS):
        left = [label for label in labels if label not in set(gone)]
        now = (count * (turn + 1)) // ROUNDS - len(gone)
        if now <= 0:
            continue
        losses = np.sum([one.losses(left) for one in readers], axis=0)
        some = [left[i] for i in np.argsort(losses, kind="stable")[:now]]
        gone += some
        drop(readers, some)
    return gone


def by_magnitude(labels: Sequence[int], norms: Mapping[int, float], count: int) -> list[int]:
    """The channels of the smallest norms."""
    return sorted(labels, key=lambda label: (norms[label], label))[:count]


def drop(readers: Sequence[ReadChannels], labels: Sequence[int]) -> None:
    """Channels that the layers no longer read."""
    for one in readers:
        one.keep &= ~np.isin(one.label, labels)


def norms(rows: Sequence[tuple[Reals, Ints]]) -> dict[int, float]:
    """Of every channel the norm of the weights that make it, each layer's over their mean; `rows`: by layer
    the weights [outputs, terms] and the label of each output."""
    found: dict[int, float] = {}
    for weight, labels in rows:
        size = np.square(weight).sum(1)
        for label, one in zip(labels.tolist(), size / max(float(size.mean()), TINY), strict=True):
            found[label] = found.get(label, 0.0) + float(one)
    return found
