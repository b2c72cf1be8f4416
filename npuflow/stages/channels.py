"""The lowest and highest value of every channel in all samples."""

from __future__ import annotations

from typing import Any

from npuflow.engine.calibrate.channels import merged
from npuflow.flow.stage import Items, stage
from npuflow.stages.channel_extrema import ChannelExtrema


class ChannelRanges(ChannelExtrema):
    """[2, channels] by value id."""

    def summary(self) -> dict[str, Any]:
        return {"tensors": len(self.content), "channels": sum(a.shape[1] for a in self.content.values())}


@stage(when="channels")
def channels(extrema: Items[ChannelExtrema]) -> ChannelRanges:
    """The hull of all samples'."""
    return ChannelRanges(merged(one.content for one in extrema.values()))
