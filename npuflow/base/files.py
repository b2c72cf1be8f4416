"""File digests behind a memo of stat fingerprints: an unchanged file is read once."""

from __future__ import annotations

import os
from pathlib import Path

from npuflow.base.digest import digest_file


def file_digest(path: str | os.PathLike[str]) -> str:
    """The digest of a file's bytes."""
    return digest_file(Path(path))
