"""Where integer tensors live in DATA: lifetimes, addresses, and who has touched which bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.base.errors import FitError
from npuflow.hw.target import Memory
from npuflow.ir.graph import Graph
from npuflow.ir.views import Views
from npuflow.program.codegen.commands import DataRange
from npuflow.schedule.accesses import merge
from npuflow.schedule.allocate import Layout, Lifetime, check_layout
from npuflow.schedule.arrange import Method, arrange
from npuflow.schedule.jobs import Places


class DataStorage:
    """Storage of every integer value, opened in program order so that reused bytes are waited for."""

    def __init__(
        self, views: Views, layout: Layout, lives: Sequence[Lifetime], homes: Mapping[str, str] | None = None
    ) -> None:
        self._views, self.layout, self.lives, self.homes = views, layout, tuple(lives), dict(homes or {})
        self._storages = {v.name: DataRange(layout.addresses[v.name], v.size) for v in lives}
        # of values, by how many bytes they lie further than there; see `generate.py`
        self.moved: Mapping[str, int] = {}
        movers = (self.graph.nodes[n] for roll in self.graph.rolls for n in roll.movers)
        self._cut = {views.root(node.inputs[0])[0] for node in movers if len(node.inputs) == 1}
        by_start = sorted(lives, key=lambda v: v.first)
        self._older: dict[str, list[str]] = {}
        for i, life in enumerate(by_start):
            a = layout.addresses[life.name]
            self._older[life.name] = [
                o.name
                for o in by_start[:i]
                if o.last < life.first
                and layout.addresses[o.name] < a + life.size
                and a < layout.addresses[o.name] + o.size
            ]

    def of(self, value_id: str) -> tuple[DataRange, int]:
        """Storage and byte address of a value, or of a border between cores by its name."""
        root, offset = self._root(value_id)
        storage = self._storages[root]
        return storage, storage.address + offset + self.moved.get(value_id, 0)

    def _root(self, value_id: str) -> tuple[str, int]:
        root, offset = self._views.root(value_id)
        return self.homes.get(root, root), offset

    @property
    def graph(self) -> Graph:
        return self._views.graph

    def bytes(self, value_id: str) -> int:
        return self._views.bytes(value_id)

    def seen_as(self, value_id: str) -> str:
        """The value whose boxes identify an access; of a result in place, the value that owns its bytes."""
        return self.homes.get(value_id, value_id)

    def address(self, value_id: str) -> int:
        return self.of(value_id)[1]

    def cut(self, value_id: str) -> tuple[int, int] | None:
        """First and last byte of the tensor of all steps that a value is a part of; None of others. A load of
        one step's part stands for those of all: it waits for the whole tensor."""
        root, _ = self._views.root(value_id)
        if root not in self._cut:
            return None
        low = self.address(root)
        return low, low + self.bytes(root)

    def open(self, value_id: str) -> tuple[DataRange, int]:
        """As `of`, for writing: the first write waits for what was done to the bytes before."""
        storage, address = self.of(value_id)
        if not storage.opened:
            storage.opened = True
            for name in self._older[self._root(value_id)[0]]:
                merge(storage.before, self._storages[name].last)
        return storage, address

    def places(self) -> Places:
        """Of all values, and of borders, as a schedule asks for them."""
        whole = {v: (self._views.root(v)[0], self.address(v)) for v in self._views.graph.values if v in self}
        names = {v.name: (v.name, self.layout.addresses[v.name]) for v in self.lives if v.name not in whole}
        names |= {
            name: (home, self.layout.addresses[home]) for name, home in self.homes.items()
            if name not in whole and home in self.layout.addresses
        }
        return Places({**whole, **names}, self._views.saved)

    def __contains__(self, value_id: str) -> bool:
        return self._root(value_id)[0] in self._storages


def lay_out(
    views: Views, born: Mapping[str, int], dies: Mapping[str, int], borders: Sequence[Lifetime],
    memory: Memory,
    method: Method = "greedy", homes: Mapping[str, str] | None = None,
) -> tuple[list[Lifetime], Layout]:
    """Addresses for all values, checked by the independent sweep; refused with numbers
    when external memory is too small.
    `homes`: results that take over another value's bytes."""
    spans: dict[str, list[int]] = {}
    for value_id, first in born.items():
        root, _ = views.root(value_id)
        root = (homes or {}).get(root, root)
        span = spans.setdefault(root, [first, dies.get(value_id, first)])
        span[0], span[1] = min(span[0], first), max(span[1], dies.get(value_id, first))
    lives = [Lifetime(name, max(1, views.bytes(name)), a, b) for name, (a, b) in spans.items()]
    lives += borders
    layout = arrange(lives, memory.burst, method)
    if layout.total > memory.external_bytes:
        raise FitError(
            f"activations need {layout.total} bytes of external memory, the target has "
            f"{memory.external_bytes}:"
            f" {layout.total - memory.external_bytes} too few",
            because=f"{layout.bound} bytes are live at once in the worst step",
            hint=f"memory.external_bytes >= {layout.total}; a smaller input; fewer activation bits",
            code="NF-FIT-001",
        )
    check_layout(lives, layout.addresses, memory.external_bytes, memory.burst)
    return lives, layout
