"""Data movers as jobs: pieces through two staging slots, in and out again; constants are
written once and stored often."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from npuflow.ir.moves import Move
from npuflow.ir.op import OpContext
from npuflow.schedule.cores import Core, Slot
from npuflow.schedule.cycles import Transfer, strided_transfer
from npuflow.schedule.frame import Frame
from npuflow.schedule.jobs import NO_BOX, FillRun, Outside, PieceCopy
from npuflow.schedule.moves import FILL_MOST, Piece, assembled, pieces_of, staging_bytes


def move(core: Core, frame: Frame) -> None:
    """All moves of the group's node, but those that are saved since values share bytes."""
    node, machine = frame.group.nodes[0], core.machine
    site, staging = frame.topology.site(node), staging_bytes(machine)
    saved = core.external.places.saved
    moves = [m for n, m in enumerate(frame.topology.moving[node]) if (node, n) not in saved]
    if not moves:
        return
    size = frame.topology.staging(node, machine)
    slots = [core.open(a, size) for a in core.local.slots(f"{core.group}.move", 2)]
    mover, turn = _Mover(core, site, node), 0
    together = None
    if all(m.source is None or site.consts[m.source] is None for m in moves):
        together = assembled(moves, [np.dtype(o.dtype).itemsize for o in site.outputs], machine)
    if together is not None:
        for start in range(0, together.blocks, together.at_once):
            count, slot = min(together.at_once, together.blocks - start), slots[turn % 2]
            slot.renew(count * together.block * item_of(site, moves[0]))
            for each, piece in zip(moves, together.loads(start, count), strict=True):
                mover.place(each, piece, slot, turn)
            mover.store(moves[0], together.store(start, count), slot, turn)
            turn += 1
        return
    for each in moves:
        most = staging // item_of(site, each)
        if each.source is None:
            most = max(1, min(most, FILL_MOST, prod(each.dims)))
            mover.fill(each, most, slots[turn % 2])
            turn += 1
            continue
        for piece in pieces_of(each, most):
            mover.load(each, piece, slots[turn % 2], turn)
            mover.store(each, piece, slots[turn % 2], turn)
            turn += 1


class _Mover:
    def __init__(self, core: Core, site: OpContext, node: int) -> None:
        self.core, self.site, self.node = core, site, node

    def fill(self, move: Move, most: int, slot: Slot) -> None:
        """A run of the constant, stored as often as needed."""
        c = self.core.machine.compute
        slot.renew(most * item_of(self.site, move))
        cycles, what = c.command_cycles + ceil(most / c.vector_lanes), FillRun(self.site, move, most)
        self.core.compute(self.core.queues.vector, cycles, [], [(slot.now, None)], what, self.node, 0)
        for piece in pieces_of(move, most):
            self.store(move, piece, slot, 0)

    def place(self, move: Move, piece: Piece, slot: Slot, turn: int) -> None:
        """A load into a part of what lies in the slot."""
        assert move.source is not None
        source, dims = self.site.inputs[move.source], [(n, s) for n, s, _ in piece.load]
        assert source is not None
        side = self._side(source.id, piece.src_offset, dims, item_of(self.site, move))
        self.core.load(*side, (slot.now, None), PieceCopy(self.site, move, piece), self.node, turn)

    def load(self, move: Move, piece: Piece, slot: Slot, turn: int) -> None:
        assert move.source is not None
        source, dims, item = (
            self.site.inputs[move.source],
            [(n, s) for n, s, _ in piece.load],
            item_of(self.site, move),
        )
        assert source is not None
        size = prod(n for n, _ in dims) * item
        slot.renew(size)
        what = PieceCopy(self.site, move, piece)
        if self.site.consts[move.source] is not None:
            self.core.load_block(size, slot.now, what, self.node, turn)
        else:
            side = self._side(source.id, piece.src_offset, dims, item)
            self.core.load(*side, (slot.now, None), what, self.node, turn)

    def store(self, move: Move, piece: Piece, slot: Slot, turn: int) -> None:
        value, dims = self.site.outputs[move.output].id, [(n, s) for n, s, _ in piece.store]
        side = self._side(value, piece.dst_offset, dims, item_of(self.site, move))
        self.core.store(*side, (slot.now, None), PieceCopy(self.site, move, piece), self.node, turn)

    def _side(
        self, value: str, offset: int, dims: Sequence[tuple[int, int]], item: int
    ) -> tuple[Transfer, Outside]:
        """A transfer of strided elements, and the bytes from the first to the last of them."""
        low, high = (offset + sum(end(0, (n - 1) * s) for n, s in dims) for end in (min, max))
        owner, address = self.core.external.places.of[value]
        span = address + low * item, address + (high + 1) * item
        return strided_transfer(dims, item, self.core.machine), Outside(owner, value, NO_BOX, span)


def item_of(site: OpContext, move: Move) -> int:
    """Bytes of an element that a move moves."""
    return np.dtype(site.outputs[move.output].dtype).itemsize
