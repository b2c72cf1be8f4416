"""Why a network does not fit a target: demand, gap, a minimal set of conflicting constraints,
suggestions that were tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import lcm, prod
from typing import Any

from npuflow.base.errors import FitError, TargetError, Where
from npuflow.hw.elements import ELEMENTS, container
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.limits import allowed
from npuflow.ir.macs import graph_macs, node_macs
from npuflow.ir.op import No
from npuflow.ir.space import whole
from npuflow.place.place import op_name
from npuflow.schedule.arrange import Method
from npuflow.schedule.columns import gathered
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, Ref, describe
from npuflow.schedule.moves import moves_of
from npuflow.search.parts import Planner, needed
from npuflow.search.pinned import NO_PINS, Pins
from npuflow.search.plan import FUSING, TilingPlan, plan_network
from npuflow.search.tilings import TilingSearch

MOST = 1 << 32                            # bytes of local memory beyond which nothing is tried
HARDEST = 5                               # the level that tries nearly all sizes
NAMED, MANY = 3, 6                        # targets, and layers, that are named
BYTE = 8
CODES = 1 << BYTE
ACTIVATIONS = ("input", "output", "inner", "source", "result")


@dataclass(frozen=True)
class PlanRequest:
    """What was asked of the planner."""

    graph: Graph
    machine: Machine
    numerics: Numerics
    level: int
    pins: Pins = NO_PINS
    allocation: Method = "greedy"

    @property
    def arguments(self) -> tuple[Graph, Machine, Numerics, int, Pins, Method]:
        return self.graph, self.machine, self.numerics, self.level, self.pins, self.allocation

    def plan(self) -> TilingPlan | None:
        """The plan, or None where there is none."""
        try:
            return plan_network(*self.arguments)
        except TargetError:
            return None

    def with_memory(self, size: int) -> PlanRequest:
        return replace(self, machine=_sized(self.machine, size))


@dataclass(frozen=True)
class Constraint:
    """One of the things that together forbid a plan; `free` takes it away."""

    name: str
    free: Callable[[Layer, Machine, int], tuple[Layer, Machine, int]]


@dataclass(frozen=True)
class Unfit:
    """The layers that have no tile, each by itself."""

    wanted: PlanRequest
    indices: tuple[int, ...]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(_layer(self.wanted, i) for i in self.indices)

    @cached_property
    def demands(self) -> tuple[int, ...]:
        """Per layer the least local memory that suffices."""
        return tuple(TilingSearch(x, self.wanted.machine, self.wanted.level).smallest() for x in self.layers)

    def name(self, index: int) -> str:
        return self.wanted.graph.nodes[index].name

    @cached_property
    def names(self) -> str:
        """The layers as an override names them: an operator where all of its layers are meant."""
        nodes = self.wanted.graph.nodes
        ops = {op: [i for i, n in enumerate(nodes) if n.is_integer and op_name(n) == op] for op in self._ops}
        whole = [op for op, every in ops.items() if set(every) <= set(self.indices)]
        named = whole + [self.name(i) for i in self.indices if op_name(nodes[i]) not in whole]
        more = f", and {len(named) - MANY} more" if len(named) > MANY else ""
        return "[" + ", ".join(f'"{n}"' for n in named[:MANY]) + more + "]"

    @cached_property
    def _ops(self) -> list[str]:
        return list(dict.fromkeys(op_name(self.wanted.graph.nodes[i]) for i in self.indices))


def without_tile(wanted: PlanRequest) -> list[int]:
    """The integer nodes of which not even the smallest tile fits local memory. Moves always do."""
    graph, moving = wanted.graph, moves_of(wanted.graph)
    tiled = [i for i, n in enumerate(graph.nodes) if n.is_integer and i not in moving]
    return [i for i in tiled if not _runs(_layer(wanted, i), wanted.machine, wanted.level)]


def explained(wanted: PlanRequest, fault: TargetError, shipped: Mapping[str, Target]) -> TargetError:
    """The planner's refusal with what is behind it. `shipped`: other targets to try."""
    if not isinstance(fault, FitError):
        return fault
    planner = Planner(wanted.graph, wanted.machine, wanted.numerics, wanted.level)
    planner.groups()
    if not planner.unfit:
        return _pinned(wanted, fault, shipped)
    unfit = Unfit(wanted, tuple(planner.unfit))
    worst = max(range(len(unfit.indices)), key=lambda i: unfit.demands[i])
    demand, bound = unfit.demands[worst], wanted.machine.memory.local_bytes
    own = planner.faults[worst]
    others = [
        f"{unfit.name(i)} ({unfit.demands[k]} bytes)" for k, i in enumerate(unfit.indices) if k != worst
    ]
    because = [own.because] if own.because else []
    because.append(f"minimal set of conflicting constraints: {'; '.join(_minimal(unfit, worst))}")
    if others:
        because.append(
            f"{len(others)} more layers do not fit: {', '.join(others[:5])}"
            + (", ..." if len(others) > 5 else "")
        )
    gap = f"a tile needs {demand} bytes of local memory, the target has {bound}: {demand - bound} too few"
    return FitError(
        gap,
        where=Where(node=unfit.name(unfit.indices[worst])),
        because="\n".join(because),
        hint="\n".join(_suggestions(unfit, shipped)) or "none of the changes that were tried helps",
        code="NF-FIT-008",
    )


# --- what forbids it
def _minimal(unfit: Unfit, worst: int) -> list[str]:
    """Constraints without any one of which the layer fits: each in turn is left out for
    good where it does not without."""
    layer, w = unfit.layers[worst], unfit.wanted
    held = list(_constraints(layer, w))

    def fits(kept: Sequence[Constraint]) -> bool:
        state = layer, w.machine, w.level
        for c in held:
            state = state if c in kept else c.free(*state)
        return _runs(*state)

    left = list(held)
    for c in held:
        rest = [x for x in left if x is not c]
        if not fits(rest):
            left = rest
    return [c.name for c in left]


def _constraints(layer: Layer, w: PlanRequest) -> list[Constraint]:
    """From the softest to the hardest."""
    found = [Constraint(f"[tiling] level = {w.level} tries few sizes", lambda x, m, _: (x, m, HARDEST))]
    if w.machine.memory.local_align > 1:
        text = f"local addresses are multiples of {w.machine.memory.local_align}"
        found.append(
            Constraint(text, lambda x, m, n: (x, replace(m, memory=replace(m.memory, local_align=1)), n))
        )
    if _wide(layer, ACTIVATIONS):
        found.append(Constraint("activations have 16 bits", lambda x, m, n: (_narrow(x, ACTIVATIONS), m, n)))
    if _wide(layer, ("const",)):
        found.append(
            Constraint("weights have more than 8 bits", lambda x, m, n: (_narrow(x, ("const",)), m, n))
        )
    for axis in layer.axes:
        if axis.kind == "whole" and axis.size > 1:
            found.append(
                Constraint(
                    f"{axis.name} cannot be split (size {axis.size})",
                    lambda x, m, n, a=axis.name: (_split(x, a), m, n),  # type: ignore[misc]
                )
            )
    size = w.machine.memory.local_bytes
    return [*found, Constraint(f"local memory has {size} bytes", lambda x, m, n: (x, _sized(m, MOST), n))]


def _wide(layer: Layer, homes: Sequence[str]) -> bool:
    return any(_narrowed(r) is not None for s in layer.streams for r in s.refs if r.home in homes)


def _narrowed(ref: Ref) -> str | None:
    """The type of an operand of the array that is wider than a byte, in a byte."""
    own = ELEMENTS[ref.dtype]
    return container(BYTE, own.signed) if own.wide and "weight" in own.roles else None


def _narrow(layer: Layer, homes: Sequence[str]) -> Layer:
    """The layer with operands of one byte where they had two; a table of 8-bit codes
    has an entry for each."""

    def in_bytes(r: Ref) -> Ref:
        if "input" in homes and r.key == "table" and prod(r.operand.shape) > CODES:
            return replace(r, operand=whole("table", (CODES,)), dtype=container(BYTE, signed=True))
        narrow = _narrowed(r) if r.home in homes else None
        return replace(r, dtype=narrow) if narrow is not None else r

    return replace(layer, streams=tuple(replace(s, refs=tuple(map(in_bytes, s.refs))) for s in layer.streams))


def _split(layer: Layer, name: str) -> Layer:
    """The layer as if an axis could be split."""
    axes = tuple(replace(a, kind="par") if a.name == name else a for a in layer.axes)
    return replace(layer, space=replace(layer.space, axes=axes))


# --- what helps
def _suggestions(unfit: Unfit, shipped: Mapping[str, Target]) -> list[str]:
    """Changes after which all layers have tiles, each tried, with what came out."""
    w, found = unfit.wanted, []
    if w.level < HARDEST and all(_runs(x, w.machine, HARDEST) for x in unfit.layers):
        found.append(_outcome(f"[tiling] level = {HARDEST}", replace(w, level=HARDEST)))
    eight = BYTE in w.numerics.activation_bits
    if eight and all(_runs(_narrow(x, ACTIVATIONS), w.machine, w.level) for x in unfit.layers):
        found.append(
            f"[[quantize.overrides]] layers = {unfit.names}, bits = 8, input_bits = 8: their tiles fit"
        )
    rest = graph_macs(w.graph) - sum(node_macs(w.graph, w.graph.nodes[i]) for i in unfit.indices)
    share = rest / max(1, graph_macs(w.graph))
    left = f"all other layers fit; {share:.1%} of the multiply-accumulates stay on the NPU"
    if len(unfit.indices) < sum(n.is_integer for n in w.graph.nodes):
        found.append(f"[[quantize.overrides]] layers = {unfit.names}, float = true: {left}")
    size = _rounded(max(unfit.demands), w.machine)
    found.append(_outcome(f"target.memory.local_bytes >= {size}", w.with_memory(size)))
    takes = list(
        islice((name for name, target in sorted(shipped.items(), key=_size) if _takes(unfit, target)), NAMED)
    )
    if takes:
        found.append(f"target = {' or '.join(takes)}: every layer has a tile there")
    return [text for text in found if text]


def _outcome(change: str, trial: PlanRequest) -> str:
    """A change with its result, or nothing where it does not help."""
    plan = trial.plan()
    if plan is None:
        return ""
    time = plan.cycles / 1e3 / trial.machine.compute.clock_mhz
    return f"{change}: fits, {time:.3g} ms, {plan.bytes / 1e6:.3g} MB external traffic"


def _size(entry: tuple[str, Target]) -> int:
    return entry[1].memory.local_bytes


def _takes(unfit: Unfit, target: Target) -> bool:
    """Whether every layer of the network has a tile on another target, by its
    limits, its widths and its memory."""
    w = unfit.wanted
    machine = Machine(target.compute, target.memory, target.dma)
    if machine == w.machine:
        return False
    bits = max(
        (q.bits for v in w.graph.values.values() if v.const is None and (q := v.quant) is not None), default=8
    )
    if bits > max(target.numerics.activation_bits, default=0):
        return False
    for i in unfit.indices:
        node = w.graph.nodes[i]
        op = op_name(node)
        if op in target.limits.refuse or isinstance(allowed(op, w.graph.site(node), target.limits), No):
            return False
    planner = Planner(w.graph, machine, w.numerics, w.level)
    planner.groups()
    return not planner.faults


# --- pins
def _pinned(wanted: PlanRequest, fault: TargetError, shipped: Mapping[str, Target]) -> TargetError:
    """Every layer fits; what the recipe pins does not."""
    pins, level = wanted.pins, min(wanted.level, FUSING)
    quick = replace(wanted, level=max(level, FUSING))
    names: list[Pin] = [
        (kind, entry) for kind in ("keep", "groups", "tiles") for entry in getattr(pins, kind)
    ]
    left, stay = list(names), list[Pin]()
    for one in names:
        rest = [n for n in left if n != one]
        if replace(quick, pins=_pins(rest)).plan() is None:
            left = rest
        if replace(quick, pins=_pins([*stay, one])).plan() is not None:
            stay.append(one)
    memory = (
        [f"local memory has {wanted.machine.memory.local_bytes} bytes"]
        if quick.with_memory(MOST).plan() is not None
        else []
    )
    binding = "; ".join([*map(_pin_text, left), *memory])
    lines = [fault.because, f"minimal set of conflicting constraints: {binding}"]
    tried = [t for t in fault.hint.split("; ") if t.endswith(" fits") or " fits" in t]
    gone = " and ".join(_pin_text(n) for n in names if n not in stay)
    tried.append(_outcome(f"without {gone}", replace(wanted, pins=_pins(stay))))
    if wanted.level < HARDEST and pins.groups:
        tried.append(_outcome(f"[tiling] level = {HARDEST}", replace(wanted, level=HARDEST)))
    if not any("memory.local_bytes" in t for t in tried):
        least = _least(lambda size: quick.with_memory(size).plan() is not None, wanted.machine)
        if least:
            tried.append(_outcome(f"target.memory.local_bytes >= {least}", wanted.with_memory(least)))
    takes: list[str] = []
    for name, target in sorted(shipped.items(), key=_size):
        if target.memory.local_bytes > wanted.machine.memory.local_bytes and len(takes) < NAMED:
            machine = Machine(target.compute, target.memory, target.dma)
            takes += [name] if replace(quick, machine=machine).plan() is not None else []
    tried += [f"target = {' or '.join(takes)}: fits there"] if takes else []
    hint = "\n".join(t for t in dict.fromkeys(tried) if t) or "none of the changes that were tried helps"
    return fault.with_(because="\n".join(x for x in lines if x), hint=hint)


Pin = tuple[str, Any]                     # its kind, and an entry of that field of `Pins`


def _pins(names: Sequence[Pin]) -> Pins:
    keep, groups, tiles = (
        tuple(n for kind, n in names if kind == wanted) for wanted in ("keep", "groups", "tiles")
    )
    return Pins(keep, groups, tiles)


def _pin_text(pin: Pin) -> str:
    kind, name = pin
    if kind == "tiles":
        return f"[tiling.tiles] {name[0]} ({', '.join(f'{axis} = {size}' for axis, size in name[1])})"
    return f'[tiling] keep "{name}"' if isinstance(name, str) else f"[tiling] {kind} [{', '.join(name)}]"


# --- trials
def _layer(wanted: PlanRequest, index: int) -> Layer:
    site = wanted.graph.site(wanted.graph.nodes[index])
    layer = describe([site], wanted.numerics, needed(wanted.graph, (index,)))
    return gathered(layer, wanted.machine.compute, wanted.machine.memory)


def _runs(layer: Layer, machine: Machine, level: int) -> bool:
    return TilingSearch(layer, machine, level).smallest() <= machine.memory.local_bytes


def _sized(machine: Machine, size: int) -> Machine:
    return replace(machine, memory=replace(machine.memory, local_bytes=size))


def _rounded(size: int, machine: Machine) -> int:
    """A size that a target file may have: equal banks, whole words."""
    unit = lcm(machine.memory.local_align, machine.memory.local_banks if machine.memory.bank_ports else 1)
    return -(-size // unit) * unit


def _least(works: Callable[[int], bool], machine: Machine) -> int:
    """The least local memory that works, to a sixteenth, by doubling and then halving
    the doubt; 0 if there is none."""
    low = machine.memory.local_bytes
    high, unit = low * 2, machine.memory.slot_align
    while high <= MOST and not works(_rounded(high, machine)):
        low, high = high, high * 2
    while high <= MOST and high - low > max(unit, low // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return _rounded(high, machine) if high <= MOST else 0
