"""`python -m npuflow.apps.olive FILE`: writes the file that `olive run --package-config FILE` takes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from npuflow.apps.olive import package_config


def main() -> None:
    """Ends with 2 and one line where the file cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m npuflow.apps.olive", description=__doc__)
    parser.add_argument("file", type=Path, help="of olive run --package-config")
    file: Path = parser.parse_args().file
    try:
        file.write_text(json.dumps(package_config(), indent=2) + "\n")
    except OSError as fault:
        parser.error(f"{file} cannot be written: {fault.strerror}")


if __name__ == "__main__":
    main()
