"""The page of a script under docs/studies: NNNN-NAME.md, with the commit that its figures were made at."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "docs" / "studies"
BELOW = "<!-- The script writes what is below. -->\n"     # above it, where a page has it, is text by hand


def page(script: str) -> Path:
    """Where the study of a script is, or the next number for one that has none."""
    name, known = Path(script).stem.replace("_", "-"), sorted(STUDIES.glob("[0-9]*.md"))
    found = [path for path in known if path.stem[5:] == name]
    last = int(known[-1].name[:4]) if known else 0
    return found[0] if found else STUDIES / f"{last + 1:04d}-{name}.md"


def write(script: str, text: str) -> None:
    """Replace the study: `text` begins with its title; a line with the commit is put below. On a page with
    the line `BELOW` the title and what stands above that line stay, but for the line with the commit."""
    title, _, rest = text.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"the study of {script} has no title")
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    made = f"Made at commit {commit} on {date.today().isoformat()} by `benchmarks/{Path(script).name}`."
    place = page(script)
    above, line, _ = place.read_text().partition(BELOW) if place.exists() else ("", "", "")
    if line:
        title, _, own = above.split("\n\n", 2)
        rest = f"{own}{line}\n{rest.lstrip()}"
    place.write_text(f"{title}\n\n{made}\n\n{rest.lstrip()}")
