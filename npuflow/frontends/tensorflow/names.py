"""Names of a converted network: those of the model's inputs, outputs and layers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from npuflow.frontends.tflite.schema import TfliteNetwork

INPUT = "input"  # what load.py calls the inputs, with their numbers behind
WRAPPERS = ("StatefulPartitionedCall", "PartitionedCall")


def named(
    network: TfliteNetwork, inputs: Sequence[str], outputs: Sequence[str], layers: Collection[str]
) -> TfliteNetwork:
    """The network with the model's own names at its ends. What several operators were fused into has the
    name of the last one, which is the product that the others follow."""
    ends = dict(zip(network.outputs, outputs, strict=True))
    for i in network.inputs:
        ends[i] = inputs[int(network.tensors[i].name.removeprefix(INPUT))]
    taken = set(ends.values())
    tensors = []
    for i, tensor in enumerate(network.tensors):
        name = ends.get(i) or plain(tensor.name, layers)
        free, count = name, 0
        while i not in ends and free in taken:
            count += 1
            free = f"{name}.{count}"
        taken.add(free)
        tensors.append(replace(tensor, name=free))
    bodies = [
        replace(body, tensors=tuple(replace(t, name=plain(t.name, layers)) for t in body.tensors))
        for body in network.bodies
    ]
    return replace(network, tensors=tuple(tensors), bodies=tuple(bodies))


def plain(name: str, layers: Collection[str]) -> str:
    """One operator's name without the calls that it is wrapped in; Keras numbers the scopes of its layers."""
    last = next((part for part in reversed(name.split(";")) if part.strip("0123456789:")), name)
    parts = [part for part in last.split("/") if part not in WRAPPERS]
    for i, part in enumerate(parts):
        stem = re.sub(r"_\d+$", "", part)
        if part not in layers and stem in layers:
            parts[i] = stem
    return "/".join(parts) or name
