"""Show what npuflow makes of a model: the graph before and after, who runs what and
why, what rules refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.base.wording import counted
from npuflow.cli._engine import BatchOption, SetOption, with_batch

if TYPE_CHECKING:
    from npuflow.frontends import Bindings
    from npuflow.hw.target import Target
    from npuflow.ir.graph import Graph
    from npuflow.place.place import NodePlacement

ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", "--input", metavar="NAME=D,D,...", help="The shape of an input. May be repeated."
    ),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=N", help="The size of a named free dimension. May be repeated."),
]
ConstantOption = Annotated[
    list[str] | None,
    typer.Option("--constant", metavar="NAME=VALUE", help="An input that always holds this number."),
]
OutputOption = Annotated[
    list[str] | None,
    typer.Option("--output", metavar="TENSOR", help="Cut the model at this tensor. May be repeated."),
]


@dataclass(frozen=True)
class InspectOptions:
    """What of a model is shown, and on which target."""

    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="A target's name or TOML file; else the recipe's, or edge-4t."),
    ] = None
    inputs: ShapeOption = None
    dims: DimOption = None
    constants: ConstantOption = None
    outputs: OutputOption = None
    sets: SetOption = None
    batch: BatchOption = None
    nodes: Annotated[bool, typer.Option("--nodes", help="One line per node.")] = False
    text: Annotated[
        bool, typer.Option("--text", help="Print the rewritten graph as text, and nothing else.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False

    def places(self, model: Path) -> bool:
        """Whether nodes are asked for: of a model that tells what it is, they are shown then only."""
        asked = self.inputs, self.dims, self.constants, self.outputs, self.sets, self.batch
        return model.suffix == ".toml" or bool(self.target or self.nodes or self.text or any(asked))


def inspect(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model file, or a recipe (TOML).", show_default=False)
    ],
    options: InspectOptions,
) -> None:
    """Show a model as npuflow sees it: nodes before and after rewriting, placement with reasons, refusals."""
    from npuflow.cli._events import emit
    from npuflow.cli._inspected import asked
    from npuflow.frontends import Outlined
    from npuflow.input.sources import gathered
    from npuflow.rewrite.rewrite import rewrite
    from npuflow.rules import RULES, Hardware
    from npuflow.stages.parse import in_groups

    bindings = bindings_of(options.inputs, options.dims, options.constants, options.outputs)
    what = asked(model, options.target, bindings, with_batch(options.sets, options.batch))
    _, reader, source = gathered(what.model)
    facts = reader.outline(source, what.bindings.dims).facts if isinstance(reader, Outlined) else {}
    if facts and not options.places(model):
        if options.as_json:
            emit({"event": "model", "facts": facts})
        else:
            typer.echo(_told(model.name, facts))
        return
    reading = what.batched(reader.read(source, what.bindings))
    hardware = Hardware.of(what.chip.compute, what.chip.memory, what.chip.dma)
    names = [name for name in RULES.names() if name not in what.skip]
    stays = in_groups(reading.stated)
    done = rewrite(reading.graph, names, hardware=hardware, loops=what.loops, kept=stays)
    if options.text:
        from npuflow.ir.text import to_text

        typer.echo(to_text(done.graph), nl=False)
        return
    told = {"facts": dict(facts)} if facts else {}
    report = told | _report(reading.graph, done, what.place(done.graph), reading.notes, what.chip)
    named = what.chip.name or what.target
    if options.as_json:
        emit({"event": "model", **report})
    else:
        typer.echo(_page(model.name, named, report, nodes=options.nodes))


def bindings_of(
    inputs: list[str] | None, dims: list[str] | None, constants: list[str] | None, outputs: list[str] | None
) -> Bindings:
    """What the options fix of a model."""
    from npuflow.frontends import Bindings

    shapes = {n: tuple(_number(d, int, n) for d in v.split(",") if d) for n, v in _pairs(inputs)}
    return Bindings(
        shapes,
        {n: _number(v, int, n) for n, v in _pairs(dims)},
        tuple(outputs or ()),
        {n: _number(v, float, n) for n, v in _pairs(constants)},
    )


def _pairs(options: list[str] | None) -> list[tuple[str, str]]:
    found = []
    for option in options or ():
        name, equals, value = option.rpartition("=")
        if not equals or not name:
            raise UsageError(f'"{option}" has no "="', hint="NAME=VALUE", code="NF-USAGE-042")
        found.append((name, value))
    return found


def _number(text: str, kind: type, name: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f'"{text}", given for {name}, is no number', code="NF-USAGE-043") from None


def _report(
    before: Graph, done: Any, placement: NodePlacement, notes: tuple[str, ...], chip: Target
) -> dict[str, Any]:
    from collections import Counter

    from npuflow.input.postprocess import recognised
    from npuflow.ir.loops import loops
    from npuflow.ir.nesting import enclosing_loops, loop_fields
    from npuflow.place.partition import boundary_bytes, segments
    from npuflow.place.place import op_name

    graph: Graph = done.graph
    inner = enclosing_loops(graph.nodes)
    where = {id(n): p.on_npu for n, p in zip(graph.nodes, placement.places, strict=True)}
    parts = segments(graph, lambda n: where[id(n)])
    ports = {
        name: str(graph.type(name).dtype) + str(list(graph.type(name).shape))
        for name in (*graph.inputs, *graph.outputs)
    }
    return {
        "inputs": {n: ports[n] for n in graph.inputs},
        "outputs": {n: ports[n] for n in graph.outputs},
        "notes": list(notes),
        "heads": list(recognised(before)),
        "before": dict(Counter(op_name(n) for n in before.nodes).most_common()),
        "after": dict(Counter(op_name(n) for n in graph.nodes).most_common()),
        "rules": dict(Counter(a.rule for a in done.applied).most_common()),
        "refusals": [vars(r) for r in done.refusals],
        "places": [
            {**vars(p), **loop_fields(inner.get(i, ()))} for i, p in enumerate(placement.places)
        ],
        "loops": [one.described() for one in loops(graph)],
        "macs": {"npu": placement.npu_macs, "all": placement.total_macs, "share": placement.share},
        "host": _host(graph, placement, chip),
        "segments": [
            {"kind": s.kind, "nodes": len(s.nodes), "inputs": s.inputs, "outputs": s.outputs} for s in parts
        ],
        "boundary": [{"value": v, "way": w, "bytes": b} for v, w, b in boundary_bytes(graph, parts)],
    }


def _host(graph: Graph, placement: NodePlacement, chip: Target) -> dict[str, Any]:
    """What the host does and its cycles; `unknown`: its nodes whose work cannot be counted."""
    from npuflow.ir.macs import macs_known

    work, unknown = placement.host, []
    for node, place in zip(graph.nodes, placement.places, strict=True):
        static = all(graph.type(o).is_static for o in node.outputs if o)
        if not place.on_npu and not (static and macs_known(graph, node)):
            unknown.append(place.node)
    return {**vars(work), "cycles": work.cycles(chip), "terms": work.terms(chip), "unknown": unknown}


def _page(model: str, target: str, report: dict[str, Any], *, nodes: bool) -> str:
    facts = [f"  {name:10s} {said}" for name, said in report.get("facts", {}).items()]
    lines = [f"{model} on {target}", "", *facts, *([""] if facts else [])]
    lines += [f"  input   {name}: {kind}" for name, kind in report["inputs"].items()]
    lines += [f"  output  {name}: {kind}" for name, kind in report["outputs"].items()]
    lines += [f"  note    {note}" for note in report["notes"]]
    kinds = " or ".join(f'kind = "{name}"' for name in report["heads"])
    if kinds:
        lines.append(f"  heads   the outputs may be a detector's: [postprocess] {kinds} gives boxes")
    for side in ("before", "after"):
        counts = report[side]
        lines += ["", f"{side}: {counted(sum(counts.values()), 'node')}", "  " + (_listed(counts) or "none")]
    lines += [_loop(one, depth) for one, depth in _every(report["loops"])]
    lines += ["", "rewrites: " + (_listed(report["rules"]) or "none")]
    places, macs = report["places"], report["macs"]
    on_npu = sum(not p["reason"] for p in places)
    lines += [
        "",
        (f"placement: {on_npu} of {counted(len(places), 'node')} and {macs['share']:.1%} of "
         f"{macs['all']:,} MACs on the NPU"),
    ]
    lines += _nodes(places, report["loops"]) if nodes else []
    grouped: dict[tuple[str, str], list[str]] = {}
    for p in places:
        if p["reason"]:
            grouped.setdefault((p["op"], p["reason"]), []).append(p["node"])
    for (op, reason), names in sorted(grouped.items(), key=lambda g: -len(g[1])):
        lines.append(f"  host: {op} ({len(names)}): {reason}; {names[0]}{', ...' if len(names) > 1 else ''}")
    host, terms = report["host"], report["host"]["terms"]
    lines.append(
        f"host: {host['macs']:,} MACs, {host['elements']:,} elements, {host['bytes']:,} bytes to and from "
        "the NPU "
        f"at 8 bits: {host['cycles']:,.0f} cycles ({terms['macs']:,.0f} + {terms['elements']:,.0f} + "
        f"{terms['bus']:,.0f})"
    )
    if host["unknown"]:
        more = f" and {len(host['unknown']) - 1} more" if len(host["unknown"]) > 1 else ""
        lines.append(
            f"  not counted, as shapes depend on data or on graphs inside: {host['unknown'][0]}{more}"
        )
    crossing = sum(b["bytes"] for b in report["boundary"])
    lines += [
        "",
        (f"segments: {len(report['segments'])}, {crossing:,} float bytes over {len(report['boundary'])} "
        "boundaries"),
    ]
    lines += [f"  {b['way']}  {b['bytes']:>12,}  {b['value']}" for b in report["boundary"][:20]]
    lines += [f"  ... and {len(report['boundary']) - 20} more"] if len(report["boundary"]) > 20 else []
    lines += ["", f"refusals: {len(report['refusals'])}"]
    lines += [f"  {r['rule']} at {r['node']}: {r['reason']}" for r in report["refusals"]]
    return "\n".join(lines)


def _nodes(places: Sequence[Mapping[str, Any]], loops: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a node; those of a loop stand below a line of the loop."""
    known, seen = {one["loop"]: (one, depth) for one, depth in _every(loops)}, set[str]()
    for place in places:
        names = [place[key] for key in ("loop", "inner") if key in place]
        for name in names:
            if name not in seen:
                seen.add(name)
                yield _loop(*known[name])
        yield (
            f"  {'host' if place['reason'] else 'npu '}  {'  ' * len(names) + place['op']:20s} "
            f"{place['macs']:>12,}  {place['node']}  {place['reason']}"
        )


def _every(loops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Loops, each with those in its body behind it, and in how many others it stands."""
    for one in loops:
        yield one, 0
        yield from ((inner, 1) for inner in one.get("inner", ()))


def _loop(one: Mapping[str, Any], depth: int) -> str:
    carried, stacked = [c["now"] for c in one["carries"]], one["stacks"]
    return (
        f"  {'  ' * depth}loop {one['loop']}: {counted(one['steps'], 'step')} of "
        f"{counted(one['nodes'], 'node')}, "
        f"{counted(one['carried'], 'carried value')}{_names(carried)}; it stacks "
        f"{counted(len(stacked), 'value')}{_names(stacked)}"
    )


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _told(model: str, facts: Mapping[str, str | int]) -> str:
    """What a model tells of itself, and how to see more."""
    lines = [model, "", *(f"  {name:10s} {said}" for name, said in facts.items()), ""]
    return "\n".join([*lines, "--target NAME shows its nodes and who runs them"])


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
