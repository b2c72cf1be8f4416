"""A build as it lies in the cache, for scripts and notebooks: its artifacts, and tables of what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import NpuflowError
from npuflow.base.html_table import Rows, titled

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.store import Store
    from npuflow.ir.graph import Graph
    from npuflow.program.container import Program
    from npuflow.quantise.candidate import Candidate
    from npuflow.report.profile import Profile


def load_build(
    recipe: str | Path | Recipe, sets: Sequence[str] = (), cache: str | Path | None = None
) -> Build:
    """The last build of a recipe as it is now, from the cache; runs nothing. What has not been built is an
    error when it is asked for."""
    from npuflow.cli._engine import plan, store
    from npuflow.flow.recipe import Recipe, load

    loaded = recipe if isinstance(recipe, Recipe) else load(Path(recipe), sets, lenient=True)
    return Build(loaded, plan(loaded), store(loaded, cache))


@dataclass(frozen=True)
class Build:
    """Artifacts of a build by stage, and tables: lists of dictionaries, which pandas takes as they are."""

    recipe: Recipe
    wired: Plan
    store: Store

    def artifact(self, stage: str) -> Any:
        """What a stage made, as the Python object that the next stages get; STAGE/ITEM is one of several."""
        from npuflow.cli._records import record_of, split

        name, _ = split(self.wired, stage)
        ref = record_of(self.wired, self.store, stage).output
        return self.store.load(ref, self.wired[name].signature.output)

    @cached_property
    def float_graph(self) -> Graph:
        """The network before quantisation, after the rewrites."""
        graph: Graph = self.artifact(self._source("quantize", "graph")).graph
        return graph

    @cached_property
    def candidate(self) -> Candidate:
        """The network before quantisation with all choices made, but codes of weights."""
        from npuflow.base.errors import RecipeError
        from npuflow.hw.target import HostProcessor, Memory, Numerics
        from npuflow.place.islands import PlacementTable
        from npuflow.quantise.config import Quantize
        from npuflow.stages._candidates import PlacedNetwork, TargetNetwork
        from npuflow.stages._chosen import Choices

        def made(name: str) -> Any:
            return self.artifact(self._source("quantize", name))

        def table(cls: type[Any]) -> Any:
            found, faults = self.recipe.read(cls)
            if found is None:
                raise RecipeError(faults)
            return found

        placed = PlacedNetwork(made("graph"), made("placement"), table(Quantize), table(Numerics))
        network = TargetNetwork(placed, table(Memory), table(HostProcessor), table(PlacementTable))
        return Choices(made("thresholds"), made("precision"), None, None).of(network.candidate)

    @cached_property
    def graph(self) -> Graph:
        """The quantised network."""
        graph: Graph = self.artifact(self._source("codegen", "quantized")).graph
        return graph

    @cached_property
    def program(self) -> Program:
        program: Program = self.artifact("codegen").program
        return program

    @cached_property
    def clock(self) -> Profile:
        """The program with its clock."""
        from npuflow.report.profile import profile

        return profile(self.program)

    @cached_property
    def statistics(self) -> Rows:
        """Every tensor over the calibration samples."""
        content = self.artifact("statistics").content
        rows = Rows()
        for name in content.names:
            one = content[name]
            rows.append({
                "tensor": name, "low": float(one.lo), "high": float(one.hi), "mean": float(one.mean),
                "deviation": float(one.std), "p99.9": float(one.quantile(0.999, absolute=True)),
                "zeros": int(one.zeros), "count": int(one.count),
            })
        return rows

    @cached_property
    def thresholds(self) -> Rows:
        """The range that every tensor is quantised in, and the method that chose it."""
        held = self.artifact(self._source("quantize", "thresholds"))
        return Rows(
            {"tensor": name, "low": float(lo), "high": float(hi), "method": held.methods.get(name, "")}
            for name, (lo, hi) in held.ranges.items()
        )

    @cached_property
    def plan(self) -> Rows:
        """Every layer of the plan: fusion group, tile sizes, loop order, buffers, and the group's costs."""
        nodes, rows = self.graph.nodes, Rows()
        for number, group in enumerate(self.artifact("tiling").plan.groups):
            for part in group.parts:
                choice, first = part.choice, nodes[part.nodes[0]]
                rows.append({
                    "layer": first.name, "group": number, "nodes": len(part.nodes),
                    "tile": dict(choice.sizes) if choice is not None else {},
                    "order": list(choice.order) if choice is not None else [],
                    "local_bytes": choice.local_bytes if choice is not None else 0,
                    "stripes": [list(cut) for cut in group.strips], "cores": group.cores[1],
                    "group_cycles": float(group.costs.cycles), "group_bytes": float(group.costs.bytes),
                })
        return rows

    @cached_property
    def profile(self) -> Rows:
        """Cycles, utilisation and bytes of every layer on the simulator's clock, the host's layers last."""
        from npuflow.report.profile.tables import flat

        return Rows(flat(row) for row in (*self.clock.operators(), *self.clock.host_rows))

    @cached_property
    def quality(self) -> Rows:
        """SQNR and cosine of every tensor against the float network."""
        return Rows(
            {"tensor": name, "sqnr_db": one.sqnr, "cosine": one.cosine, "codes_at_ends": one.ends}
            for name, one in self.artifact("fidelity").tensors.items()
        )

    @cached_property
    def report(self) -> dict[str, Any]:
        """The data of the report, as `report.json` has it."""
        data: dict[str, Any] = self.artifact("report").data
        return data

    def _source(self, step: str, name: str) -> str:
        """The step whose product a step receives: the last of a stage and its refinements."""
        return str(self.wired[step].inputs[name].step)

    def __repr__(self) -> str:
        return f"<Build {self.recipe.name} in {self.store.root}>"

    def _repr_html_(self) -> str:
        try:
            data = self.report
        except NpuflowError as error:
            return titled(self.recipe.name, {"not built": error.message})
        return titled(self.recipe.name, dict(data["tiles"]))
