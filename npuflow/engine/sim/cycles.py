"""What one command costs on its engine, term by term, from its words and the target's constants alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from npuflow.engine.sim.access import LOCAL, SIZES, Region, regions
from npuflow.hw.encode import Command
from npuflow.hw.target import Compute, Memory, Target

_VECTOR_COST = {"DIV": 4, "SOFTMAX": 4, "RESIZE": 4}


@dataclass(frozen=True, slots=True)
class Terms:
    """Cycles of a command alone on the machine; they add up to its latency, of a transfer before its bytes move."""

    issue: int = 0            # decode and issue
    setup: int = 0            # of a DMA engine
    rows: int = 0             # rows of a transfer beyond the first
    fill: int = 0             # fill and drain of the array
    reload: int = 0           # new weights or sums between array passes
    array: float = 0.0        # multiply-accumulates that were asked for, at the array's peak
    edge: float = 0.0         # the array's places that had nothing to do: rows, columns, positions, depthwise
    vector: int = 0           # the vector unit

    @property
    def total(self) -> int:
        known = self.issue + self.setup + self.rows + self.fill + self.reload + self.vector
        return known + round(self.array + self.edge)


def terms_of(command: Command, target: Target) -> Terms:
    """Cycles of a command on its engine (of a transfer: before its bytes move)."""
    compute = target.compute
    issue = compute.command_cycles
    if command.opcode in ("LOAD", "STORE"):
        rows, _ = rows_of(command)
        return Terms(issue, target.dma.setup_cycles, target.dma.row_cycles * (rows - 1))
    if command.opcode in ("CONV", "MATMUL"):
        work, passes, macs = (_conv if command.opcode == "CONV" else _matmul)(command, compute)
        wide = _wide(command, compute)
        useful = macs / compute.macs * wide
        reload = passes * compute.pass_cycles * wide
        return Terms(issue, fill=compute.fill_cycles, reload=reload, array=useful, edge=work * wide - useful)
    if command.opcode == "BARRIER":
        return Terms(issue)
    return Terms(issue, vector=ceil(_elements(command) / compute.vector_lanes))


def _wide(command: Command, compute: Compute) -> int:
    names = ("x", "w") if command.opcode == "CONV" else ("a", "b")
    return compute.wide_factor if any(SIZES[command.text(f"{n}_type")] > 1 for n in names) else 1


def _conv(c: Command, compute: Compute) -> tuple[int, int, int]:
    """(array cycles, passes, multiply-accumulates)."""
    groups, out = c.number("groups"), c.number("out_channels")
    per_in, per_out = c.vector("x_dims")[1] // groups, out // groups
    area, pixels = prod(c.vector("kernel")), c.number("batch") * c.number("out_height") * c.number("out_width")
    macs = area * out * pixels * per_in
    if per_in == 1 and groups > 1:
        return ceil(macs / compute.depthwise_macs), 0, macs
    if compute.dataflow == "weight_stationary":
        passes = area * ceil(per_in / compute.array_rows) * ceil(per_out / compute.array_cols) * groups
        return passes * ceil(pixels / compute.array_pixels), passes, macs
    passes = groups * ceil(pixels / compute.array_rows) * ceil(per_out / compute.array_cols)
    return passes * area * per_in, passes, macs


def _matmul(c: Command, compute: Compute) -> tuple[int, int, int]:
    batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
    macs = batch * m * k * n
    if compute.dataflow == "weight_stationary":
        passes = batch * ceil(k / compute.array_rows) * ceil(n / compute.array_cols)
        return passes * ceil(m / compute.array_pixels), passes, macs
    passes = batch * ceil(m / compute.array_rows) * ceil(n / compute.array_cols)
    return passes * k, passes, macs


def _elements(c: Command) -> int:
    """Element operations of a VECTOR command."""
    cost = _VECTOR_COST.get(c.opcode, 1)
    if c.opcode in ("MAXPOOL", "AVGPOOL"):
        cost = prod(c.vector("kernel"))
    if "out_height" in c.fields:
        return prod(c.vector("x_dims")[:2]) * c.number("out_height") * c.number("out_width") * cost
    return prod(c.vector("dims")) * cost


def rows_of(command: Command) -> tuple[int, int]:
    """(contiguous rows, bytes of each) on the external side of a transfer."""
    found = _external(command).squeezed()
    total = prod(command.vector("dims")) * command.number("element")     # a broadcast row is moved as often as it is read
    return max(1, total // found.size), found.size


def burst_bytes(command: Command, target: Target) -> int:
    """What a transfer costs on external memory: every row in whole bursts."""
    rows, size = rows_of(command)
    return rows * ceil(size / target.memory.burst) * target.memory.burst


def in_shared(command: Command, memory: Memory) -> bool:
    """Whether a transfer's external side lies wholly in the memory that all cores share on the chip."""
    region = _external(command)
    return region.space == "DATA" and region.span[1] <= memory.shared_bytes


def _external(command: Command) -> Region:
    dims, strides = command.vector("dims"), command.vector("external_strides")
    write = command.opcode == "STORE"
    return Region("external", command.text("space"), write, command.number("external"), command.number("element"), dims, strides)


def bank_bytes(command: Command, memory: Memory) -> dict[int, float]:
    """Bytes of local memory that a command reads or writes, by bank; an operand's bytes lie evenly over its span."""
    size = memory.local_bytes // memory.local_banks
    found: dict[int, float] = {}
    for region in regions(command):
        if region.space != LOCAL:
            continue
        lo, hi = region.span
        share = prod(region.dims) * region.size / (hi - lo)
        for bank in range(lo // size, (hi - 1) // size + 1):
            part = min(hi, (bank + 1) * size) - max(lo, bank * size)
            found[bank] = found.get(bank, 0.0) + part * share
    return found
