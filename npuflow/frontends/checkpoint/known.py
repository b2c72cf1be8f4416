"""The family of a checkpoint; of an unknown one the nearest, and what differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from npuflow.base.errors import ModelError, Where, nearest
from npuflow.checkpoints import Checkpoint
from npuflow.frontends.checkpoint.families import FAMILIES, Family

SHOWN = 3
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def family(checkpoint: Checkpoint) -> Family:
    """The family that the checkpoint says it is of."""
    wanted = checkpoint.family
    every: dict[str, Family] = {name: made() for name, made in FAMILIES.every().items()}
    for one in every.values():
        if wanted in stated_names(one, checkpoint):
            return one
    raise unknown(checkpoint, every)


def stated_names(one: Family, checkpoint: Checkpoint) -> tuple[str, ...]:
    """What checkpoints of this form call the family."""
    return one.architectures if checkpoint.form == "gguf" else one.models


def names(one: Family, checkpoint: Checkpoint) -> Mapping[str, str]:
    """Names of tensors by role; without their first part where a folder holds the inner model alone."""
    if checkpoint.form == "gguf":
        return one.gguf
    first = one.folder["embedding"].partition(".")[0] + "."
    if one.folder["embedding"] in checkpoint.tensors:
        return one.folder
    inner = {role: name.removeprefix(first) for role, name in one.folder.items()}
    return inner if inner["embedding"] in checkpoint.tensors else one.folder


def unknown(checkpoint: Checkpoint, every: Mapping[str, Family]) -> ModelError:
    """By its name, else by the names of its tensors."""
    have = patterns(checkpoint.tensors)
    known = [name for one in every.values() for name in stated_names(one, checkpoint)]
    lacks: dict[str, tuple[set[str], set[str]]] = {}
    for name, one in every.items():
        own = {text.format("N") for text in names(one, checkpoint).values()}
        more = {n for n in have - own if not own_bias(n, own)}
        lacks[name] = own - have - {own_head(one, checkpoint)}, more
    also = nearest(checkpoint.family, known)

    def differs(name: str) -> tuple[int, bool]:
        return sum(map(len, lacks[name])), also not in stated_names(every[name], checkpoint)

    closest = min(lacks, key=differs)
    absent, more = lacks[closest]
    said = [f"it lacks {listed(absent)}"] if absent else []
    said += [f"it has {listed(more)} too"] if more else []
    hint = f'"{also}"' if also else f"families are {', '.join(sorted(set(known)))}; export others to ONNX"
    return ModelError(
        f'the checkpoint is of the family "{checkpoint.family}", which npuflow does not read',
        because=f'the nearest is "{closest}": '
        + ("; ".join(said) or "its tensors have the same names, and it may compute something else"),
        where=Where(file=checkpoint.config.file), hint=hint, code="NF-MODEL-454",
    )


def patterns(given: Iterable[str]) -> set[str]:
    """Names of tensors with N for the layer's number."""
    return {NUMBER.sub("N", name) for name in given}


def own_head(one: Family, checkpoint: Checkpoint) -> str:
    return names(one, checkpoint)["head"]


def own_bias(name: str, own: set[str]) -> bool:
    return name.endswith(".bias") and f"{name.removesuffix('bias')}weight" in own


def listed(found: set[str]) -> str:
    rows = sorted(found)
    return ", ".join(rows[:SHOWN]) + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")
