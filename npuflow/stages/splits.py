"""Which calibration samples fit, which choose and which verify."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.input.data import splits as dividing
from npuflow.stages.samples import Sample


@dataclass(frozen=True)
class Splits(Artifact):
    """Names of samples. Those that could not be read are among those that fit, last, to be reported there."""

    fit: tuple[str, ...]
    choose: tuple[str, ...]
    verify: tuple[str, ...]

    def save(self, folder: Writer) -> None:
        folder.json("names", {"fit": self.fit, "choose": self.choose, "verify": self.verify})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(**{part: tuple(names) for part, names in folder.json("names").items()})

    def summary(self) -> dict[str, Any]:
        return {"fit": len(self.fit), "choose": len(self.choose), "verify": len(self.verify)}


@stage(quick=True, minor=True)
def splits(samples: Items[Sample]) -> Splits:
    """Divide the samples by the digests of what they hold. Steps of one sequence stay together."""
    contents, clips, broken = dict[str, str](), dict[str, str](), list[str]()
    for name, sample in samples.items():
        if sample.content.broken:
            broken.append(name)
            continue
        contents[name] = dividing.identity(sample.content)
        if sample.content.clip:
            clips[name] = sample.content.clip
    found = dividing.divided(contents, clips)
    log(f"{len(found.fit)} fit, {len(found.choose)} choose, {len(found.verify)} verify")
    return Splits((*found.fit, *broken), found.choose, found.verify)
