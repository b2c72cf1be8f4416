"""The processor's feature class: float results of equal code may differ between classes, not within one."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_FEATURES = (
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimd",
    "asimddp",
    "sve",
)


@functools.cache
def processor() -> str:
    """Architecture and the vector extensions that numeric libraries choose their kernels by."""
    flags: set[str] = set()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    except OSError:
        pass  # not Linux: the architecture alone
    return "-".join([platform.machine(), *(feature for feature in _FEATURES if feature in flags)])
