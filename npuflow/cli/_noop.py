"""The fast way out of a build that has nothing to do."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.flow.memo import Memo
from npuflow.flow.recipe_cache import cache_folder

if TYPE_CHECKING:
    from npuflow.flow.memo_write import Built

_PLACE = "@SECONDS@"


def nothing_to_do(args: Sequence[str]) -> bool:
    """Whether a memo proves that these recipes are built; prints what an ordinary build would, if so."""
    begun = time.perf_counter()
    memo = memo_of(args)
    if memo is None or not memo.holds():
        return False
    seconds = time.perf_counter() - begun
    sys.stdout.write(memo.payload.replace(f'"{_PLACE}"', f"{seconds:.6f}").replace(_PLACE, f"{seconds:.2f} s"))
    return True


def memo_of(args: Sequence[str]) -> Memo | None:
    """Where the memo of a `build` command line is, if it has one."""
    recipes = [arg for arg in args if arg.endswith(".toml") and not arg.startswith("-")]
    if not recipes or any(arg in ("--force", "-n", "--dry-run", "--help") or arg[:8] == "--force=" for arg in args):
        return None
    flag: Path | None = None
    for at, arg in enumerate(args):
        if arg == "--cache" and at + 1 < len(args):
            flag = Path(args[at + 1])
        elif arg.startswith("--cache="):
            flag = Path(arg.partition("=")[2])
    return Memo(cache_folder(flag, None, Path(recipes[0]).parent), args)


def remember(args: Sequence[str], begun: int, built: Sequence[Built], texts: Sequence[Any]) -> None:
    """Write the memo of a successful build. `texts`: what it would print if everything had been a hit."""
    memo = memo_of(args)
    if memo is None:
        return
    from npuflow.flow import memo_write

    lines = [text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) + "\n" for text in texts]
    memo_write.remember(memo, begun, built, "".join(lines))


def as_hits(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The JSON lines of a build as the next one would print them: nothing runs, nothing is repaired."""
    lines = []
    for event in events:
        if event["event"] == "step":
            lines.append({**event, "status": "hit", "reason": event["reason"] if event["key"] is None else ""})
        elif event["event"] == "summary":
            hit = event["hit"] + event["ran"]
            lines.append({**event, "hit": hit, "ran": 0, "seconds": _PLACE})
    return lines
