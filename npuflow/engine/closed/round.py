"""One group on one core in closed form: strips, parts, the buffers of values that stay, data movers."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from npuflow.engine.allocate import aligned
from npuflow.engine.closed.core import Core, Resident
from npuflow.engine.closed.part import Part, Slots
from npuflow.engine.closed.tile import Transfer, strided_transfer
from npuflow.engine.closed.touches import Area
from npuflow.engine.tiling.borders import Border, loaded, stored
from npuflow.engine.tiling.frame import Frame
from npuflow.engine.tiling.geometry import Hold
from npuflow.engine.tiling.local import scratch_offsets
from npuflow.engine.tiling.model import Ref
from npuflow.engine.tiling.moves import FILL_MOST, Piece, pieces_of, staging_bytes
from npuflow.ir.op import Move, Site
from npuflow.ir.space import Box, Interval, elements


class Round:
    """A group on a core."""

    def __init__(self, core: Core, frame: Frame, number: int) -> None:
        self.core, self.frame, self.number = core, frame, number
        self.stage, self.machine = core.stage, core.stage.machine
        self.held: dict[str, list[Area]] = {}
        self.parts: dict[int, Part] = {}
        core.now = {}

    def run(self) -> None:
        if self.frame.moves:
            self._moves()
            return
        strips, walk = self.frame.strips[self.core.index], self.frame.walks[self.core.index]
        made = {v for m in self.frame.members for v in m.outputs}
        for strip in strips:
            entered: set[str] = set()
            for p, (member, window) in enumerate(zip(self.frame.members, strip.windows, strict=True)):
                for value in (*(v for v, _ in member.inputs), *member.outputs):
                    if value in strip.holds and value not in entered:
                        entered.add(value)
                        self._enter(value, strip.holds[value], value in made)
                if window is None:
                    continue
                self._part(p, len(strips) > 1).run(window)
                for ref in member.layer.kept:
                    if ref.home == "result" and member.value(ref) in walk.results:
                        self._keep(member.value(ref), ref, walk.own(member.value(ref)), ref.operand.box(window))
        for border in stored(self.stage.spread, self.number, self.core.index):
            size = elements(border.box) * self.frame.item(border.value)
            self.core.store_border(border.name, size, self.core.kept[border.value].area, border.box)

    def fetch(self) -> None:
        """What this core misses of values that stay, out of what others have stored."""
        for border in loaded(self.stage.spread, self.number, self.core.index):
            self._fetch(border)

    def _fetch(self, border: Border) -> None:
        value, box, item = border.value, self.stage.spread[border.value].boxes[self.core.index], self.frame.item(border.value)
        if value not in self.core.kept:
            assert box is not None
            (address,) = self.stage.local.slots(f"kept.{value}", 1)
            area = self.core.areas.open(address, max(1, elements(box) * item))
            area.lay(box, item)
            self.core.kept[value] = Resident(area, box)
        self.core.load_border(border.name, elements(border.box) * item, self.core.kept[value].area, border.box)

    def _part(self, p: int, turns: bool) -> Part:
        """A part with its slots; where parts take turns, sums and what is made within a tile lie in one scratch area."""
        units, align = self.frame.units[p], self.machine.memory.slot_align
        if known := p in self.parts:
            part = self.parts[p]
        else:
            choice = self.frame.group.parts[p].choice
            assert choice is not None
            part = self.parts[p] = Part(self.core, self.frame.members[p], choice, [Slots(unit) for unit in units])
        offsets = scratch_offsets(units, align)
        for u, (slots, unit) in enumerate(zip(part.slots, units, strict=True)):
            scratch = turns and unit.home in ("acc", "inner")
            if known and not scratch:
                continue
            if scratch:
                (base,) = self.stage.local.slots(f"{self.number}.scratch", 1)
                addresses = [base + offsets[u] + k * aligned(unit.size, align) for k in range(unit.slots)]
            else:
                addresses = self.stage.local.slots(f"{self.number}.{p}.{u}", unit.slots)
            slots.areas = [self.core.areas.open(a, max(1, unit.size)) for a in addresses]
            slots.holds = [None] * len(slots.areas)
        return part

    def _enter(self, value: str, hold: Hold, made: bool) -> None:
        """The buffer of a held value as this strip wants it: rows that are there move over, others come in."""
        ref, stays, now = self._ref(value), value in self.frame.kept, self.core.now
        whole = self.stage.spread[value].boxes[self.core.index] if stays else None
        box = hold.box if whole is None else whole
        if value not in self.held:
            count = dict(self.frame.group.held)[value]
            addresses = self.stage.local.slots(f"kept.{value}" if stays else f"{self.number}.{value}", count)
            size = max(1, self.frame.holds[value] if whole is None else elements(whole) * ref.itemsize)
            self.held[value] = [self.core.areas.open(a, size) for a in addresses]
        before, area = now.get(value), self.held[value][hold.slot]
        if before is None or before.area is not area or before.box != box:
            area.renew(elements(box) * ref.itemsize)
            area.lay(box, ref.itemsize)
            now[value] = Resident(area, box)
        if hold.copied is not None and before is not None:
            c = self.machine.compute
            cycles = c.command_cycles + ceil(elements(hold.copied) / c.vector_lanes)
            self.core.compute(self.core.vector, cycles, [(before.area, hold.copied)], [(area, hold.copied)])
        if hold.fresh is not None and not made:
            self.core.load_box(value, ref, hold.fresh, area, hold.fresh)
        if stays:
            self.core.kept[value] = now[value]

    def _ref(self, value: str) -> Ref:
        return next(r for m in self.frame.members for r in m.layer.kept if m.value(r) == value)

    def _keep(self, value: str, ref: Ref, own: Box, made: Box) -> None:
        """What somebody looks for in external memory is stored."""
        if not self.frame.topology.wanted_in_data(value, self.frame.kept):
            return
        box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(made, own, strict=True))
        if all(a < b for a, b in box):
            self.core.store_box(value, ref, box, self.core.now[value].area, box)

    # --- data movers
    def _moves(self) -> None:
        """Pieces through two slots, in and out again."""
        node = self.frame.group.nodes[0]
        site, staging = self.frame.topology.site(node), staging_bytes(self.machine)
        moves = [m for n, m in enumerate(self.frame.topology.moving[node]) if (node, n) not in self.stage.places.saved]
        if not moves:
            return
        size = self.frame.topology.staging(node, self.machine)
        areas = [self.core.areas.open(a, size) for a in self.stage.local.slots(f"{self.number}.move", 2)]
        turn = 0
        for move in moves:
            most = staging // _item(site, move)
            if move.source is None:
                most = max(1, min(most, FILL_MOST, prod(move.dims)))
                c, area = self.machine.compute, areas[turn % 2]
                area.renew(most * _item(site, move))
                self.core.compute(self.core.vector, c.command_cycles + ceil(most / c.vector_lanes), [], [(area, None)])
            for piece in pieces_of(move, most):
                if move.source is not None:
                    self._in(site, move, piece, areas[turn % 2])
                self._out(site, move, piece, areas[turn % 2])
                turn += move.source is not None
            turn += move.source is None

    def _in(self, site: Site, move: Move, piece: Piece, area: Area) -> None:
        assert move.source is not None
        source, dims = site.inputs[move.source], [(n, s) for n, s, _ in piece.load]
        assert source is not None
        area.renew(prod(n for n, _ in dims) * _item(site, move))
        if site.consts[move.source] is not None:
            self.core.load_block(prod(n for n, _ in dims) * _item(site, move), area, None)
        else:
            self.core.load(source.id, *self._side(source.id, piece.src_offset, dims, _item(site, move)), area, None, ())

    def _out(self, site: Site, move: Move, piece: Piece, area: Area) -> None:
        value, dims = site.outputs[move.output].id, [(n, s) for n, s, _ in piece.store]
        self.core.store(value, *self._side(value, piece.dst_offset, dims, _item(site, move)), area, None, ())

    def _side(self, value: str, offset: int, dims: Sequence[tuple[int, int]], item: int) -> tuple[Transfer, Interval]:
        """A transfer of strided elements, and the bytes from the first to the last of them."""
        low, high = (offset + sum(end(0, (n - 1) * s) for n, s in dims) for end in (min, max))
        address = self.stage.places.of[value][1]
        return strided_transfer(dims, item, self.machine), (address + low * item, address + (high + 1) * item)


def _item(site: Site, move: Move) -> int:
    return np.dtype(site.outputs[move.output].dtype).itemsize
