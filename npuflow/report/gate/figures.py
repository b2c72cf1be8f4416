"""The headline figures of a build, exact, as `report.json` and records hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

MEANING = {
    "score": "the metric's first figure on the evaluation data; null without [evaluate]",
    "score_name": "what the metric calls it",
    "score_better": "which scores are, where those are lower ones: lower",
    "samples": "evaluation samples behind it",
    "sqnr_db": "dB of the worst output on held-out calibration samples",
    "cycles": "of an inference, the host's among them",
    "external_bytes": "moved over the external bus by an inference",
    "program_bytes": "size of the .npu file",
    "energy_uj": "microjoules of an inference; null where the target has no [energy]",
}
"""Of `figures` in report.json and in records."""
TEXTS = ("score_name", "score_better")


@dataclass(frozen=True)
class HeadlineFigures:
    """What a gate compares. None: not measured. `MEANING` says what the fields are."""

    score: float | None = None
    score_name: str = ""
    score_better: str = "higher"
    samples: int = 0
    sqnr_db: float | None = None
    cycles: float | None = None
    external_bytes: float | None = None
    program_bytes: float | None = None
    energy_uj: float | None = None

    def as_dict(self) -> dict[str, Any]:
        held = asdict(self)
        if self.score_better == "higher":
            held.pop("score_better")
        return held

    @classmethod
    def of(cls, body: Any) -> Self | None:
        """From JSON; None where it is no table of these figures."""
        if not isinstance(body, Mapping) or not {"cycles", "external_bytes"} <= set(body):
            return None
        kept = {name: body[name] for name in MEANING if body.get(name) is not None}
        texts = [isinstance(value, str) for name, value in kept.items() if name in TEXTS]
        numbers = [type(value) in (int, float) for name, value in kept.items() if name not in TEXTS]
        return cls(**kept) if all(texts) and all(numbers) else None

    @property
    def share(self) -> bool:
        """Whether the score is a fraction, whose drop is stated in percentage points."""
        fraction = self.score is not None and -1.0 <= self.score <= 1.0
        return fraction and not self.decibels and self.score_better == "higher"

    @property
    def decibels(self) -> bool:
        return "db" in self.score_name.lower().split("_") or self.score_name.lower() == "psnr"


def first_score(figures: Mapping[str, float]) -> tuple[str, float | None]:
    """The figure of a metric that is the one to watch."""
    return next(iter(figures.items()), ("", None))


def worst(levels: Sequence[float]) -> float | None:
    """The least of the outputs' decibels."""
    return min(levels, default=None)
