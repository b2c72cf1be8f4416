"""The kind of head that the shapes of the outputs leave as the only one."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes


@HEADS.entry
@dataclass(frozen=True)
class AutoHead(Head):
    """Every other kind is asked with its defaults."""

    def fitting(self, shapes: Shapes, size: tuple[int, int], classes: int) -> tuple[str, ...]:
        """Names of the kinds that the shapes fit."""
        others = (name for name in HEADS.names() if name != "auto")
        return tuple(name for name in others if not HEADS[name]().misfit(shapes, size, classes))

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        found = self.fitting(shapes, size, classes)
        if len(found) > 1:
            return f"they may be those of {' or '.join(found)}"
        return "" if found else "their shapes are those of no kind that is known"

    def chosen(self, shapes: Shapes, size: tuple[int, int], classes: int) -> Head:
        found: Head = HEADS[self.fitting(shapes, size, classes)[0]]()
        return found

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        shapes = [net.shape(head) for head in task.heads]
        return self.chosen(shapes, task.size, task.classes).decode(net, task)
