"""Random graphs in floats, blocks and integers mixed: simulator and reference, bit for bit.

python -m tests.sim.float_campaign OUT.jsonl [--graphs 5000] [--first 1000]

OUT gets a line for every fifty seeds, with counts by operator and type and every seed that failed. What has a
line without a failure is not run again. At the end the counts of all lines are printed as JSON; the status is
1 where a graph failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.networks.random_floats import reported, subject
from tests.sim.campaigns import campaign

SHARD = 50


def shard(first: int, count: int) -> dict[str, Any]:
    """One line: counts, and what failed, by seed."""
    total: Counter[str] = Counter()
    failed: dict[int, str] = {}
    for seed in range(first, first + count):
        try:
            total += campaign([seed], subject, 2, reported)
        except Exception as error:
            traceback.print_exc()
            failed[seed] = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
    return {"first": first, "graphs": count, "counts": dict(sorted(total.items())), "failed": failed}


def lines(path: Path) -> dict[int, Mapping[str, Any]]:
    """By first seed, the newest line of each."""
    text = path.read_text().splitlines() if path.exists() else []
    return {line["first"]: line for line in map(json.loads, text)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--graphs", type=int, default=5000)
    parser.add_argument("--first", type=int, default=1000)
    args = parser.parse_args()
    end = args.first + args.graphs
    for first in range(args.first, end, SHARD):
        count, known = min(SHARD, end - first), lines(args.out).get(first)
        if known is not None and known["graphs"] == count and not known["failed"]:
            continue
        with args.out.open("a") as file:
            file.write(json.dumps(shard(first, count)) + "\n")
    wanted = [line for first, line in lines(args.out).items() if args.first <= first < end]
    total = sum((Counter(line["counts"]) for line in wanted), Counter[str]())
    failed = {seed: text for line in wanted for seed, text in line["failed"].items()}
    graphs = sum(line["graphs"] for line in wanted)
    print(json.dumps({"graphs": graphs, "failed": failed, "counts": dict(sorted(total.items()))}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
