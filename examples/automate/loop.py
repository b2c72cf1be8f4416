"""Builds a recipe and takes the fixes that were measured until its outputs are close to the float model's.

python3 loop.py RECIPE [--set KEY=VALUE ...]; it needs the command npuflow and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROUNDS = 4


def npuflow(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a command and its lines; what is for people goes to the screen."""
    done = subprocess.run(["npuflow", *words, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def toml(value: Any) -> str:
    """A value as --set takes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def leaves(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{above}{name}"
        found |= leaves(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return found


def write(recipe: Path, chosen: dict[str, Any]) -> None:
    """A recipe beside the given one, with what was taken."""
    if not chosen:
        return
    fixed = recipe.with_name(f"{recipe.stem}-fixed.toml")
    rows = [f"{key} = {toml(value)}" for key, value in chosen.items()]
    fixed.write_text("\n".join([f'extends = "{recipe.name}"', *rows]) + "\n")
    print(f"wrote {fixed}: {', '.join(chosen)}")


def main(recipe: str, given: list[str]) -> int:
    chosen: dict[str, Any] = {}
    for number in range(1, ROUNDS + 1):
        sets = [f"--set={key}={toml(value)}" for key, value in chosen.items()]
        words = [recipe, *given, *sets]
        code, lines = npuflow("build", *words)
        errors = [line for line in lines if line["event"] == "error"]
        for error in errors:
            _, (about,) = npuflow("explain", error["code"])
            print(f"{error['code']}: {error['message']}; {error.get('hint') or about['area']}")
        if code:
            return code
        summary = lines[-1]
        print(f"build {number}: {summary['verdict']}")
        if summary["verdict_ok"] is not False:
            write(Path(recipe), chosen)
            return 0
        _, (verdict,) = npuflow("show", "verdict", *words)
        if not verdict["fixes"]:
            print(f"nothing that was tried helps: {verdict['hint']}")
            return 1
        best = verdict["fixes"][0]
        print(f"fix {number}: {best['line']}")
        _, (now,) = npuflow("show", "recipe", *words)
        own = leaves(now["tables"])
        for key, value in leaves(tomllib.loads(best["toml"])).items():
            chosen[key] = [*own.get(key, []), *value] if isinstance(value, list) else value
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
