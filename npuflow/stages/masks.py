"""Which weights are kept where [prune] sets others to zero: a task a layer, and one file of all masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.place.names import unknown_layers
from npuflow.stages.moments import LayerMoments
from npuflow.stages.parse import Parsed
from npuflow.tune.improve import Trial
from npuflow.tune.rounding.mask_file import packed, unpacked
from npuflow.tune.rounding.pruning import LayerMask, Prune, layer_mask, obstacle, prunes

FILE = "masks.npz"
TINY = 1e-200


@dataclass(frozen=True)
class KeptLayer(Artifact):
    """One layer: the name of its weight, what is kept of it as its matrix and as the tensor lies in the
    model, and what that costs: noise over signal of the layer's outputs on held-out samples with the other
    weights as they were, and refitted. None: it is not pruned."""

    weight: str
    mask: LayerMask | None = None
    tensor: Any = None
    trial: Trial | None = None

    def save(self, folder: Writer) -> None:
        trial = None if self.trial is None else asdict(self.trial)
        damp = None if self.mask is None else self.mask.damp
        folder.json("about", {"weight": self.weight, "damp": damp, "trial": trial})
        if self.mask is not None:
            folder.arrays("mask", {"keep": self.mask.keep, "tensor": self.tensor})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about = folder.json("about")
        if about["damp"] is None:
            return cls(about["weight"])
        a = folder.arrays("mask")
        return cls(about["weight"], LayerMask(a["keep"], about["damp"]), a["tensor"], Trial(**about["trial"]))

    def summary(self) -> dict[str, Any]:
        return {"layer": self.weight} if self.trial is None else {"noise": self.trial.errors()}


@dataclass(frozen=True)
class Masks(Artifact):
    """By the id of the weight."""

    layers: Mapping[str, LayerMask] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()

    def save(self, folder: Writer) -> None:
        names = list(self.layers)
        about = [{"weight": name, "damp": self.layers[name].damp} for name in names]
        folder.json("masks", {"layers": about, "trials": [asdict(t) for t in self.trials]})
        folder.arrays("keep", {f"{i:04}": self.layers[name].keep for i, name in enumerate(names)})
        folder.bytes(FILE, packed(self.tensors))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, keep = folder.json("masks"), folder.arrays("keep")
        layers = {
            row["weight"]: LayerMask(keep[f"{i:04}"], row["damp"]) for i, row in enumerate(about["layers"])
        }
        tensors = unpacked(folder.bytes(FILE))
        return cls(layers, tensors, tuple(Trial(**t) for t in about["trials"]))

    def products(self) -> dict[str, str]:
        return {"masks": FILE}

    def summary(self) -> dict[str, Any]:
        kept, whole = (sum(f(one.keep) for one in self.layers.values()) for f in (np.count_nonzero, np.size))
        return {"layers": len(self.layers), "zeros": round(1 - int(kept) / max(int(whole), 1), 4)}


def gathered(layers: Items[KeptLayer]) -> Masks:
    """All masks in one file, by the names that the weights have in the graph."""
    known = [one for one in layers.values() if one.mask is not None]
    trials = tuple(one.trial for one in known if one.trial is not None)
    for trial in trials:
        log(trial.line())
    tensors = {one.weight: one.tensor for one in known}
    return Masks({one.weight: one.mask for one in known if one.mask is not None}, tensors, trials)


@stage(over="moments", when="prune", wanted=prunes, merge=gathered, cpu="native", memory="1GB", batch=4,
       floats=True)
def masks(moments: Items[LayerMoments], graph: Parsed, prune: Prune) -> Iterator[tuple[str, KeptLayer]]:
    """Choose the weights to keep, layer by layer."""
    stated = [(f"prune.{key}", getattr(prune, key)) for key in ("layers", "skip")]
    unknown_layers(graph.graph, [one for one in stated if one[1]])
    for name, one in moments.items():
        source = one.matrix
        weight = one.layer.weight
        channels = source.tensor.shape[source.inner] if source.inner is not None else 0
        why = obstacle(source.index.shape, channels, prune, source.parts)
        asked = prunes(prune) and prune.asks(source.names, source.kind)
        if why or not asked:
            log(f"{one.layer.name}: not pruned: {why or 'the recipe leaves it out'}")
            yield name, KeptLayer(weight)
            continue
        center = one.fit.mean if one.layer.bias else None
        own, gram = source.rows(source.tensor), one.fit.around(center)
        mask = layer_mask(own, gram, prune)
        judge = gram if one.held is None else one.held.around(center)
        signal = max(float((np.matmul(own, judge) * own).sum()), TINY)
        noise = []
        for made in (own * mask.keep, mask.weights(own, gram)):
            off = own - made
            noise.append(float((np.matmul(off, judge) * off).sum()) / signal)
        tensor = source.tensor_of(mask.keep.astype(np.float64), "bool")
        share = 1 - np.count_nonzero(mask.keep) / mask.keep.size
        trial = Trial("prune", one.layer.name, noise[0], noise[1], True, share)
        yield name, KeptLayer(weight, mask, tensor, trial)
