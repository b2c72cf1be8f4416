"""What libraries print does not mix with what a command writes."""

from __future__ import annotations

import subprocess
import sys

WRITES = """
import os
from npuflow.cli._streams import own_output
own_output()
os.write(1, b"a solver says something\\n")
import logging, distributed
logging.getLogger("distributed.batched").info("Batched Comm Closed")
print("ours")
"""


def test_only_the_command_writes_to_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", WRITES], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ours\n", "a solver says something\n")
