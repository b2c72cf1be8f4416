"""The commands of a program as text, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import JsonOption, ProgramArgument

if TYPE_CHECKING:
    from npuflow.hw.command import Command


def disasm(
    program: ProgramArgument,
    node: Annotated[
        str | None, typer.Option("--node", help="Only the commands of this node (name or index).")
    ] = None,
    core: Annotated[int | None, typer.Option("--core", help="Only this core.")] = None,
    order: Annotated[
        bool, typer.Option("--order", help="In an order that may run, all cores together.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a program's commands: index, core, queue, node, opcode, fields that are not 0, waits."""
    from npuflow.cli._events import emit
    from npuflow.hw.encode import disassemble
    from npuflow.hw.target import queue_names
    from npuflow.program.order import order_of
    from npuflow.program.packing.package import load_network

    loaded = load_network(program)
    names = [n["name"] for n in loaded.meta["nodes"]]
    if node is not None and node not in names and not (node.isdigit() and int(node) < len(names)):
        raise UsageError(
            f'the program has no node "{node}"', hint="npuflow profile lists them", code="NF-USAGE-039",
        )
    wanted = None if node is None else {i for i, n in enumerate(names) if n == node} or {int(node)}
    queues = queue_names(loaded.target.dma.channels)
    streams = ((c, i) for c, s in enumerate(loaded.decoded) for i in range(len(s)))
    seen = None
    for c, i in order_of(loaded).sequence if order else streams:
        command = loaded.decoded[c][i]
        if (core is not None and c != core) or (wanted is not None and command.node not in wanted):
            continue
        name = names[command.node] if command.node < len(names) else ""
        if as_json:
            emit(_line(command, i, name, queues))
            continue
        if command.node != seen and command.node < len(names):
            seen = command.node
            typer.echo(f"; {names[seen]} ({loaded.meta['nodes'][seen].get('op', '?')})")
        typer.echo(disassemble(command, i, queues))


def _line(command: Command, index: int, layer: str, queues: Sequence[str]) -> dict[str, Any]:
    """A command as JSON has it: all fields but absent pointers."""
    from npuflow.hw.command import NONE

    waits = {queues[i]: count for i, count in enumerate(command.wait) if count}
    fields = {name: value for name, value in command.fields.items() if value != NONE}
    return {
        "event": "command", "index": index, "core": command.core, "queue": queues[command.queue],
        "opcode": command.opcode, "layer": layer, "fields": fields, "waits": waits,
    }
