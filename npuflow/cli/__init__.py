"""The command line: one verb per file; the only place that prints or exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 done, 1 the build failed, 2 the user's
    input is wrong, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if args[:1] == ["build"]:
            # A build that has nothing to do must not wait for the imports that parse its options.
            from npuflow.cli._noop import nothing_to_do

            if nothing_to_do(args[1:]):
                return 0
        from npuflow.cli._streams import own_output
        from npuflow.flow.interrupt import heeding

        if argv is None:
            own_output()

        with heeding():
            from npuflow.cli._app import run

            return run(args)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished steps are kept, run the same command to resume\n")
        return 130
