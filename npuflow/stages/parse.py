"""The float graph: the model read, its shapes inferred, rewritten to the operators that targets know."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from npuflow.base.tables import Config
from npuflow.engine.correct.trial import Trial, summary
from npuflow.engine.rewrite import Applied, rewrite
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Uses, log, stage
from npuflow.ir.contracts import FRONTENDS, Frontend
from npuflow.ir.graph import Graph
from npuflow.ir.persist import load_graph, operators, save_graph
from npuflow.ir.rule import RULES, Refusal
from npuflow.ir.verify import verify
from npuflow.stages.model import Model, ModelTable


@dataclass(frozen=True)
class Parse(Config):
    """How the model is simplified."""

    skip: tuple[Annotated[str, RULES], ...] = ()
    """Rewrite rules to leave out."""


@dataclass(frozen=True)
class Parsed(Artifact):
    """The graph, what rules refused, what they did, and what reading had to assume."""

    graph: Graph
    refusals: tuple[Refusal, ...] = ()
    applied: tuple[Applied, ...] = ()
    notes: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()        # what equalisation did

    def save(self, folder: Writer) -> None:
        save_graph(self.graph, folder)
        folder.json("refusals", [[r.rule, r.node, r.reason] for r in self.refusals])
        folder.json("applied", [[a.rule, a.node] for a in self.applied])
        folder.json("notes", list(self.notes))
        if self.trials:
            folder.json("corrections", [asdict(t) for t in self.trials])

    @classmethod
    def load(cls, folder: Reader) -> Self:
        trials = folder.json("corrections") if "corrections" in folder.names() else []
        return cls(
            load_graph(folder), tuple(Refusal(*r) for r in folder.json("refusals")),
            tuple(Applied(*a) for a in folder.json("applied")), tuple(folder.json("notes")), tuple(Trial(**t) for t in trials),
        )  # fmt: skip

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.graph)}

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "nodes": len(self.graph.nodes), "rewrites": len(self.applied), "refusals": len(self.refusals),
        }  # fmt: skip
        return {**found, **summary(self.trials)}


def parsed(data: bytes, reader: Frontend, table: ModelTable, skip: tuple[str, ...] = ()) -> Parsed:
    """Read and rewrite one model."""
    reading = reader.read(data, table.bindings)
    verify(reading.graph, "reading the model")
    done = rewrite(reading.graph, [name for name in RULES.names() if name not in skip])
    return Parsed(done.graph, done.refusals, done.applied, reading.notes)


@stage
def parse(
    source: Annotated[Model, Uses("read", "rewrite", "from_onnx", "to_onnx", "infer", "reference", "moves")],
    model: ModelTable,
    parse: Parse,
) -> Parsed:
    """The model as a graph, at the rules' fixed point."""
    reader: Frontend = FRONTENDS[source.format]()
    result = parsed(source.data, reader, model, parse.skip)
    for note in result.notes:
        log(note)
    for rule, count in sorted(Counter(a.rule for a in result.applied).items()):
        log(f"{rule}: {count}")
    for refusal in result.refusals:
        log(f"{refusal.rule} left {refusal.node}: {refusal.reason}")
    return result
