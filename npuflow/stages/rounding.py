"""Every layer's weight rounded by itself: another method or width is another task on the same moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.engine.correct.trial import decibels
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.rounding.config import Round, rounds
from npuflow.engine.rounding.layers import Layer
from npuflow.engine.rounding.rounded import Done, rounded
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.hw.target import Numerics
from npuflow.ir.rounding import RoundedWeight
from npuflow.ir.types import quant_of
from npuflow.stages.moments import Moments


@dataclass(frozen=True)
class Rounding(Artifact):
    """One layer."""

    layer: Layer
    done: Done

    def save(self, folder: Writer) -> None:
        one, weight = self.done, self.done.weight
        about = {"was": one.was, "now": one.now, "used": one.used, "bias": weight.bias, "quant": asdict(weight.quant)}
        folder.json("about", {"layer": asdict(self.layer), **about})
        arrays = {"codes": weight.codes}
        if weight.shift is not None and one.plain is not None:
            arrays |= {"shift": weight.shift, "plain": one.plain}
        folder.arrays("weight", arrays)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, a = folder.json("about"), folder.arrays("weight")
        weight = RoundedWeight(a["codes"], quant_of(about["quant"]), about["bias"], a.get("shift"))
        done = Done(weight, about["was"], about["now"], about["used"], a.get("plain"))
        return cls(Layer(**about["layer"]), done)

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name, "noise": f"{decibels(self.done.was)} -> {decibels(self.done.now)}"}


@stage(over="moments", when="round", wanted=rounds, cpu="native", memory="1GB", batch=8, floats=True)
def rounding(
    moments: Items[Moments], table: Round, quantize: Quantize, numerics: Numerics
) -> Iterator[tuple[str, Rounding]]:
    """Ask the method for codes and scales."""
    for name, one in moments.items():
        source = one.matrix
        scheme = quantize.weights_of(source.names, source.kind)
        done = rounded(table.rounder, source, one.layer.bias, one.fit, one.held, scheme, numerics)
        yield name, Rounding(one.layer, done)
