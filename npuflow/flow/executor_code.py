"""Whether a process runs the code that the driver's keys state."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from platform import node
from typing import TYPE_CHECKING, Any, NamedTuple

import npuflow
from npuflow.base.code import Closure, definition_closure
from npuflow.base.code_loaded import LOADED
from npuflow.base.digest import digest, digest_file
from npuflow.base.errors import BuildError
from npuflow.flow.keys import Bound, Plugin, selected_code, split, used_code

if TYPE_CHECKING:
    from npuflow.flow.keys import Step


class StatedCode(NamedTuple):
    """The code of a step by digest, with what another process needs to compute the same digests."""

    module: str
    name: str
    """The stage's function."""
    code: str
    selected: tuple[Plugin, ...]
    """The plug-ins that the step's tables name."""
    named: frozenset[Plugin]
    """Those that its inputs name, as far as they are known."""
    plugins: Mapping[str, str]
    """Label ("ops/relu") -> digest of the methods that the step may call."""

    def with_plugins(self, plugins: Mapping[str, str]) -> StatedCode:
        """Of an item that names more plug-ins: those, as its key holds them."""
        named = self.named.union(split(label) for label in plugins)
        return self._replace(named=named, plugins=plugins)


class Installed(NamedTuple):
    """The npuflow of a process."""

    version: str
    folder: str
    system: str
    """A digest of the build system's own sources, which no key holds."""

    def __str__(self) -> str:
        return f"npuflow {self.version} in {self.folder}"


@functools.cache
def installed() -> Installed:
    """The npuflow of this process, as it was when this was first asked."""
    folder = Path(npuflow.__file__).parent
    sources = sorted([*folder.glob("base/*.py"), *folder.glob("flow/*.py")])
    system = digest([f"{path.parent.name}/{path.name} {digest_file(path)}" for path in sources])
    return Installed(npuflow.__version__, str(folder), system)


def stated(step: Step, bound: Bound | None = None) -> StatedCode:
    """The code of a step: as its key states it, or what is known of it before its inputs are."""
    function = step.stage.function
    selected = tuple(split(label) for label in step.selected)
    named = frozenset[Plugin]() if bound is None else bound.named
    if bound is not None:
        digests = bound.shared.get("plugins", {})
    else:
        digests = {label: one.digest for label, one in plugins_of(step.code, selected, ()).items()}
    top = function.__qualname__.partition(".")[0]
    return StatedCode(function.__module__, top, step.code.digest, selected, named, digests)


def plugins_of(code: Closure, selected: Collection[Plugin], named: Collection[Plugin]) -> dict[str, Closure]:
    """What the key of a step holds of plug-ins."""
    chosen = selected_code(selected, code)
    return {**used_code(named, (code, *chosen.values())), **chosen}


def differing(wanted: StatedCode) -> dict[str, Closure]:
    """Of a step's code, what this process has otherwise, by what users call it ("plug-in ops/relu").

    Raises whatever keeps the code from being found here.
    """
    code = definition_closure(wanted.module, wanted.name)
    if code.digest != wanted.code:
        return {f"stage {wanted.module.rpartition('.')[2]}": code}
    found = plugins_of(code, wanted.selected, wanted.named)
    return {
        f"plug-in {label}": found[label]
        for label, one in wanted.plugins.items()
        if label not in found or found[label].digest != one
    }


def here() -> str:
    """A name for this process among those of all machines."""
    return f"{node()}/{os.getpid()}"


class OtherCode(Exception):
    """This process must not store what it makes; the argument says why, in words for users."""


_AGREED: set[tuple[Any, ...]] = set()


def make_sure(step: str, several: Iterable[StatedCode]) -> None:
    """Raise `OtherCode` unless this process has the code that the keys of a step's items state."""
    for wanted in several:
        mark = (LOADED.times, *wanted[:-1], *wanted.plugins.items())
        if mark in _AGREED:
            continue
        try:
            found = differing(wanted)
        except Exception as fault:  # whatever keeps the code from being found here is the answer
            raise OtherCode(f"its code of {step} cannot be read ({fault})") from fault
        if found:
            raise OtherCode(f"its code of {step} differs from the driver's ({', '.join(sorted(found))})")
        _AGREED.add(mark)
    unmixed()


def unmixed() -> None:
    """Raise `OtherCode` if a file was edited between its import here and the computation of keys."""
    if mixed := LOADED.mixed():
        raise OtherCode(f"{edits(mixed)} edited after it had loaded it or read it for keys")


def edits(paths: Sequence[str]) -> str:
    """Paths as the subject of a sentence: "a.py was", "a.py and 2 more were"."""
    return f"{paths[0]} and {len(paths) - 1} more were" if len(paths) > 1 else f"{paths[0]} was"


def edited_meanwhile(paths: Sequence[str]) -> BuildError:
    """The end of a build whose sources changed under it."""
    return BuildError(
        "a file was edited while the build ran",
        because=f"{edits(paths)} edited: what is still to be built would mix the old text with the new one",
        hint="run the same command again (in a Python session: a new one); what is finished is kept",
        code="NF-BUILD-131",
    )
