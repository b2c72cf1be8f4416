"""From a quantised graph and its plan to a program: segments in order, commands, constants, metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from npuflow.base.errors import FitError, InternalError
from npuflow.hw.encode import Words
from npuflow.hw.target import Target
from npuflow.ir.graph import ROUND, Graph
from npuflow.ir.rings import told
from npuflow.ir.types import GroupedType
from npuflow.place.host import host_work
from npuflow.place.partition import Segment, host_model, host_steps, segments
from npuflow.program.codegen.commands import CommandList, Pending
from npuflow.program.codegen.consts import ConstPool, UnknownBlock
from npuflow.program.codegen.core import CoreProgram
from npuflow.program.codegen.data import (
    DataStorage,
    border_lifetimes,
    in_place,
    index_meta,
    index_reads,
    lay_out,
    lifetimes,
    run_order,
    values_in_data,
    writers_of,
)
from npuflow.program.codegen.loops import (
    LoopCommands,
    cleared,
    of_last_round,
    same_borders,
    same_places,
    together,
)
from npuflow.program.codegen.metadata import (
    length_meta,
    node_meta,
    plan_meta,
    port_meta,
    quant_meta,
    values_meta,
)
from npuflow.program.codegen.tiles import COMPUTE
from npuflow.program.codegen.transfers import share_loads, transfer
from npuflow.program.container import Program, fingerprint, target_meta, without_group_products
from npuflow.program.counts import at_any_index
from npuflow.program.folding import folded
from npuflow.program.meta import WORD
from npuflow.program.order import HALF
from npuflow.program.repeats import Rounds, expanded, has_repeats, in_all_rounds
from npuflow.program.taps import ProgramTaps, Tapped, encode_taps
from npuflow.schedule.accesses import merge
from npuflow.schedule.apart import lasting
from npuflow.schedule.bank_layout import set_apart
from npuflow.schedule.borders import OtherBorders, spreads, trimmed
from npuflow.schedule.build import schedule_of
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.jobs import Barrier, Phase, Schedule
from npuflow.schedule.local import Local
from npuflow.schedule.machine import Machine
from npuflow.schedule.partial import Numbers, ValidPart
from npuflow.schedule.rolled import RolledLoop, place_local
from npuflow.schedule.time import ScheduleTime, time_of
from npuflow.schedule.valid import valid_part
from npuflow.search.plan import TilingPlan


@dataclass
class _Output:
    """What the segments add up to."""

    cores: tuple[CoreProgram, ...]
    loops: LoopCommands
    steps: list[dict[str, Any]] = field(default_factory=list)
    hosts: list[bytes] = field(default_factory=list)
    barriers: int = 0
    stored: tuple[Words, ...] = ()        # where they depend on an index, which `meta` tells
    meta: Mapping[str, Any] = field(default_factory=dict)
    partial: Collection[str] = ()         # values of which it has some rows only

    @cached_property
    def words(self) -> tuple[Words, ...]:
        """Commands of each core, written out."""
        return tuple(core.commands.words() for core in self.cores)

    def counts(self) -> list[int]:
        """Commands of each core so far, those of all rounds of loops among them."""
        return [len(core.commands.commands) + self.loops.more(c) for c, core in enumerate(self.cores)]


def generate(
    graph: Graph, plan: TilingPlan, target: Target, name: str = "", indexed: bool = True
) -> Program:
    """The program of a planned network; a FitError where a loop's rounds have other commands. `indexed`:
    commands may depend on an index."""
    machine = Machine(target.compute, target.memory, target.dma)
    topology = Topology(graph, machine, target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    missing = set(topology.order) - {n for g in plan.groups for n in g.nodes}
    if missing:
        raise InternalError(
            f"the plan does not hold {graph.nodes[min(missing)].name}", code="NF-INTERNAL-013"
        )
    local, loops = place_local(frames, plan.kept, machine, plan.allocation, plan.early, plan.ahead)
    part = valid_part(topology) if indexed and not loops else None
    data = _data(topology, plan, frames, loops, part)
    local, schedule, time = _scheduled(frames, local, machine, data[0], loops)
    cores = _cores(topology, target, ConstPool(target.memory.burst), data)
    out = _Output(cores, LoopCommands(loops, cores, _lengths(graph, data[0])))
    _commands(graph, schedule, out)
    shown = None if part is None else _indexed(part, frames, plan, target, local, out)
    if shown is None and part is not None and part.caches and part.rings is not None:
        shown = _indexed(replace(part, rings=None), frames, plan, target, local, out)
    if shown is not None:
        out, time = shown
    planned = plan_meta(plan, time, loops, frames, schedule)
    return _program(topology, target, name, out, frames, local, planned)


def _indexed(
    part: ValidPart, whole_frames: Sequence[Frame], plan: TilingPlan, target: Target, local: Local,
    whole: _Output,
) -> tuple[_Output, ScheduleTime] | None:
    """The commands over the valid part of caches: at the largest index, with what they are at others, and
    their time. None where these are not alike, or caches do not stay where they are. `whole`: those that make
    all of them."""
    data, consts, topology = whole.cores[0].data, whole.cores[0].consts, whole_frames[0].topology
    moved = (n for g in plan.groups if g.parts[0].choice is None for n in g.nodes if n in part.axes)
    if any((n, m) not in topology.views.saved for n in moved for m in range(len(topology.moving[n]))):
        return None
    if any(data.address(made) != data.address(held) for made, (held, _) in part.states.items()):
        return None

    handed = spreads(whole_frames, plan.kept, len(whole.cores))

    def run(numbers: Numbers) -> tuple[_Output, ScheduleTime]:
        own = Topology(topology.graph, topology.machine, topology.numerics, part.at(numbers))
        frames = [Frame(own, g, frozenset(plan.kept)) for g in plan.groups]
        homes = data.homes | trimmed(spreads(frames, plan.kept, len(whole.cores)), handed)
        places = [DataStorage(own.views, data.layout, data.lives, homes) for _ in whole.cores]
        schedule = schedule_of(frames, local, own.machine, places[0].places())
        cores = _cores(own, target, consts, places)
        written = _Output(cores, LoopCommands((), cores))
        _commands(own.graph, schedule, written)
        return written, time_of(schedule, own.machine)

    consts.closed = True
    try:
        last, time = run(part.last)
        every = {at: run(at)[0].words for at in part.samples}
    except (UnknownBlock, OtherBorders):
        return None
    finally:
        consts.closed = False
    address = -(-data.layout.total // WORD) * WORD
    stored = [
        at_any_index({at: w[c] for at, w in every.items()}, own, index_reads(part, address), c)
        for c, own in enumerate(last.words)
    ]
    if any(words is None for words in stored):
        return None
    for core in last.cores:
        core.taps[:] = [tap for tap in core.taps if tap.value not in part.partial]
    partial = part.partial - part.states.keys()
    found = tuple(w for w in stored if w is not None)
    return replace(last, stored=found, meta=index_meta(part, address), partial=partial), time


def _cores(
    topology: Topology, target: Target, consts: ConstPool, data: Sequence[DataStorage]
) -> tuple[CoreProgram, ...]:
    return tuple(
        CoreProgram(CommandList(c, target.dma.channels), consts, own, target.numerics, topology.maker)
        for c, own in enumerate(data)
    )


def _commands(graph: Graph, schedule: Schedule, out: _Output) -> None:
    """The commands of all segments, and what the host does."""
    phases: dict[int, list[Phase]] = {}
    for phase in schedule.phases:
        phases.setdefault(phase.segment, []).append(phase)
    for number, part in enumerate(segments(graph)):
        if part.kind == "host":
            _host(graph, part, out)
            continue
        first = out.counts()
        for core in out.cores:
            core.commands.starts.add(len(core.commands.commands))
        for phase in phases.get(number, ()):
            _phase(phase, out)
        out.loops.end()
        count = [b - a for a, b in zip(first, out.counts(), strict=True)]
        segment = sum(step["kind"] == "npu" for step in out.steps)
        out.steps.append({"kind": "npu", "segment": segment, "first": first, "count": count})


def _data(
    topology: Topology, plan: TilingPlan, frames: Sequence[Frame], loops: Sequence[RolledLoop],
    part: ValidPart | None,
) -> list[DataStorage]:
    """Where values lie in external memory, and by core who has touched them."""
    memory, cores = topology.machine.memory, topology.machine.compute.cores
    spread, steps = spreads(frames, plan.kept, cores), run_order(topology, plan)
    borders = border_lifetimes(spread, frames, steps)
    born, dies = lifetimes(topology.graph, steps, values_in_data(topology.graph, frames))
    born.update({v: 0 for v in cleared(topology.graph, loops) if v in born})
    homes = in_place(frames, topology.views, born, dies)
    if part is not None:
        homes |= part.homes(topology.views, frozenset(born))
    if loops:
        shared = same_borders(spread, loops)
        homes, borders = same_places(topology, homes, born, loops) | shared, together(borders, shared)
    born, dies, borders = lasting(frames, steps, born, dies, borders)
    lives, layout = lay_out(topology.views, born, dies, borders, memory, plan.allocation, homes)
    return [DataStorage(topology.views, layout, lives, homes) for _ in range(cores)]


def _lengths(graph: Graph, data: DataStorage) -> dict[str, tuple[int, int]]:
    """Where DATA has how many steps run, behind all values, and how many may; by input."""
    return {
        one.name: (-(-data.layout.total // WORD) * WORD + WORD * k, one.most)
        for k, one in enumerate(graph.lengths)
    }


def _scheduled(
    frames: Sequence[Frame], local: Local, machine: Machine, data: DataStorage, loops: Sequence[RolledLoop]
) -> tuple[Local, Schedule, ScheduleTime]:
    """The jobs and their time. Where banks have ports, what lies in one bank is set apart
    if that makes it no slower."""
    places = data.places()
    schedule = schedule_of(frames, local, machine, places)
    time = time_of(schedule, machine, loops)
    if machine.memory.bank_ports and not (frames and frames[0].topology.graph.rolls):
        moved = set_apart(local, frames, machine)
        other = schedule_of(frames, moved, machine, places)
        again = time_of(other, machine)
        if again.cycles <= time.cycles:
            return moved, other, again
    return local, schedule, time


def _phase(phase: Phase, out: _Output) -> None:
    """The commands of all jobs between two barriers."""
    if phase.barrier is not None:
        _barrier(phase.barrier, out)
    loads: dict[int, Pending] = {}
    for number, job in enumerate(phase.jobs):
        core = out.cores[job.core]
        out.loops.begin(job.group, (job.core,))
        COMPUTE.get(type(job.what), transfer)(core, job)
        if job.key is not None:
            loads[number] = core.commands.commands[-1]
    share_loads(phase, loads)


def _barrier(barrier: Barrier, out: _Output) -> None:
    """All cores meet; what they stored before is seen behind it."""
    mask = (1 << len(out.cores)) - 1
    out.loops.begin(barrier.group, range(len(out.cores)))
    for core in out.cores:
        count = core.commands.barrier(out.barriers, mask, barrier.node)
        for value in barrier.seen:
            merge(core.data.of(value)[0].shared, {core.commands.queues.stores: count})
    out.barriers += 1


def _countable(words: Words, core: int) -> None:
    """Where rounds are read, counts that commands wait for must not pass what 16 bits tell apart."""
    most = int(np.bincount(words[:, 0] >> 8 & 0xFF, minlength=1).max())
    if most >= HALF:
        raise FitError(
            f"{most} commands of a queue of core {core} are too many for a run of any length",
            because=f"their number must stay below {HALF}", code="NF-FIT-015",
            hint="fewer steps at most, or one length: [model] dims with a number",
        )


def _host(graph: Graph, part: Segment, out: _Output) -> None:
    for step in host_steps(graph, part):
        if step.kind == "model":
            out.steps.append(
                {
                    "kind": "host",
                    "model": len(out.hosts),
                    "inputs": list(step.inputs),
                    "outputs": list(step.outputs),
                }
            )
            out.hosts.append(host_model(graph, step))
            continue
        (node,) = step.nodes
        coded = node.outputs[0] if step.kind == "quantize" else node.inputs[0]
        quant = graph.values[coded].quant
        assert quant is not None
        (kept,) = node.op.whole_numbers(graph.site(node)).values() or (None,)
        known = {} if kept is None else {"parts": list(kept.parts)} if kept.parts else {"rows": kept.below}
        ends = {"value": node.inputs[0], "out": node.outputs[0]}
        out.steps.append({"kind": step.kind, **ends, "quant": quant_meta(quant), **known})


def _program(
    topology: Topology,
    target: Target,
    name: str,
    out: _Output,
    frames: Sequence[Frame],
    local: Local,
    plan: Mapping[str, Any],
) -> Program:
    graph, consts, data = topology.graph, out.cores[0].consts, out.cores[0].data
    if not any(isinstance(v.quant, GroupedType) for v in graph.values.values()):
        target = without_group_products(target)
    const = consts.to_bytes()
    host = host_work(graph)
    macs = {n: topology.space(n).total_macs for f in frames if not f.moves for n in f.group.nodes}
    for loop in out.loops.loops:
        for k, step in enumerate(loop.roll.steps[loop.roll.lead : -1]):
            macs.update({n: macs[n] * (loop.roll.rounds if k < ROUND else 0) for n in step if n in macs})
    values = of_last_round(
        topology, out.loops,
        values_meta(graph, data, topology.views, values_in_data(graph, frames), writers_of(topology, frames)),
    )
    meta = {
        "name": name,
        "target": target_meta(target),
        "inputs": [port_meta(graph, i) for i in graph.inputs],
        "outputs": [port_meta(graph, o) for o in graph.outputs],
        **({"state": [list(pair) for pair in graph.state]} if graph.state else {}),
        **({"rings": told(graph.rings)} if graph.rings else {}),
        "values": values,
        **out.loops.meta(),
        "steps": out.steps,
        "nodes": [node_meta(n, macs.get(i, 0), host.get(i)) for i, n in enumerate(graph.nodes)],
        **length_meta(
            graph, out.loops.lengths, [v for v in cleared(graph, out.loops.loops) if v in values]
        ),
        "data_bytes": max([data.layout.total, *(at + WORD for at, _ in out.loops.lengths.values())]),
        "const_bytes": len(const), "local_bytes": target.memory.local_bytes,
        "memory": {
            "lives": [[v.name, data.layout.addresses[v.name], v.size, v.first, v.last] for v in data.lives],
            "bound": data.layout.bound,
            "in_place": {v: home for v, home in data.homes.items() if v in graph.values},
            "const_given": consts.given,
            "local_used": local.total, "local_bound": local.layout.bound,
        },
        "plan": plan,
    }
    words = out.words
    rounds = [out.loops.rounds(c) for c in range(len(words))]
    stored = tuple(folded(w, loops, c) for c, (w, loops) in enumerate(zip(words, rounds, strict=True)))
    if out.stored:
        stored, ends = out.stored, [one["address"] + WORD for one in out.meta["indices"]]
        meta |= {**out.meta, "data_bytes": max(meta["data_bytes"], *ends)}
        meta["values"] = {name: one for name, one in values.items() if name not in out.partial}
    every = tuple(expanded(w, c) for c, w in enumerate(stored))
    for core, w in enumerate(every if any(loop.roll.counted for loop in out.loops.loops) else ()):
        _countable(w, core)
    taps = _taps(graph, out.cores, rounds)
    held = stored if any(map(has_repeats, stored)) else ()
    return Program(fingerprint(target), meta, every, const, tuple(out.hosts), taps, b"", held)


def _taps(graph: Graph, cores: Sequence[CoreProgram], loops: Sequence[Sequence[Rounds]]) -> bytes:
    """What the emitters noted of values in local memory. Of loops they show the first two rounds, and the
    steps around all."""
    shown = {tap.value for core in cores for tap in core.taps}
    values = {
        o: Tapped(graph.type(o).shape, graph.values[o].dtype, number, quant_meta(quant))
        for number, node in enumerate(graph.nodes)
        for o in node.outputs
        if o in shown and (quant := graph.values[o].quant) is not None
    }
    placed = tuple(
        tuple(replace(tap, command=in_all_rounds(rounds, tap.command)) for tap in core.taps)
        for core, rounds in zip(cores, loops, strict=True)
    )
    return encode_taps(ProgramTaps(values, placed))
