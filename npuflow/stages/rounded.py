"""Weights rounded by moments, a task a layer, where held-out samples or a named method say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Self

from npuflow.base.tables import canonical, read
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Project, log, part, stage
from npuflow.hw.target import Numerics
from npuflow.ir.types import fields_of, quant_of
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize, Weights
from npuflow.quantise.rounded import at_width
from npuflow.rounders import RoundedWeight
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.masks import Masks
from npuflow.stages.moments import LayerMoments, item_of
from npuflow.stages.parse import Parsed
from npuflow.tune.improve import Trial, decibels, summary
from npuflow.tune.rounding.config import CandidateWidths, RoundTable, rounds
from npuflow.tune.rounding.layers import WeightedLayer
from npuflow.tune.rounding.rounded import LayerScheme, RoundingResult, RoundingScheme, Wanted
from npuflow.tune.rounding.rounded import rounded as rounded_by
from npuflow.tune.rounding.weights import closer, to_nearest


@dataclass(frozen=True)
class WeightSchemes(Artifact):
    """Of every layer, by its name in `moments`, what [quantize] says of its weights: the table as a recipe
    has it, and the float type of the layer's products; and the methods that the tables name."""

    tables: Mapping[str, Mapping[str, Any]]
    numbers: Mapping[str, str]
    calibrators: tuple[str, ...]

    def of(self, item: str) -> tuple[Mapping[str, Any], str]:
        """A layer's own: all that rounding it depends on."""
        return self.tables[item], self.numbers[item]

    def weights(self, item: str) -> Weights:
        found, _ = read(Weights, self.tables[item])
        assert found is not None
        return found

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"calibrators": self.calibrators}

    def summary(self) -> dict[str, Any]:
        return {"layers": len(self.tables)}


@part
def schemes(graph: Parsed, quantize: Quantize) -> WeightSchemes:
    """Apart for every layer, so that an exception for one rounds that one again."""
    tables, numbers = dict[str, Mapping[str, Any]](), dict[str, str]()
    for index, node in enumerate(graph.graph.nodes):
        if any(node.op.role(i) == "weight" for i in range(len(node.inputs))):
            names, kind = names_of(node), op_name(node)
            scheme = canonical(quantize.weights_of(names, kind))
            options = scheme.pop("options", {})
            if "method" in options:
                scheme[scheme["method"]] = options["method"]
            tables[item_of(index)] = scheme
            numbers[item_of(index)] = quantize.number(names, kind)
    return WeightSchemes(tables, numbers, tuple(sorted({table["method"] for table in tables.values()})))


@dataclass(frozen=True)
class RoundedLayer(Artifact):
    """One layer: `done` at the recipe's width, `others` at the candidates of a search where they are used."""

    layer: WeightedLayer
    done: RoundingResult
    others: tuple[RoundedWeight, ...] = ()

    def save(self, folder: Writer) -> None:
        one, weight = self.done, self.done.weight
        about = {
            "was": one.was,
            "now": one.now,
            "used": one.used,
            "pruned": one.pruned,
            "bias": weight.bias,
            "quant": fields_of(weight.quant),
            "others": [fields_of(other.quant) for other in self.others],
        }
        folder.json("about", {"layer": asdict(self.layer), **about})
        arrays = {"codes": weight.codes}
        if weight.shift is not None and one.plain is not None:
            arrays |= {"shift": weight.shift, "plain": one.plain}
        for i, other in enumerate(self.others):
            arrays[f"codes_{i}"] = other.codes
            if other.shift is not None:
                arrays[f"shift_{i}"] = other.shift
        folder.arrays("weight", arrays)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, a = folder.json("about"), folder.arrays("weight")
        weight = RoundedWeight(a["codes"], quant_of(about["quant"]), about["bias"], a.get("shift"))
        done = RoundingResult(
            weight, about["was"], about["now"], about["used"], a.get("plain"), about["pruned"]
        )
        others = tuple(
            RoundedWeight(a[f"codes_{i}"], quant_of(quant), about["bias"], a.get(f"shift_{i}"))
            for i, quant in enumerate(about["others"])
        )
        return cls(WeightedLayer(**about["layer"]), done, others)

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name, "noise": f"{decibels(self.done.was)} -> {decibels(self.done.now)}"}


@dataclass(frozen=True)
class Rounded(Artifact):
    """By value id, at other widths than the recipe's as `at_width` names them; what was tried, layer by layer
    and over the whole network."""

    weights: Mapping[str, RoundedWeight] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()

    def save(self, folder: Writer) -> None:
        names = list(self.weights)
        about = [
            {"value": v, "bias": one.bias, "quant": fields_of(one.quant)} for v, one in self.weights.items()
        ]
        folder.json("weights", about)
        folder.json("corrections", [asdict(t) for t in self.trials])
        folder.arrays("codes", {f"{i:04}": self.weights[v].codes for i, v in enumerate(names)})
        shifts = {f"{i:04}": self.weights[v].shift for i, v in enumerate(names)}
        folder.arrays("shifts", {i: one for i, one in shifts.items() if one is not None})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        codes, shifts = folder.arrays("codes"), folder.arrays("shifts")
        weights = {
            row["value"]: RoundedWeight(
                codes[f"{i:04}"], quant_of(row["quant"]), row["bias"], shifts.get(f"{i:04}")
            )
            for i, row in enumerate(folder.json("weights"))
        }
        return cls(weights, tuple(Trial(**t) for t in folder.json("corrections")))

    def summary(self) -> dict[str, Any]:
        return {"weights": len(self.weights), **summary(self.trials)}


@part(cpu="native", memory="1GB", floats=True)
def chosen(
    rounding: Items[RoundedLayer],
    graph: Parsed,
    seen: RoundingSamples,
    table: RoundTable,
    quantize: Quantize,
    numerics: Numerics,
) -> Rounded:
    """A method that judges itself by no sample is obeyed. Else all layers together are compared
    with rounding to the nearest."""
    source, done = graph.graph, {one.layer.name: one.done for one in rounding.values()}
    layers = {one.layer.weight: one for one in rounding.values() if one.done.used}
    reported = [Trial("round", name, one.was, one.now, one.used) for name, one in done.items()]
    weights = {name: one.done.weight for name, one in layers.items()}
    if table.judged and weights:
        nearest, schemes = {}, RoundingScheme(table, quantize, numerics)
        for name, one in layers.items():
            if one.done.pruned:
                nearest[name] = one.done.weight             # zeros stay: both sides have them
                continue
            node, real = source.nodes[one.layer.node], source.const(name)
            assert real is not None
            site, at = source.site(node), node.inputs.index(name)
            axis, inner = node.op.channel_axis(site, at), node.op.group_axis(site, at)
            quant = schemes.named(tuple(names_of(node)), op_name(node)).type_of(real, axis, inner)
            nearest[name] = to_nearest(source, name, quant, one.layer.bias, one.done.plain)
        trial = closer("round", seen.judge(with_fixed_outputs(source)), nearest, weights)
        reported.append(trial)
        pruned = {name: one.done.weight for name, one in layers.items() if one.done.pruned}
        weights = weights if trial.kept else pruned
    for line in reported:
        log(line.line())
    others = {at_width(one.layer.weight, o.quant.bits): o for one in rounding.values() for o in one.others}
    return Rounded({**weights, **others}, tuple(reported))


@stage(
    over="moments",
    when="round",
    wanted=rounds,
    parts=(schemes,),
    merge=chosen,
    cpu="native",
    memory="2GB",
    batch=4,
    floats=True,
)
def rounded(
    moments: Items[LayerMoments],
    table: RoundTable,
    candidates: CandidateWidths,
    schemes: Annotated[WeightSchemes, Project("of")],
    numerics: Numerics,
    masks: Masks | None,
) -> Iterator[tuple[str, RoundedLayer]]:
    """Ask the method for codes and scales, at the recipe's width and at those that a search may choose."""
    for name, one in moments.items():
        rounder = table.rounder_of(one.matrix.names, one.matrix.kind)
        scheme = LayerScheme(rounder, schemes.weights(name), numerics, schemes.numbers[name])
        mask = masks.layers.get(one.layer.weight) if masks is not None else None
        seen = one.matrix, one.layer.bias, one.fit, one.held
        done = rounded_by(scheme, *seen, Wanted(mask=mask))
        others = []
        for bits in sorted({*(candidates.weights or ())} - {scheme.weights.bits}):
            if mask is not None or scheme.rounder.wants(bits):
                other = replace(scheme, weights=scheme.weights.with_(bits=bits))
                more = rounded_by(other, *seen, Wanted(mask=mask))
                others += [more.weight] if more.used else []
        yield name, RoundedLayer(one.layer, done, tuple(others))
