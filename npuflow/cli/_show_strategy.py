"""What a build chose for every layer, as a part of a recipe."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npuflow.cli._show_verdict import loaded, opened


def as_json(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """The same tables as JSON."""
    return json.dumps(tomllib.loads(text(path, sets, cache)), indent=1) + "\n"


def text(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """TOML that builds the same without any search."""
    from npuflow.quantise.config import Quantize
    from npuflow.stages.parse import Parsed
    from npuflow.stages.precision import Precision
    from npuflow.stages.quantize import Quantized
    from npuflow.stages.thresholds import Thresholds
    from npuflow.tune.precision.strategy import strategy_text
    from npuflow.tune.rounding.config import RoundTable

    wired, kept = opened(path, sets, cache)
    chosen = loaded(wired, kept, "precision", Precision) if "precision" in wired else Precision()
    step = wired["quantize"]
    ranges = loaded(wired, kept, str(step.inputs["thresholds"].step), Thresholds).ranges
    parsed = loaded(wired, kept, str(step.inputs["graph"].step), Parsed)
    made = loaded(wired, kept, "quantize", Quantized)
    own = next(one for one in step.configs.values() if isinstance(one, Quantize))
    whole = replace(own, overrides=(*chosen.overrides, *own.overrides))
    tables = wired["rounded.items"].configs.values() if "rounded.items" in wired else ()
    rounding = next((one for one in tables if isinstance(one, RoundTable)), RoundTable(method="nearest"))
    return strategy_text(parsed.graph, made.graph, whole, {**ranges, **chosen.ranges}, rounding)
