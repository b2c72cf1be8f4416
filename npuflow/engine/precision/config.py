"""The [precision] table: which widths are widened, by which strategy, until which budget holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Config, Range
from npuflow.strategies import STRATEGIES, Budget


@dataclass(frozen=True)
class Precision(Config):
    """Bit widths by need, on held-out calibration samples. Overrides of [quantize]
    stay as they are written."""

    strategy: Annotated[str, STRATEGIES] = "auto"
    """Who chooses the widths; "none" keeps those of [quantize]."""
    sqnr_db: Annotated[float, Range(0, 120)] = 20.0
    """What every output must reach: over all held-out samples, and on four of five of them."""
    agreement: Annotated[float, Range(0, 1)] = 0.99
    """Or the share of equal answers that it must reach: arg-max after Softmax, mask after Sigmoid."""
    state_db: Annotated[float, Range(0, 120)] = 30.0
    """The same of networks that feed back: with a state that the next run takes (an output of the
    type of an input that it depends on, beside others), or a layer that takes its own results (LSTM,
    GRU, RNN). Errors add up there."""

    @property
    def budget(self) -> Budget:
        return Budget(self.sqnr_db, self.agreement)


@dataclass(frozen=True)
class Probing(Config, table="precision"):
    """The samples that measure. Independent of the budget: another budget measures no tensor again."""

    samples: Annotated[int, Range(2, None)] = 64
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 32
    """How many of these only judge."""
    probes: Annotated[int, Range(1, None)] = 4
    """Of the held-out samples, how many measure the noise of each tensor and weight alone."""
