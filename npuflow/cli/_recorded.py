"""Records of builds: headline figures and what they were built from, in a file that a pipeline keeps."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npuflow.base.errors import UsageError, Where
from npuflow.cli._files import write_file
from npuflow.flow.lock import Lock, parse, text
from npuflow.flow.lock_brief import brief
from npuflow.report.gate.figures import HeadlineFigures

KIND, VERSION = "npuflow record", 1
REPORT = "report.json"
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT")
"""What forges call the commit in the environment of a job."""


@dataclass(frozen=True)
class RecordedBuild:
    """A build's figures, and its lock in brief (see `flow.lock_brief`) where it is known."""

    figures: HeadlineFigures
    lock: Lock | None = None


@dataclass(frozen=True)
class BuildRecord:
    """The builds of one file by name; of a sweep, a build for every point. `made`: the commit's date, else
    that of the record, in ISO 8601."""

    path: Path
    builds: Mapping[str, RecordedBuild]
    commit: str = ""
    made: str = ""

    def of(self, name: str, alone: bool) -> RecordedBuild | None:
        """A build by its name; where both sides are one build, that one under any name."""
        if alone and len(self.builds) == 1:
            return next(iter(self.builds.values()))
        return self.builds.get(name)


def read(path: Path) -> BuildRecord:
    """A record, a report.json, or an output folder of a build or a sweep; one error for anything else."""
    if path.is_dir():
        return _folder(path)
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    except ValueError:
        raise _unusable(path, "it is not JSON") from None
    if not isinstance(body, dict):
        raise _unusable(path, f"it holds a {type(body).__name__}, not an object")
    if body.get("kind") != KIND:
        return BuildRecord(path, {_name(path.parent): _reported(path, body)})
    return _recorded(path, body)


def records_in(folder: Path) -> list[BuildRecord]:
    """The records in a folder, in the order of their names; none where it is no folder."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(body, dict) and body.get("kind") == KIND:
            found.append(_recorded(path, body))
    return found


def _recorded(path: Path, body: Mapping[str, Any]) -> BuildRecord:
    if body.get("version") != VERSION:
        raise _unusable(path, f"it is a record of version {body.get('version')}, not {VERSION}")
    builds = body.get("builds")
    if not isinstance(builds, dict) or not builds:
        raise _unusable(path, "it records no build")
    found = {name: _build(path, name, one) for name, one in builds.items()}
    return BuildRecord(path, found, str(body.get("commit", "")), str(body.get("made", "")))


def write(path: Path, builds: Mapping[str, RecordedBuild]) -> None:
    """Keep builds with the commit that they are of."""
    commit, made = _commit()
    body = {
        "kind": KIND, "version": VERSION, "commit": commit, "made": made,
        "builds": {name: {"figures": one.figures.as_dict(), **_lock(one)} for name, one in builds.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(body, indent=1, sort_keys=True) + "\n")


def reported(report: Path) -> HeadlineFigures:
    """The figures of a report.json."""
    return _figures(report, json.loads(report.read_text(encoding="utf-8")))


def _lock(one: RecordedBuild) -> dict[str, str]:
    return {} if one.lock is None else {"lock": text(one.lock)}


def _build(path: Path, name: str, body: Any) -> RecordedBuild:
    figures = HeadlineFigures.of(body.get("figures")) if isinstance(body, dict) else None
    if figures is None:
        raise _unusable(path, f'the figures of "{name}" are malformed')
    lock = body.get("lock")
    return RecordedBuild(figures, parse(lock, path.name) if isinstance(lock, str) else None)


def _folder(path: Path) -> BuildRecord:
    """The builds whose reports lie in a folder, in the folders in it, or in those of its sweep."""
    places = sorted({*path.glob(REPORT), *path.glob(f"*/{REPORT}"), *path.glob(f"sweep/*/{REPORT}")})
    if not places:
        raise _unusable(path, f"there is no {REPORT} in it")
    builds = {}
    for report in places:
        try:
            builds[_name(report.parent)] = _reported(report, json.loads(report.read_text(encoding="utf-8")))
        except ValueError:
            raise _unusable(report, "it is not JSON") from None
    return BuildRecord(path, builds)


def _name(folder: Path) -> str:
    """What a build is called whose output folder this is."""
    return next((lock.stem for lock in locks_in(folder)), folder.absolute().name)


def locks_in(folder: Path) -> list[Path]:
    """The locks of builds in a folder, but for those of the builds before."""
    return [p for p in sorted(folder.glob("*.lock")) if not p.name.endswith(".previous.lock")]


def _reported(path: Path, body: Any) -> RecordedBuild:
    """A report with the lock beside it, if there is one."""
    locks = locks_in(path.parent)
    lock = brief(parse(locks[0].read_text(encoding="utf-8"), str(locks[0]))) if len(locks) == 1 else None
    return RecordedBuild(_figures(path, body), lock)


def _figures(path: Path, body: Any) -> HeadlineFigures:
    figures = HeadlineFigures.of(body.get("figures")) if isinstance(body, dict) else None
    if figures is None:
        raise _unusable(path, 'it has no "figures": another tool wrote it, or an older npuflow')
    return figures


def _unusable(path: Path, because: str) -> UsageError:
    return UsageError(
        f'"{path}" is no record of a build', where=Where(file=str(path)), because=because,
        hint="a file of --record, a report.json, or the output folder of a build", code="NF-USAGE-350",
    )


def _commit() -> tuple[str, str]:
    """The commit that is built and its date; without a repository the time of day."""
    def git(*words: str) -> str:
        try:
            ran = subprocess.run(["git", *words], capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return ran.stdout.strip()

    commit = next((os.environ[name] for name in COMMITS if os.environ.get(name)), "")
    commit = commit or git("rev-parse", "HEAD")
    date = git("show", "-s", "--format=%cI", commit) if commit else ""
    now = datetime.fromisoformat(date) if date else datetime.now(UTC)
    return commit, now.astimezone(UTC).isoformat(timespec="seconds")
