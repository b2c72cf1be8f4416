"""The data of a report as JSON: layers, tensors, schedule, memory and notes, from a build's products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from npuflow.checks.fidelity import TensorFidelity
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops, loops
from npuflow.ir.nesting import enclosing_loops, loop_fields
from npuflow.ir.op import Node
from npuflow.ir.queries import title
from npuflow.ir.types import Array, Value
from npuflow.place.partition import boundary, boundary_bytes, is_npu, segments
from npuflow.place.place import NodePlacement
from npuflow.report.gate.figures import HeadlineFigures
from npuflow.report.profile import Profile, roofline, timeline
from npuflow.report.statement import AccuracyWarning, Statement
from npuflow.report.suggest import Suggestion
from npuflow.rules import Refusal

BINS = 120
SUMS = ("macs", "cycles", "bytes", "schedule", "bound", "energy_uj")
OF_MOST = ("limit", "stall")              # said of where most cycles go

Histogram = Callable[[str], tuple[float, float, Sequence[float]] | None]


@dataclass(frozen=True)
class ReportSources:
    """Products of a build. `histogram`: value id -> (lo, hi, counts); `methods`: value id -> threshold
    method; `suggestions`: value id -> what could be done about it; `channels`: value id -> [2, channels], the
    extrema where they were asked for; `facts`: headline figures; `notes`: further tables (title, columns,
    rows); `accuracy`: the build's sentence about its outputs; `outputs`: each of them, as it was judged;
    `figures`: what later builds are held against; `energy`: uJ of an inference, by part and by node, where
    the target says what work costs.
    """

    title: str
    graph: Graph                          # quantised
    placement: NodePlacement
    refusals: Sequence[Refusal]
    profile: Profile
    fidelity: Mapping[str, TensorFidelity]
    ranges: Mapping[str, tuple[float, float]]
    methods: Mapping[str, str]
    histogram: Histogram
    facts: Sequence[tuple[str, Any]]
    notes: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = ()
    suggestions: Mapping[str, Sequence[Suggestion]] = field(default_factory=dict)
    channels: Mapping[str, Array] = field(default_factory=dict)
    accuracy: Statement = field(default_factory=lambda: Statement(None, ""))
    accuracy_warnings: Sequence[AccuracyWarning] = ()
    outputs: Sequence[Mapping[str, Any]] = ()
    figures: HeadlineFigures = field(default_factory=HeadlineFigures)
    energy: Mapping[str, Any] | None = None


def report_data(s: ReportSources) -> dict[str, Any]:
    """JSON for `page.render` and for machines; numbers that are not finite become null."""
    meta, measured = s.profile.program.meta, _layers(s.profile)
    reasons = {place.node: place.reason for place in s.placement.places}
    if s.energy is not None:
        for index, amount in s.energy["nodes"].items():
            measured.setdefault(int(index), {})["energy_uj"] = amount
    network, inner = network_nodes(s.graph, meta["nodes"]), enclosing_loops(s.graph.nodes)
    layers = by_node(measured, network)
    found = {
        "title": s.title,
        "figures": s.figures.as_dict(),
        "energy": None if s.energy is None else {k: s.energy[k] for k in ("total_uj", "parts", "source")},
        "accuracy": {
            **asdict(s.accuracy), "outputs": [dict(one) for one in s.outputs],
            "warnings": [asdict(one) for one in s.accuracy_warnings],
        },
        "warnings": [{"message": s.accuracy.text, "hint": s.accuracy.hint}] if s.accuracy.ok is False else [],
        "tiles": [list(f) for f in s.facts],
        "nodes": [
            _node(s, n, layers.get(i, {}), reasons) | loop_fields(inner.get(i, ()))
            for i, n in enumerate(s.graph.nodes)
        ],
        **({"loops": [one.described() for one in loops(s.graph)]} if inner else {}),
        "tensors": [
            _tensor(s, v) for v in s.graph.values.values() if v.const is None and v.quant is not None
        ],
        "timeline": _timeline(s.profile, network),
        "memory": {
            "const_bytes": meta["const_bytes"],
            "data_bytes": meta["data_bytes"],
            "local_bytes": meta["local_bytes"],
            "bound_bytes": meta["memory"]["bound"],
            "local_used": meta["memory"].get("local_used"),
            "live": [
                dict(zip(("id", "address", "size", "first", "last"), row, strict=True))
                for row in meta["memory"]["lives"]
            ],
        },
        "roofline": roofline.data(s.profile),
        "notes": [
            [title, list(columns), [list(r) for r in rows]]
            for title, columns, rows in (*_placement(s), *s.notes)
        ],
    }
    return dict(_finite(found))


def _layers(profile: Profile) -> dict[int, dict[str, Any]]:
    """Measured figures by node, inside groups too; schedule time and lower bound are a group's,
    and stand at its first node."""
    found: dict[int, dict[str, Any]] = {}
    for row in profile.operators():
        kept = {k: row[k] for k in ("macs", "cycles", "utilisation", "stall", "limit")}
        found[row["nodes"][0]] = kept | {"bytes": row["load_bytes"] + row["store_bytes"]}
    for row in profile.host_rows:
        kept = {
            "macs": row["host_macs"],
            "cycles": row["cycles"],
            "limit": "host",
            "bytes": row["host_bytes"],
        }
        found[row["nodes"][0]] = kept
    for row in profile.layers():
        found.setdefault(row["nodes"][0], {}).update({k: row[k] for k in ("schedule", "bound")})
    return found


def _timeline(profile: Profile, network: Sequence[int | None] | None) -> dict[str, Any]:
    """Events by the network's nodes; -1: of none of them."""
    found = timeline.data(profile)
    if network is None:
        return found
    places = [-1 if one is None else one for one in network]
    events = [[*event[:3], places[event[3]], *event[4:]] for event in found["events"]]
    return {**found, "events": events}


def _node(
    s: ReportSources, node: Node, measured: Mapping[str, Any], reasons: Mapping[str, str]
) -> dict[str, Any]:
    on_npu = is_npu(node)
    outputs = [o for o in node.outputs if o]
    quality = next(
        (s.fidelity[k] for o in outputs for k in (o, o.removesuffix(":q")) if k in s.fidelity), None
    )
    stated = vars(node.op)
    attributes = ", ".join(f"{name}={value}" for name, value in stated.items() if value not in (None, (), ""))
    reason = "boundary between float and integers" if boundary(s.graph, node) else reasons.get(node.name, "")
    found: dict[str, Any] = {
        "name": node.name, "op": title(node), "npu": on_npu,
        "inputs": [i for i in node.inputs if i], "outputs": outputs, "origin": list(node.origin),
        "attributes": attributes if len(attributes) < 400 else attributes[:400] + " ...",
        "reason": "" if on_npu else reason,
        "sqnr": None if quality is None else quality.sqnr,
    }
    return found | dict(measured)


def _tensor(s: ReportSources, value: Value) -> dict[str, Any]:
    assert value.quant is not None
    # codes of inputs and outputs stand aside
    source = value.id if value.id in s.ranges else value.id.removesuffix(":q")
    quality, spread, extrema = s.fidelity.get(source), s.histogram(source), s.channels.get(source)
    return {
        "id": value.id,
        "shape": list(value.type.shape),
        "dtype": value.dtype,
        "bits": value.quant.bits,
        "scale": value.quant.scale[0],
        "zero_point": value.quant.zero_point[0],
        "threshold": list(s.ranges[source]) if source in s.ranges else None,
        "method": s.methods.get(source),
        "observed": None if spread is None else list(spread[:2]),
        "histogram": None
        if spread is None
        else {"lo": spread[0], "hi": spread[1], "counts": [float(c) for c in spread[2]]},
        "channels": None if extrema is None else np.asarray(extrema, float).tolist(),
        "sqnr": None if quality is None else quality.sqnr,
        "cosine": None if quality is None else quality.cosine,
        "ends": None if quality is None else quality.ends,
        "suggestions": [[one.kind, one.text, one.weight] for one in s.suggestions.get(source, ())],
    }


def _placement(s: ReportSources) -> list[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]:
    host = [(p.node, p.op, p.reason) for p in s.placement.places if not p.on_npu]
    crossings = boundary_bytes(s.graph, segments(s.graph))
    return [
        ("Nodes on the host", ("node", "operator", "reason"), host),
        ("Bytes over the boundary, per inference", ("value", "way", "bytes"), crossings),
        (
            "Rewrites that were refused",
            ("rule", "node", "reason"),
            [(r.rule, r.node, r.reason) for r in s.refusals],
        ),
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


# --- all steps of a loop are one node of the network


def network_nodes(graph: Graph, made: Sequence[Mapping[str, Any]]) -> list[int | None] | None:
    """Of each node of a program, as its metadata has it, the place of the network's; None for one that the
    network has not. None where the program's nodes are the network's: no loop was written out in part."""
    if not has_loops(graph):
        return None
    maker = {o: i for i, node in enumerate(graph.nodes) for o in node.outputs if o}
    return [next((maker[v] for o in node["outputs"] for v in _names(o) if v in maker), None) for node in made]


def _names(name: str) -> Iterator[str]:
    """A value, and those whose names in a step it has: see `ir.unroll.step_name`. In a loop that stands in
    another one, a step's step has one."""
    while name:
        yield name
        name = name.rstrip("'").rpartition("@")[0]


def by_node(
    rows: Mapping[int, Mapping[str, Any]], places: Sequence[int | None] | None
) -> dict[int, dict[str, Any]]:
    """Rows of the program's nodes as those of the network's."""
    if places is None:
        return {i: dict(row) for i, row in rows.items()}
    together: dict[int, list[Mapping[str, Any]]] = {}
    for i, row in rows.items():
        if (place := places[i]) is not None:
            together.setdefault(place, []).append(row)
    return {place: _together(found) for place, found in together.items()}


def _together(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    most, found = max(rows, key=lambda row: row.get("cycles") or 0.0), dict[str, Any]()
    for key in dict.fromkeys(k for row in rows for k in row):
        known = [row[key] for row in rows if row.get(key) is not None]
        if key in SUMS:
            found[key] = sum(known) if known else None
        elif key in OF_MOST:
            found[key] = most.get(key)
    cycles = sum(row.get("cycles") or 0.0 for row in rows)
    if any("utilisation" in row for row in rows):
        used = sum((row.get("utilisation") or 0.0) * (row.get("cycles") or 0.0) for row in rows)
        found["utilisation"] = used / cycles if cycles else 0.0
    return found
