"""The commands of a program as text, one a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import JsonOption, ProgramArgument

if TYPE_CHECKING:
    from npuflow.hw.command import Command
    from npuflow.program.container import Program
    from npuflow.program.loop_steps import Blocks, LoopStep, LoopSteps, StoredCommand


def disasm(
    program: ProgramArgument,
    node: Annotated[
        str | None, typer.Option("--node", help="Only the commands of this node (name or index).")
    ] = None,
    core: Annotated[int | None, typer.Option("--core", help="Only this core.")] = None,
    order: Annotated[
        bool, typer.Option("--order", help="In an order that may run, all cores together.")
    ] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="As the file has them: rounds of a block once.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a program's commands: index, core, queue, node, opcode, fields that are not 0, waits; of loops
    also the step that each runs for."""
    from npuflow.hw.target import queue_names
    from npuflow.program.order import order_of
    from npuflow.program.packing.package import load_network

    loaded = load_network(program)
    names = [n["name"] for n in loaded.meta["nodes"]]
    if node is not None and node not in names and not (node.isdigit() and int(node) < len(names)):
        raise UsageError(
            f'the program has no node "{node}"', hint="npuflow profile lists them", code="NF-USAGE-039",
        )
    if stored and order:
        raise UsageError(
            "commands as they are stored have one order", hint="--stored without --order",
            code="NF-USAGE-424",
        )
    wanted = None if node is None else {i for i, n in enumerate(names) if n == node} or {int(node)}
    shown = _Listing(loaded, queue_names(loaded.target.dma.channels), as_json)
    cores = range(len(loaded.decoded)) if core is None else [core]
    streams = ((c, i) for c in cores if c < len(loaded.decoded) for i in range(len(loaded.decoded[c])))
    if stored:
        _stored(shown, [c for c in cores if c < len(loaded.decoded)], wanted)
        return
    for c, i in order_of(loaded).sequence if order else streams:
        command = loaded.decoded[c][i]
        if (core is None or c == core) and (wanted is None or command.node in wanted):
            shown.command(command, i, i)


@dataclass
class _Listing:
    """Prints commands, with a line where they go on to another node or step."""

    program: Program
    queues: Sequence[str]
    as_json: bool
    seen: tuple[int, str] = -1, ""

    @cached_property
    def steps(self) -> LoopSteps:
        from npuflow.program.loop_steps import LoopSteps

        return LoopSteps(self.program)

    def command(self, command: Command, index: int, at: int, blocks: Blocks = ()) -> None:
        """`index`: as it is printed; `at`: among all commands of its core; `blocks`: around it, with how many
        rounds of each."""
        from npuflow.cli._events import emit
        from npuflow.hw.encode import disassemble
        from npuflow.program.loop_steps import said

        nodes = self.program.meta["nodes"]
        steps = self.steps.of(command.core, at)
        if self.as_json:
            name = nodes[command.node]["name"] if command.node < len(nodes) else ""
            emit(_line(command, index, name, self.queues, steps))
            return
        text = said(steps, blocks)
        if (command.node, text) != self.seen and command.node < len(nodes):
            self.seen = command.node, text
            name, op = nodes[command.node]["name"], nodes[command.node].get("op", "?")
            typer.echo(f"; {name} ({op}){f', {text}' if text else ''}")
        typer.echo(disassemble(command, index, self.queues))

    def control(self, one: StoredCommand | str) -> None:
        """What says how others are repeated: it is of no node."""
        from npuflow.cli._events import emit
        from npuflow.hw.encode import disassemble

        self.seen = -1, ""
        if not isinstance(one, str):
            if self.as_json:
                emit(_line(one.command, one.index, "", self.queues))
            else:
                typer.echo(disassemble(one.command, one.index, self.queues))
        elif not self.as_json:
            typer.echo(f"; {one}")


def _stored(shown: _Listing, cores: Sequence[int], wanted: Collection[int] | None) -> None:
    """The commands as the file has them; of some nodes without those that repeat others."""
    from npuflow.program.loop_steps import stored_commands

    for core in cores:
        for one in stored_commands(shown.program, core):
            if not isinstance(one, str) and one.at is not None:
                if wanted is None or one.command.node in wanted:
                    shown.command(one.command, one.index, one.at, one.blocks)
            elif wanted is None:
                shown.control(one)


def _line(
    command: Command, index: int, layer: str, queues: Sequence[str], steps: Sequence[LoopStep] = ()
) -> dict[str, Any]:
    """A command as JSON has it: all fields but absent pointers."""
    from dataclasses import asdict

    from npuflow.hw.command import NONE

    waits = {queues[i]: count for i, count in enumerate(command.wait) if count}
    fields = {name: value for name, value in command.fields.items() if value != NONE}
    return {
        "event": "command", "index": index, "core": command.core, "queue": queues[command.queue],
        "opcode": command.opcode, "layer": layer, "fields": fields, "waits": waits,
        **({"loops": [asdict(one) for one in steps]} if steps else {}),
    }
