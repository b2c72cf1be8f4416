"""A group on one core as commands: buffers of held values, then strip by strip every part, and stores of what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from npuflow.engine.codegen.commands import Place, Touch
from npuflow.engine.codegen.dma import dense, dma
from npuflow.engine.codegen.slots import Slot
from npuflow.engine.codegen.tiles import Bench, Holder, Resident, emit_part, load, store
from npuflow.engine.tiling.borders import Border, Spread, loaded, stored
from npuflow.engine.tiling.frame import Frame
from npuflow.engine.tiling.geometry import Hold, Member
from npuflow.engine.tiling.local import Local, scratch_offsets
from npuflow.engine.tiling.model import Ref
from npuflow.engine.tiling.units import Unit
from npuflow.ir.space import Box, elements, extent


@dataclass
class Residents:
    """Values in one core's local memory, by name; those that stay between groups outlive them."""

    kept: dict[str, Resident] = field(default_factory=dict)


@dataclass
class GroupEmitter:
    """Emits one group for one core."""

    bench: Bench
    frame: Frame
    number: int
    core: int
    local: Local
    residents: Residents
    align: int
    spread: Mapping[str, Spread]
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    now: dict[str, Resident] = field(default_factory=dict)
    holders: dict[int, list[Holder]] = field(default_factory=dict)

    def emit(self) -> None:
        frame = self.frame
        walk, strips = frame.walks[self.core], frame.strips[self.core]
        turns = len(strips) > 1
        for strip in strips:
            entered: set[str] = set()
            for p, (member, window) in enumerate(zip(frame.members, strip.windows, strict=True)):
                for value in (*(v for v, _ in member.inputs), *member.outputs):
                    if value in strip.holds and value not in entered:
                        entered.add(value)
                        self._enter(value, strip.holds[value], member)
                if window is None:
                    continue
                choice = frame.group.parts[p].choice
                assert choice is not None
                holders = self._holders(p, turns)
                everywhere = {**self.residents.kept, **self.now}
                emit_part(self.bench, member, choice, window, holders, everywhere)
                for holder in holders:
                    if turns and holder.unit.home in ("acc", "inner"):
                        holder.forget()
                for ref in member.layer.kept:
                    if ref.home == "result" and member.value(ref) in walk.results:
                        self._keep(member, ref, walk.own(member.value(ref)), ref.operand.box(window))
        for border in stored(self.spread, self.number, self.core):
            self._border(border, self.residents.kept[border.value], False)

    def fetch(self) -> None:
        """What this core misses of values that stay, out of what others have stored."""
        for border in loaded(self.spread, self.number, self.core):
            value, box = border.value, self.spread[border.value].boxes[self.core]
            if value not in self.residents.kept:
                assert box is not None
                (address,) = self.local.slots(f"kept.{value}", 1)
                slot = self.bench.commands.local.open(address, max(1, elements(box) * self.frame.item(value)))
                slot.renew()
                self.residents.kept[value] = Resident(slot, box)
            self._border(border, self.residents.kept[value], True)

    def _border(self, border: Border, resident: Resident, load: bool) -> None:
        """A box of a value in local memory, from or to bytes of its own in external memory."""
        item, size = self.frame.item(border.value), extent(border.box)
        strides = dense(extent(resident.box), item)
        at = sum((a - lo) * s for (a, _), (lo, _), s in zip(border.box, resident.box, strides, strict=True))
        storage = self.bench.data.storage(border.name, not load)
        touch = Touch(border.name, border.box, storage.address, storage.address + storage.size)
        values = dma("DATA", storage.address, resident.slot.low + at, item, size, dense(size, item), strides)
        place: Place = (resident.slot, border.box)
        if load:
            self.bench.commands.load(values, place, self.frame.group.nodes[0], (storage, touch), 0, border.name)
        else:
            node = self.frame.topology.maker[border.value]
            self.bench.commands.store(values, place, node, storage, touch, 0)

    def _holders(self, p: int, turns: bool) -> list[Holder]:
        if p not in self.holders:
            units = self.frame.units[p]
            offsets = scratch_offsets(units, self.align)
            self.holders[p] = [
                Holder(unit, partial(self._open, unit, f"{self.number}.{p}.{u}", offsets[u] if turns else -1))
                for u, unit in enumerate(units)
            ]
        return self.holders[p]

    def _open(self, unit: Unit, name: str, offset: int) -> list[Slot]:
        if offset >= 0 and unit.home in ("acc", "inner"):
            (base,) = self.local.slots(f"{self.number}.scratch", 1)
            step = -(-unit.size // self.align) * self.align
            addresses = [base + offset + k * step for k in range(unit.slots)]
        else:
            addresses = self.local.slots(name, unit.slots)
        return [self.bench.commands.local.open(a, max(1, unit.size)) for a in addresses]

    def _enter(self, value: str, hold: Hold, reader: Member) -> None:
        """The buffer of a held value as this strip wants it: what was there moves over, what comes from outside is loaded."""
        ref, stays = self._ref(value), value in self.frame.kept
        whole = self.spread[value].boxes[self.core] if stays else None
        box = hold.box if whole is None else whole
        if value not in self.slots:
            count = dict(self.frame.group.held)[value]
            addresses = self.local.slots(f"kept.{value}" if stays else f"{self.number}.{value}", count)
            size = max(1, self.frame.holds[value] if whole is None else elements(whole) * ref.itemsize)
            self.slots[value] = [self.bench.commands.local.open(a, size) for a in addresses]
        before = self.now.get(value)
        slot = self.slots[value][hold.slot]
        if before is None or before.slot is not slot or before.box != box:
            slot.renew()
            self.now[value] = Resident(slot, box)
        if hold.copied is not None and before is not None:
            self._copy(value, before, self.now[value], hold.copied, ref)
        if hold.fresh is not None and not self._made(value):
            node = next(n for n in reader.nodes if value in self.frame.topology.graph.nodes[n].inputs)
            place: Place = (slot, hold.fresh)
            load(self.bench, value, ref, hold.fresh, box, place, slot.low, node, 0)
        if stays:
            self.residents.kept[value] = self.now[value]

    def _made(self, value: str) -> bool:
        return any(value in m.outputs for m in self.frame.members)

    def _ref(self, value: str) -> Ref:
        for member in self.frame.members:
            for ref in member.layer.kept:
                if member.value(ref) == value:
                    return ref
        raise KeyError(value)

    def _copy(self, value: str, old: Resident, new: Resident, box: Box, ref: Ref) -> None:
        """Rows that the next strip needs again move from the old buffer to the new one."""
        a, b = old.view(box, ref), new.view(box, ref)
        pad = 6 - len(box)
        fields: dict[str, object] = {
            "x": a.address, "y": b.address, "element": ref.itemsize, "dims": (1,) * pad + extent(box),
            "x_strides": (0,) * pad + dense(extent(old.box), ref.itemsize),
            "y_strides": (0,) * pad + dense(extent(new.box), ref.itemsize),
        }  # fmt: skip
        maker = self.frame.topology.maker.get(value, -1)
        node = maker if maker in self.frame.group.nodes else self.frame.group.nodes[0]
        since = len(self.bench.commands.commands)
        self.bench.commands.compute("COPY", fields, [(old.slot, box), (new.slot, box)], node, 0)
        if maker >= 0:
            self.bench.tap(value, b, since)

    def _keep(self, member: Member, ref: Ref, own: Box, made: Box) -> None:
        """What a part has made of a held value goes to external memory too, if somebody looks for it there."""
        value = member.value(ref)
        if not self.frame.topology.wanted_in_data(value, self.frame.kept):
            return
        box = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(made, own, strict=True))
        if all(a < b for a, b in box) and elements(box):
            resident = self.now[value]
            store(self.bench, member, ref, box, resident.box, (resident.slot, box), resident.slot.low, 0)
