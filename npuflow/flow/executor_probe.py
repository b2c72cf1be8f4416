"""What a worker has to answer before it is given work: whether it would do the same as the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from npuflow.base.code import forget, open_memo
from npuflow.base.code_loaded import LOADED
from npuflow.flow import store_files as files
from npuflow.flow.executor_code import Installed, StatedCode, differing, edits, installed

Definitions = dict[str, str]
"""Module and definition ("npuflow.ops.relu:Relu.run") -> its digest."""


class Question(NamedTuple):
    """What a worker has to answer before it is given work."""

    root: str
    token: str
    steps: Mapping[str, StatedCode]
    libraries: Mapping[str, str]
    installed: Installed | None = None


class ProbeAnswer(NamedTuple):
    """What a worker found."""

    faults: list[str]
    """What differs there and what to do about it, in words for users."""
    differ: dict[str, Definitions]
    """Code of another digest than the driver's, by what users call it, with what it consists of there."""
    installed: Installed

    @property
    def fine(self) -> bool:
        return not self.faults and not self.differ


def ask(question: Question) -> ProbeAnswer:
    """Run on a worker: what differs here from the driver."""
    faults, differ = _installed(question.installed), dict[str, Definitions]()
    if not faults:
        faults += _code(question, differ)
    faults += _libraries(question.libraries)
    return ProbeAnswer([*faults, *_cache(Path(question.root), question.token)], differ, installed())


def _installed(wanted: Installed | None) -> list[str]:
    """Another release of npuflow, or another text of the build system: nothing else needs to be compared."""
    own = installed()
    if old := LOADED.outdated():
        return [f"{edits(old)} edited after this worker had loaded it: restart the worker"]
    if wanted is None or own[::2] == wanted[::2]:
        return []
    if own.version != wanted.version:
        theirs = f"npuflow {wanted.version}"
        return [f"it runs {own}, and the driver {theirs}: install {theirs} there"]
    return [f"the build system differs ({own}, and the driver's in {wanted.folder}): install the same there"]


def _code(question: Question, differ: dict[str, Definitions]) -> list[str]:
    """Compare the code of all steps; what differs is noted, what is not there is a fault."""
    if LOADED.edited():
        forget()  # files that were read for an earlier build, and not loaded
    open_memo(Path(question.root) / "memo")
    faults: list[str] = []
    for name, wanted in question.steps.items():
        try:
            import_module(wanted.module)
            found = differing(wanted)
        except Exception as fault:  # whatever keeps code from being found there is the answer
            text = f"the code of {name} cannot be imported ({fault}): install the driver's packages there"
            faults.append(text)
            continue
        for label, code in found.items():
            differ[label] = code.definitions
    return faults


def _libraries(wanted: Mapping[str, str]) -> list[str]:
    from importlib import metadata

    from npuflow.flow.processor import processor

    faults: list[str] = []
    for library, version in wanted.items():
        # stages of float results: the feature class that their keys state
        if library == "cpu":
            if (own := processor()) != version:
                faults.append(f"its processor ({own}) computes floats unlike the driver's ({version})")
            continue
        remedy = f"pip install {library}=={version}"
        with suppress(metadata.PackageNotFoundError):
            if (found := metadata.version(library)) != version:
                faults.append(f"it has {library} {found}, not {version}: {remedy}")
            continue
        faults.append(f"it has no {library}: {remedy}")
    return faults


def _cache(root: Path, token: str) -> list[str]:
    """Whether the driver's cache is here, and can be written."""
    probe = root / "tmp" / token
    try:
        seen = probe.read_text()
        made = files.fresh(probe.parent, token + "-answer")
        made.write_text(seen)
        made.unlink()
    except OSError as fault:
        hint = "mount the cache there at the same path, or choose another with --cache"
        return [f"it cannot use the cache {root} ({fault.strerror}): {hint}"]
    if seen != token:
        return [f"it reads another folder at {root}: mount the driver's cache there"]
    return []


def told(
    answer: ProbeAnswer, steps: Mapping[str, StatedCode], ours: Installed, edited: Collection[str]
) -> list[str]:
    """The driver's words for an answer. `edited`: sources that were edited since the driver read them."""
    texts = list(answer.faults)
    if answer.differ:
        own = _own_definitions(steps)
        parts = sorted(
            {
                name
                for there in answer.differ.values()
                for name in there
                if name in own and own[name] != there[name]
            }
        )
        labels = sorted(answer.differ)
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        first = f" ({_named(parts[0])})" if parts else ""
        what = f"the code of {', '.join(labels[:3])}{more} differs{first}"
        if edited:
            remedy = f"{edits(sorted(edited))} edited after this build had read it: run the build again"
        elif answer.installed.folder == ours.folder:
            remedy = "restart the worker, and install the same plug-in packages there"
        else:
            both = f"it runs {answer.installed}, the driver {ours}"
            remedy = f"install the same npuflow and plug-ins there ({both})"
        texts.append(f"{what}: {remedy}")
    return texts


def _named(part: str) -> str:
    """A definition as users know it; of a registry, keys hold the names of its entries."""
    return f"there are other {part[:-1]}: plug-in packages" if part.endswith("/") else part


def _own_definitions(steps: Mapping[str, StatedCode]) -> Definitions:
    """What the code of all steps consists of in this process."""
    from npuflow.base.code import definition_closure
    from npuflow.flow.executor_code import plugins_of

    found: Definitions = {}
    for one in steps.values():
        code = definition_closure(one.module, one.name)
        found.update(code.definitions)
        for closure in plugins_of(code, one.selected, one.named).values():
            found.update(closure.definitions)
    return found
