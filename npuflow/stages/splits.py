"""Which calibration samples fit, which choose and which verify."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from npuflow.base.digest import digest, digest_array
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.input.data.config import Data
from npuflow.input.data.config import InputSample as Content
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples as read
from npuflow.input.data.splits import divided
from npuflow.input.text.model import TextModel
from npuflow.stages.labelled import identities
from npuflow.stages.samples import Sample


@dataclass(frozen=True)
class Splits(Artifact, names=...):
    """Names of samples, and of sequences, whose steps stay together."""

    fit: tuple[str, ...]
    choose: tuple[str, ...]
    verify: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        return {"fit": len(self.fit), "choose": len(self.choose), "verify": len(self.verify)}


def listing(data: Data, model: TextModel | None = None) -> Listing:
    """The samples as they lie in their files, without the steps of [data]."""
    return {
        name: Item(tuple(one.files), {key: v for key, v in one.detail.items() if key != "steps"})
        for name, one in found(data, model).items()
    }


@stage(files=listing, quick=True, minor=True)
def splits(samples: Items[Sample], files: Files) -> Splits:
    """Divide the samples that could be read by digests of what they hold, however they are prepared, called
    and ordered."""
    whole = {one.content.clip or name for name, one in samples.items() if not one.content.broken}
    parts = divided({name: known for name, known in _identities(files) if name in whole})
    log(f"{len(parts.fit)} fit, {len(parts.choose)} choose, {len(parts.verify)} verify")
    return Splits(*parts)


def _identities(files: Files) -> Iterator[tuple[str, str]]:
    """By content: of files that are one sample each their bytes, else the arrays of every row."""
    rows = {name: item for name, item in files.items() if item.detail.get("row") is not None}
    for name, one in read({name: (item.files, item.detail) for name, item in rows.items()}):
        arrays = {key: digest_array(array) for key, array in one.arrays.items()}
        yield name, digest(arrays or name)
    yield from identities((name, one.files, one.detail) for name, one in files.items() if name not in rows)


def is_first(name: str) -> bool:
    """Whether the step of this name is the first of its sequence."""
    return not name.rpartition("/")[2].strip("0")


def part_of(samples: Items[Sample], names: tuple[str, ...]) -> Iterator[tuple[str, Content]]:
    """The samples of a part, in the order of `names`. Of sequences first steps and others by turns, both as
    they fall, so that they are of many sequences: whoever looks at a few samples sees both kinds."""
    rank = {name: i for i, name in enumerate(names)}
    mine = [(name, one.content) for name, one in samples.items() if (one.content.clip or name) in rank]
    steps = sorted((pair for pair in mine if pair[1].clip), key=lambda pair: digest(pair[0]))
    firsts = [pair for pair in steps if is_first(pair[0])]
    others = [pair for pair in steps if not is_first(pair[0])]
    yield from (pair for turn in zip_longest(firsts, others) for pair in turn if pair is not None)
    yield from sorted((pair for pair in mine if not pair[1].clip), key=lambda pair: rank[pair[0]])
