"""Names of a converted network: those of the model's inputs, outputs and layers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

INPUT = "input"  # what load.py calls the inputs, with their numbers behind
READS = "/ReadVariableOp"
WRAPPERS = ("StatefulPartitionedCall", "PartitionedCall")


def ends_of(
    names: Sequence[str],
    fed: Sequence[int],
    given: Sequence[int],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> dict[int, str]:
    """The model's own names of the tensors `fed` and `given`."""
    ends = {int(i): name for i, name in zip(given, outputs, strict=True)}
    return ends | {int(i): inputs[int(names[i].removeprefix(INPUT))] for i in fed}


def named(names: Sequence[str], ends: Mapping[int, str], layers: Collection[str]) -> list[str]:
    """Names of tensors, each once. What several operators were fused into has the name of the last one, which
    is the product that the others follow."""
    taken, found = set(ends.values()), []
    for i, old in enumerate(names):
        name = ends.get(i) or plain(old, layers)
        free, count = name, 0
        while i not in ends and free in taken:
            count += 1
            free = f"{name}.{count}"
        taken.add(free)
        found.append(free)
    return found


def plain(name: str, layers: Collection[str]) -> str:
    """One operator's name without the calls that it is wrapped in; Keras numbers the scopes of its layers."""
    operators = [part for part in name.split(";") if part.strip("0123456789:")]
    # an old loader's graph has the names of what reads a weight, too: they name no operator
    operators = [part for part in operators if READS not in part] or operators
    last = operators[-1] if operators else name
    parts = [part for part in last.split("/") if part not in WRAPPERS]
    for i, part in enumerate(parts):
        stem = re.sub(r"_\d+$", "", part)
        if part not in layers and stem in layers:
            parts[i] = stem
    return "/".join(parts) or name
