"""`npuflow` and `python -m npuflow`: the command line as a process."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

from npuflow.cli import main


def run() -> NoReturn:
    """Run one command, and end the process with its exit code.

    What ends at exit ends as usual. Then the process leaves at once: to take a million objects apart, one by
    one, takes the interpreter one to two seconds behind a build, and the system frees them anyway.
    """
    code = main()
    try:
        if (threads := sys.modules.get("threading")) is not None:
            threads._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):      # a closed pipe, which the interpreter deals with
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    run()
