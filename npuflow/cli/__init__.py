"""The command line: one verb a file; the only place that prints or exits.

Noun: `Verb`.
Public: `compile`, `Build`, `load_build`, `main`.
Does not know: how stages compute.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from npuflow.flow.interrupt import check, heeding

STOPPED = 130
"""The exit code of an interrupted command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 the build failed, 2 the user's input is wrong, 3 a figure
    is worse than the baseline allows, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with heeding():
            if args[:1] == ["build"]:
                # A build that has nothing to do must not wait for the imports that parse its options.
                from npuflow.cli._noop import nothing_to_do

                if nothing_to_do(args[1:]):
                    return 0
            from npuflow.cli._streams import own_output

            if argv is None:
                own_output()
            from npuflow.cli._app import run

            check()
            return run(args)
    except KeyboardInterrupt:
        return interrupted()


def interrupted(
    text: str = "interrupted; every finished step is kept; run the same command again to resume"
) -> int:
    """Say that the user stopped the command, what is kept and how to go on; its exit code."""
    sys.stderr.write(f"{text}\n")
    return STOPPED
