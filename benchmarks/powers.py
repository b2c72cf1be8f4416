"""Default builds for a target of power-of-two scales before and after a change, network by network.

Rows of two trees, each of `npuflow zoo` with the same recipes:

    npuflow zoo recipes/zoo --only hand,person,text-lines-6,things --targets dpuczdx8g-b4096 \\
        --json > rows.jsonl
    python benchmarks/powers.py BEFORE.jsonl AFTER.jsonl [--study]

**score**: of the evaluation data, which no choice of a build sees; **dB**: of the first output on these data,
and of the worst output on samples that verify.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study import write


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--study", action="store_true")
    asked = parser.parse_args()
    lines = list(table(rows(asked.before), rows(asked.after)))
    print("\n".join(lines))
    if asked.study:
        title = "# Default builds for power-of-two scales, before and after channels are scaled between clips"
        _, _, about = (__doc__ or "").partition("\n")
        write(__file__, "\n".join([title, about, *lines, ""]))


def rows(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """By network and target, those that were built."""
    found = (json.loads(line) for line in path.read_text().splitlines() if line.startswith("{"))
    return {(r["network"], r["target"]): r for r in found if r.get("status") == "built"}


def table(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> Iterator[str]:
    yield "| network | target | score | float | before | after | dB | worst output, dB |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for key in sorted(before.keys() & after.keys()):
        old, new = before[key], after[key]
        was, now = old["figures"], new["figures"]
        pairs = [f"{was[k]:.1f} -> {now[k]:.1f}" for k in ("evaluate.sqnr_db", "verdict.sqnr_db")]
        cells = (*key, new["score_name"], *(f"{v:.3f}" for v in (new["float"], old["score"], new["score"])))
        yield f"| {' | '.join((*cells, *pairs))} |"


if __name__ == "__main__":
    main()
