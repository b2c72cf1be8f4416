"""Explains why a program is slower than it may be: bound, gap, and suggestions that were tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from npuflow.base.errors import NpuflowError, TargetError
from npuflow.hw.target import ArrayRate, HostProcessor, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import No
from npuflow.place.host import host_work, total_work
from npuflow.place.partition import is_npu
from npuflow.place.place import accepts
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import Order, order_of
from npuflow.report.profile.measure import Profile
from npuflow.schedule.arrange import Method
from npuflow.schedule.bounds import LowerBounds
from npuflow.schedule.machine import Machine
from npuflow.search.pinned import NO_PINS, Pins
from npuflow.search.plan import plan_network
from npuflow.sim.clock import timeline_of

ENDLESS = 1 << 20                         # of lanes, rows, bytes a cycle: the largest that a target may say
HARDEST = 5
TIMES = (2, 4, 8)                         # what a suggestion multiplies a resource by, until it is enough
# over the bandwidth that today's program needs: a new plan may need another
MARGINS = (1.02, 1.1, 1.25, 1.5, 2.0)
STALLED = 0.99                            # of the cycles before: more of the same is no use
NAMED = 2                                 # targets that are named


@dataclass(frozen=True)
class BudgetCase:
    """A graph on a target with a cycle budget. `narrow`: the same with 8-bit activations, if it has wider."""

    graph: Graph
    target: Target
    level: int
    pins: Pins = NO_PINS
    allocation: Method = "greedy"
    narrow: Callable[[], Graph] | None = None

    def program(self) -> Program:
        machine = Machine(self.target.compute, self.target.memory, self.target.dma)
        plan = plan_network(self.graph, machine, self.target.numerics, self.level, self.pins, self.allocation)
        return generate(self.graph, plan, self.target)

    def cycles(self) -> float | None:
        """By the clock, and the host's; None where there is no program."""
        try:
            program = self.program()
            return float(timeline_of(program, order_of(program)).cycles) + self.host_cycles(self.target)
        except NpuflowError:
            return None

    def host_cycles(self, target: Target) -> float:
        """What the host's part of the graph takes beside such a machine."""
        return total_work(host_work(self.graph)).cycles(target)

    def milliseconds(self, cycles: float) -> float:
        return cycles / self.target.compute.clock_mhz / 1000

    def changed(self, table: str, **keys: float) -> BudgetCase:
        return replace(
            self, target=replace(self.target, **{table: replace(getattr(self.target, table), **keys)})
        )


@dataclass(frozen=True)
class MissedBudget:
    """A program beside its budget, both in cycles."""

    case: BudgetCase
    found: Profile
    bounds: LowerBounds
    allowed: float

    @cached_property
    def order(self) -> Order:
        return self.found.order

    def free(self, names: Sequence[str]) -> float:
        """The program's cycles with some resources made infinitely fast."""
        target = self.case.target
        for name in names:
            target = FREE[name](target)
        return self.at(target)

    def at(self, target: Target) -> float:
        """Cycles of the same commands on another target."""
        timeline = timeline_of(self.found.program, self.order, target)
        return float(timeline.cycles) + self.case.host_cycles(target)


def _external(t: Target) -> Target:
    wide = float(ENDLESS // 2)
    return replace(
        t, memory=replace(t.memory, external_bandwidth=wide, shared_bandwidth=wide, local_bandwidth=ENDLESS)
    )


def _array(t: Target) -> Target:
    fast = ArrayRate(times=1.0)
    c = replace(
        t.compute, array_rows=ENDLESS, array_cols=ENDLESS, depthwise_macs=ENDLESS, array_rates=(fast,)
    )
    return replace(t, compute=c if c.dataflow == "output_stationary" else replace(c, array_pixels=ENDLESS))


def _vector(t: Target) -> Target:
    return replace(t, compute=replace(t.compute, vector_lanes=ENDLESS))


def _setup(t: Target) -> Target:
    compute = replace(t.compute, command_cycles=0, fill_cycles=0, pass_cycles=0)
    return replace(t, compute=compute, dma=replace(t.dma, setup_cycles=0, row_cycles=0))


def _host(t: Target) -> Target:
    return replace(t, host=HostProcessor(float(ENDLESS // 2), float(ENDLESS // 2)))


FREE: Mapping[str, Callable[[Target], Target]] = {        # from what is easily changed to what is not
    "set-up": _setup, "vector unit": _vector, "bandwidth": _external, "array": _array, "host": _host,
}


def too_slow(missed: MissedBudget, shipped: Mapping[str, Target]) -> TargetError:
    """The whole story of a missed budget. `shipped`: other targets to try."""
    case, cycles, allowed = missed.case, missed.found.whole_cycles, missed.allowed
    have, want = case.milliseconds(cycles), case.milliseconds(allowed)
    hint = "\n".join(_suggestions(missed, shipped))
    return TargetError(
        f"a run takes {have:.4g} ms, the budget is {want:.4g} ms: {have - want:.4g} ms too long "
        f"({cycles / allowed:.2f} times)",
        because="\n".join(_because(missed)),
        hint=hint or "none of the changes that were tried is enough",
        code="NF-FIT-002",
    )


# --- what binds it
def _because(missed: MissedBudget) -> Iterator[str]:
    case, found, bounds = missed.case, missed.found, missed.bounds
    lowest = bounds.cycles + found.host_cycles
    below = lowest > missed.allowed
    verdict = "the budget is below it: no plan meets it here" if below else "the budget is above it"
    host = f", the host {case.milliseconds(found.host_cycles):.4g}" if found.host else ""
    yield (
        f"no plan on this machine takes less than {case.milliseconds(lowest):.4g} ms (computing "
        f"{case.milliseconds(bounds.compute):.4g}, moving {bounds.bytes / 1e6:.3g} MB "
        f"{case.milliseconds(bounds.traffic):.4g}{host}); {verdict}"
    )
    parts, whole = sorted(found.totals()["path"].items(), key=lambda p: -p[1]), found.whole_cycles
    yield "its critical path: " + ", ".join(
        f"{name} {share / whole:.0%}" for name, share in parts if share > 0
    )
    binding = minimal(missed)
    if binding:
        amounts = "; ".join(_amount(case.target, name) for name in binding)
        yield f"minimal set of limiting resources: {amounts}"
    there = [name for name in FREE if name != "host" or found.host]
    freed = [f"{name} {case.milliseconds(missed.free([name])):.4g} ms" for name in there]
    yield f"time if one resource cost nothing: {', '.join(freed)}"


def minimal(missed: MissedBudget) -> list[str]:
    """Resources that together make this program too slow, and without any one of which it is in time. None:
    it waits too long even where all cost nothing."""
    if missed.free(list(FREE)) > missed.allowed:
        return []
    left = list(FREE)
    for name in FREE:
        rest = [x for x in left if x != name]
        if missed.free([x for x in FREE if x not in rest]) > missed.allowed:
            left = rest
    return left


def _amount(target: Target, name: str) -> str:
    c, m, d, h = target.compute, target.memory, target.dma, target.host
    return {
        "set-up": f"set-up (DMA {d.setup_cycles}, commands {c.command_cycles}, fill {c.fill_cycles} cycles "
        "each)",
        "vector unit": f"{c.vector_lanes} vector lanes",
        "bandwidth": f"{m.external_bandwidth:g} bytes per cycle",
        "array": f"{c.cores} x {c.macs} MACs per cycle, of depthwise layers {c.depthwise_macs}",
        "host": f"a host of {h.macs_per_cycle:g} MACs and {h.elements_per_cycle:g} elements per cycle",
    }[name]


# --- what helps
def _suggestions(missed: MissedBudget, shipped: Mapping[str, Target]) -> list[str]:
    """Changes that bring the program into its budget; where none does, those that bring it nearest."""
    tried: list[tuple[float, str]] = []
    for options in (*_plans(missed.case), *_machines(missed)):
        before = missed.found.whole_cycles
        # of a kind the first that is enough, while more of it helps
        for change, trial in options:
            cycles = trial.cycles()
            if cycles is None:
                continue
            tried.append((cycles, f"{change}: {trial.milliseconds(cycles):.4g} ms"))
            if cycles <= missed.allowed or cycles > STALLED * before:
                break
            before = cycles
    helped = [text for cycles, text in tried if cycles <= missed.allowed]
    helped += islice(_targets(missed, shipped), NAMED)
    if helped:
        return helped
    near = sorted((c, t) for c, t in tried if c < STALLED * missed.found.whole_cycles)
    return [f"{text}, not enough by itself" for _, text in near[:3]]


Option = tuple[str, BudgetCase]


def _plans(case: BudgetCase) -> Iterator[list[Option]]:
    """Other plans for the same machine."""
    if case.pins != NO_PINS:
        yield [("[tiling] without groups, keep and tiles", replace(case, pins=NO_PINS))]
    if case.level < HARDEST:
        yield [(f"[tiling] level = {HARDEST}", replace(case, level=HARDEST))]
    if case.allocation != "exact":
        yield [('[tiling] allocation = "exact"', replace(case, allocation="exact"))]
    if case.narrow is not None:
        try:
            graph = case.narrow()
        except NpuflowError:
            return
        yield [("[quantize] activations = { bits = 8 }", replace(case, graph=graph))]


def _machines(missed: MissedBudget) -> Iterator[list[Option]]:
    """Other machines, one resource larger."""
    case, t = missed.case, missed.case.target
    if missed.free(["bandwidth"]) <= missed.allowed:
        needed = _bandwidth(missed)
        rates = [_rounded(needed * m) for m in MARGINS]
        wider = [
            (f"target.memory.external_bandwidth >= {r:g}", case.changed("memory", external_bandwidth=r))
            for r in rates
        ]
        yield list(dict(wider).items())
    sizes = [t.memory.local_bytes * n for n in TIMES]
    yield [
        (f"target.memory.local_bytes >= {n}", case.changed("memory", local_bytes=n))
        for n in sizes
        if n <= 1 << 32
    ]
    cores = [t.compute.cores * n for n in TIMES if t.compute.cores * n <= 64]
    yield [(f"target.compute.cores >= {n}", case.changed("compute", cores=n)) for n in cores]
    if missed.free(["array"]) <= missed.allowed:
        c = t.compute
        yield [
            (
                (f"target.compute.array_cols >= {c.array_cols * n} and target.compute.depthwise_macs >= "
                f"{c.depthwise_macs * n}"),
                case.changed("compute", array_cols=c.array_cols * n, depthwise_macs=c.depthwise_macs * n),
            )
            for n in TIMES
        ]
    if missed.found.host and missed.free(["host"]) <= missed.allowed:
        faster = [(t.host.macs_per_cycle * n, t.host.elements_per_cycle * n) for n in TIMES]
        yield [
            (_faster(m, e), case.changed("host", macs_per_cycle=m, elements_per_cycle=e)) for m, e in faster
        ]
    if missed.free(["vector unit"]) <= missed.allowed:
        lanes = [t.compute.vector_lanes * n for n in TIMES]
        yield [
            (f"target.compute.vector_lanes >= {n}", case.changed("compute", vector_lanes=n)) for n in lanes
        ]


def _faster(macs: float, elements: float) -> str:
    return f"target.host.macs_per_cycle >= {macs:g} and target.host.elements_per_cycle >= {elements:g}"


def _bandwidth(missed: MissedBudget) -> float:
    """The least at which today's commands are in time, to a hundredth."""
    target = missed.case.target
    low = target.memory.external_bandwidth
    high = low * 2

    def late(rate: float) -> bool:
        return (
            missed.at(replace(target, memory=replace(target.memory, external_bandwidth=rate)))
            > missed.allowed
        )

    while late(high) and high < ENDLESS / 4:
        low, high = high, high * 2
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if late(middle) else (low, middle)
    return high


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def _targets(missed: MissedBudget, shipped: Mapping[str, Target]) -> Iterator[str]:
    """Shipped targets that take every layer and on which the network is in time, the smallest first."""
    own = missed.case.target
    limit = missed.case.milliseconds(missed.allowed)
    macs = missed.found.totals()["macs"]
    for name, target in sorted(
        shipped.items(), key=lambda e: e[1].compute.macs * e[1].compute.cores * e[1].compute.clock_mhz
    ):
        c = target.compute
        if (c, target.memory) == (own.compute, own.memory) or macs / (
            c.macs * c.cores * c.clock_mhz * 1000
        ) > limit:
            continue
        if not _takes(missed.case.graph, target):
            continue
        case = replace(missed.case, target=replace(target, numerics=own.numerics, limits=own.limits))
        cycles = case.cycles()
        if cycles is not None and case.milliseconds(cycles) <= limit:
            yield f"target = {name}: {case.milliseconds(cycles):.4g} ms"


def _takes(graph: Graph, target: Target) -> bool:
    """Whether a target's limits and widths let it run all that runs here on the NPU."""
    bits = max(
        (q.bits for v in graph.values.values() if v.const is None and (q := v.quant) is not None), default=8
    )
    own = [n for n in graph.nodes if is_npu(n)]
    return bits <= max(target.numerics.activation_bits, default=0) and not any(
        isinstance(accepts(graph, n, target), No) for n in own
    )
