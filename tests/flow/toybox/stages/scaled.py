"""Every number, scaled."""

from __future__ import annotations

import time
from collections.abc import Iterator

from npuflow.flow.stage import Items, log, stage
from toybox.kinds import Number, Scale, Scaled


@stage(over="numbers", batch=2)
def scaled(numbers: Items[Number], scale: Scale) -> Iterator[tuple[str, Scaled]]:
    for name, number in numbers.items():
        time.sleep(scale.sleep)
        log(f"scale {name}")
        yield name, Scaled(number.value * scale.by)
