"""The score of a recipe of components: its programs in a chain beside its float models in a chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from npuflow.base.errors import DataError, UsageError
from npuflow.checks import evaluate as scoring
from npuflow.checks.evaluate import Evaluate, Score
from npuflow.cli._build import OutputOptions, run
from npuflow.cli._components import FILE, graph_of, planned_of, wired
from npuflow.cli._slow import Working
from npuflow.flow.recipe_components import Component, handed_on
from npuflow.flow.recipe_files import components_of, parse_set
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.types import Array
from npuflow.metrics import METRICS, Metric
from npuflow.program.packing.package import load_package
from npuflow.run.floats import FloatRun
from npuflow.runner.chained import ChainedModel, free_ends, names_of
from npuflow.runner.opening import opened
from npuflow.stages.component_outputs import items_of

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.recipe_build import Settings

Names = Mapping[tuple[str, str], str]
Sample = Mapping[str, Array]


def chain_scores(
    path: Path, program: Path | None, sets: Sequence[str], settings: Settings
) -> dict[str, Score]:
    """By component that feeds no other and has [evaluate]: its score behind the components above it. Builds
    what is not built."""
    every = components_of(path, [parse_set(text) for text in sets])
    scored = _scored(path, every, planned_of(path, sets, settings), settings)
    with Working(f'building "{path}" to measure it'), redirect_stdout(StringIO()):
        code = run([path], sets, settings, OutputOptions(quiet=True))
    if code:
        raise typer.Exit(code)
    planned = planned_of(path, sets, settings)              # the samples of all components are there now
    plans = {recipe.name: plan for recipe, plan in planned}
    graphs = {recipe.name: graph_of(plan, recipe, settings) for recipe, plan in planned}
    family = planned[0][0].family
    assert family is not None
    file = program or family / FILE
    return {name: _score(every[name], file, plans, graphs, every) for name in scored}


def _scored(
    path: Path, every: Mapping[str, Component], planned: Sequence[tuple[Recipe, Plan]], settings: Settings
) -> list[str]:
    """The components whose outputs are scored; what speaks against it is said before anything is built."""
    ends = [name for name in every if not handed_on(every, name)]
    found = [one.name for one, _ in planned if one.name in ends and one.table("evaluate") is not None]
    if not found:
        raise UsageError(
            f"{path} scores nothing", because=f"[evaluate] is lacking of {' and '.join(ends)}",
            hint=f'[components.{ends[0]}.evaluate] metric = "agreement"', code="NF-USAGE-411",
        )
    by_function = [name for name, one in every.items() if one.hands_on]
    if by_function:
        raise UsageError(
            "components with a function between them are not scored as one", code="NF-USAGE-423",
            because=f'of a program\'s outputs the function of "{by_function[0]}" may make other rows',
            hint=f"npuflow eval {path}#{found[0]} scores it behind the float models above it",
        )
    kept = [recipe.name for recipe, plan in planned if graph_of(plan, recipe, settings).state]
    if kept:
        raise UsageError(
            "a chain with state is not scored as one", because=f'"{kept[0]}" has state',
            hint=f"npuflow eval {path}#{kept[0]} scores it behind the float models above it",
            code="NF-USAGE-412",
        )
    return found


def _score(
    last: Component, file: Path, plans: Mapping[str, Plan], graphs: Mapping[str, Graph],
    every: Mapping[str, Component],
) -> Score:
    table = plans[last.name]["evaluate"].configs["evaluate"]
    assert isinstance(table, Evaluate)
    backend = opened(file, None if table.by == "executor" else "simulator")
    if not isinstance(backend, ChainedModel) or backend.each.keys() != every.keys():
        raise UsageError(
            f'"{file}" is no file of these components', because=f"components: {', '.join(every)}",
            hint="the model.npu that npuflow build wrote of this recipe", code="NF-USAGE-413",
        )
    chain = wired(every)
    ports = free_ends({name: (one.inputs, one.outputs) for name, one in backend.each.items()}, chain)
    fed, made = (names_of(ends) for ends in ports)
    floats = FloatChain(graphs, every, fed)
    metric: Metric = table.options or METRICS[table.metric]()
    samples = list(_samples(last, plans, graphs, fed))
    scoring.labels_there(metric, table.metric, {str(i): label for i, (_, label) in enumerate(samples)})
    wanted = {made[last.name, output]: output for output in graphs[last.name].outputs}
    nodes = [node for one in load_package(file).networks.values() for node in one.meta["nodes"]]
    host = sum(node["host"]["macs"] for node in nodes if "host" in node)
    whole = sum(map(graph_macs, graphs.values()))
    share = 1 - host / whole if whole else 0.0
    found = scoring.score(
        samples, _Outputs(backend, wanted), _Last(floats, last.name), metric, table.metric, share
    )
    return replace(found, host_macs=host)


def _samples(
    last: Component, plans: Mapping[str, Plan], graphs: Mapping[str, Graph], fed: Names
) -> Iterator[tuple[dict[str, Array], Any]]:
    """What the chain is fed, row by row, and the labels of the component that is scored."""
    from npuflow.input.data.read import samples

    rows: dict[tuple[int, int], dict[str, Array]] = {}
    labels: dict[tuple[int, int], Any] = {}
    for name, graph in graphs.items():
        own = [given for component, given in fed if component == name]
        if not own and name != last.name:
            continue
        if "evaluate" not in plans[name]:
            raise DataError(
                f'the component "{name}" has no samples of [evaluate]', code="NF-DATA-287",
                hint=f'[components.{name}.evaluate] source = "test.npz"',
            )
        tables: Mapping[str, Any] = plans[name]["evaluate"].listing_configs
        listed = items_of(scoring.labelled(tables["evaluate"], tables["data"], tables.get("model")))
        types = {given: graph.type(given) for given in graph.inputs}
        for key, sample in samples({k: (item.files, item.detail["read"]) for k, item in listed.items()}):
            place = tuple(listed[key].detail["place"])
            if sample.broken:
                continue
            values = sample.feed(types)
            rows.setdefault(place, {}).update({fed[name, given]: values[given] for given in own})
            if name == last.name:
                labels[place] = listed[key].detail["label"]
    for place, row in sorted(rows.items()):
        if len(row) == len(fed) and place in labels:
            yield row, labels[place]


class FloatChain:
    """The float models, each fed by those above it."""

    def __init__(self, graphs: Mapping[str, Graph], every: Mapping[str, Component], fed: Names) -> None:
        self.graphs, self.every, self.fed = graphs, every, fed
        self.runs = {name: FloatRun.of(graph, graph.outputs) for name, graph in graphs.items()}

    def run(self, sample: Sample) -> dict[tuple[str, str], Array]:
        """By component and output."""
        made: dict[tuple[str, str], Array] = {}
        for name, graph in self.graphs.items():
            values = {given: sample[shown] for (one, given), shown in self.fed.items() if one == name}
            for given, source in self.every[name].inputs.items():
                values[given] = made[source].reshape(graph.type(given).shape)
            made |= {(name, output): array for output, array in self.runs[name].run(values).items()}
        return made


class _Last:
    """The outputs of one component."""

    def __init__(self, chain: FloatChain, name: str) -> None:
        self.chain, self.name = chain, name

    def run_many(self, samples: Sequence[Sample]) -> list[dict[str, Array]]:
        made = (self.chain.run(sample).items() for sample in samples)
        return [{output: array for (name, output), array in one if name == self.name} for one in made]


class _Outputs:
    """A chain of programs, and what its outputs are called in the component that makes them."""

    def __init__(self, backend: ChainedModel, names: Mapping[str, str]) -> None:
        self.backend, self.names = backend, names

    def run_many(self, samples: Sequence[Sample]) -> list[dict[str, Array]]:
        made = self.backend.run([self.backend.fed(sample) for sample in samples], False)
        return [{own: one[name] for name, own in self.names.items()} for one in made]
