"""No cyclic garbage collection for a while: a search and a code generator make millions of
small objects, and hardly a cycle.

The collector would go through all of them again and again: a search of ResNet-50 takes 1.5 times as long with
it, the code generator 1.4 times.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
