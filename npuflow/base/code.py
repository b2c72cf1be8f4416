"""The code part of a key: a digest of every definition that a function can statically reach.

Closures are kept between processes. A closure is a function of the answers that its walk got: where modules
are, what files hold, what registries list. The memo has every question of the process that wrote it, with the
answer. If one answer differs today, none of its closures is used, and all are drawn again.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from npuflow.base.code_class import Mentions
from npuflow.base.code_find import CodeError, Finder, Place
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_memo import PICTURES
from npuflow.base.code_module import Form
from npuflow.base.code_sources import Sources
from npuflow.base.code_steps import StepTable
from npuflow.base.code_walk import ClosureWalk
from npuflow.base.digest import digest, digest_file
from npuflow.base.memo_file import maker_of, read_memo, read_shared, write_shared
from npuflow.base.registry import Registry

T = TypeVar("T")

Mark = tuple[str, str | None, tuple[str, ...] | None, bool]
"""Of a closure: module, name, methods it is narrowed to, whether it is a registry's entry."""

Forms = dict[str, tuple[Form, ...]]

FEW = 0.1                # of what a file holds: fewer new closures are not worth writing all of it again


@dataclass(frozen=True)
class Closure:
    """What a piece of code consists of: definitions and data files by digest, libraries by version."""

    digest: str
    definitions: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    entries: frozenset[str] = frozenset()
    """Registry entries named by constants ("ops/relu"); their code is not in the digest."""
    mentions: frozenset[str] = field(default=frozenset(), repr=False)
    """Attributes that the code mentions of objects that it is given (see `code_scope`)."""


class KeptClosures:
    """The closures of this process; with a file, also those of earlier ones that still hold."""

    def __init__(self) -> None:
        self.closures: dict[Mark, Closure] = {}
        self.forms: dict[tuple[str, str | None], Forms | None] = {}
        self._path: Path | None = None
        self._stored = (0, 0)

    def open(self, path: Path, sources: Sources) -> None:
        """Take over what the file holds if every question it lists has the same answer now; `sources` then
        counts what was asked as read. `save` writes it. A file that is open is not read again."""
        if path == self._path:
            return
        self._path = path
        # a process that knows closures asks only for what this cache has: to read the user's takes longer
        found = (read_memo if self.closures else read_shared)(path, _maker())
        if found is not None and _holds(found["asked"], sources):
            self._take(found)

    def forget(self) -> None:
        """Draw all closures again on next use; nothing is written any more."""
        self.closures.clear()
        self.forms.clear()
        self._path, self._stored = None, (0, 0)

    def save(self, sources: Sources) -> None:
        """Write all that is known if much of it is new; failing to is no fault of the build."""
        known, stored = len(self.closures) + len(self.forms), sum(self._stored)
        if known - stored > FEW * stored:
            self.save_all(sources)

    def save_all(self, sources: Sources) -> None:
        """Write all that is known if any of it is new."""
        known = len(self.closures), len(self.forms)
        if self._path is None or known == self._stored:
            return
        if write_shared(self._path, _maker(), self._given(sources)):
            self._stored = known

    def save_last(self, sources: Sources) -> None:
        """The same as the process ends, where the cache is still there: one that was deleted stays so."""
        if self._path is not None and self._path.parents[1].is_dir():
            self.save_all(sources)

    def _take(self, found: Any) -> None:
        pairs, words = [(label, made) for label, made in found["pairs"]], found["words"]
        for (module, name, facets, entry), stored in found["closures"]:
            mark = module, name, None if facets is None else tuple(facets), entry
            if mark not in self.closures:  # keys compare closures by identity: a known one stays
                made, definitions, libraries, files, entries, mentions = stored
                self.closures[mark] = Closure(
                    made,
                    dict(map(pairs.__getitem__, definitions)),
                    libraries,
                    files,
                    frozenset(entries),
                    frozenset(map(words.__getitem__, mentions)),
                )
        for module, attribute, forms in found["forms"]:
            self.forms[module, attribute] = (
                None
                if forms is None
                else {name: tuple(Form(*one) for one in several) for name, several in forms.items()}
            )
        self._stored = len(self.closures), len(self.forms)

    def _given(self, sources: Sources) -> dict[str, Any]:
        # copies, and the closures before the questions: threads of a cluster may draw more meanwhile
        known, named = dict(self.closures), dict(self.forms)
        pairs: dict[tuple[str, str], int] = {}
        words: dict[str, int] = {}
        closures = [
            [
                mark,
                [
                    one.digest,
                    [pairs.setdefault(pair, len(pairs)) for pair in one.definitions.items()],
                    one.libraries,
                    one.files,
                    sorted(one.entries),
                    [words.setdefault(word, len(words)) for word in sorted(one.mentions)],
                ],
            ]
            for mark, one in known.items()
        ]
        return {
            "asked": _asked(sources),
            "closures": closures,
            "forms": [[*mark, forms] for mark, forms in named.items()],
            "pairs": list(pairs),
            "words": list(words),
        }


KEPT = KeptClosures()
"""The memo of this process."""


def _asked(sources: Sources) -> dict[str, Any]:
    """Every question that walks of this process put, with its answer, as JSON has it."""
    registries = {one.name: [one.package, _listing(one)] for one in list(sources.registries.values())}
    places = {name: _answer(place) for name, place in dict(sources.finder.places).items()}
    return {
        "files": sources.read(),
        "own": sorted(sources.finder.own),
        "places": places,
        "registries": registries,
    }


def _holds(asked: Any, sources: Sources) -> bool:
    """Whether every question has the same answer now. If so, it counts as put in this process."""
    finder = Finder()
    finder.own |= set(asked["own"])
    if any(_answer(finder.find(name)) != answer for name, answer in asked["places"].items()):
        return False
    found = {name: Registry.at_hand(name, package) for name, (package, _) in asked["registries"].items()}
    if any(_listing(found[name]) != listing for name, (_, listing) in asked["registries"].items()):
        return False
    try:  # last: files of another checkout, whose memo this is not, are none that keys here were drawn from
        for path, content in asked["files"].items():
            LOADED.read(path)
            if digest_file(path) != content:
                return False
    except OSError:  # a file was deleted
        return False
    sources.finder.own |= finder.own
    sources.finder.places.update(finder.places)
    sources.data.update(asked["files"])
    sources.registries.update(found)
    return True


def _answer(place: Place) -> list[Any]:
    path = None if place.path is None else str(place.path)
    return [place.kind, path, place.package, list(place.search), [list(one) for one in place.detail]]


def _listing(registry: Registry) -> list[list[str | None]]:
    return [[name, one.module, one.attribute] for name, one in sorted(registry.sources().items())]


@functools.cache
def _maker() -> str:
    """The code that draws closures."""
    folder = Path(__file__).parent
    return maker_of(sorted([*folder.glob("code*.py"), folder / "digest.py"]))


__all__ = [
    "Closure",
    "CodeError",
    "Mentions",
    "closure",
    "definition_closure",
    "derived",
    "entry_closure",
    "facets_of",
    "files_read",
    "forget",
    "open_memo",
    "package_file",
    "plugin_closure",
    "registry_named",
    "save_memo",
    "whole_digest",
]


class _State:
    """What this process has read so far."""

    sources = Sources()
    steps = StepTable(sources)
    passing: dict[Mark, Closure] = {}  # noqa: RUF012
    """Closures that hold in this process only."""
    derived: dict[Hashable, Any] = {}  # noqa: RUF012


def derived(mark: Hashable, make: Callable[[], T]) -> T:
    """What follows from closures alone, made once a process, and again after `forget`."""
    known = _State.derived
    if mark not in known:
        known[mark] = make()
    found: T = known[mark]
    return found


def closure(target: Any) -> Closure:
    """The closure of a function or class."""
    target = inspect.unwrap(target)
    return definition_closure(target.__module__, target.__qualname__.partition(".")[0])


def definition_closure(module: str, name: str) -> Closure:
    """The closure of a module's top-level name, which need not have been imported."""
    return _closure(module, name, None, False)


def entry_closure(
    module: str, attribute: str | None = None, facets: tuple[str, ...] | None = None
) -> Closure:
    """The closure of what a registry's file marks, or of one of its names; narrowed to the
    methods in `facets`, if given."""
    return _closure(module, attribute, facets, True)


def plugin_closure(registry: Registry, name: str, facets: tuple[str, ...] | None = None) -> Closure:
    """The code behind a registry's entry, narrowed to some of its methods if facets are given."""
    source = registry.source(name)
    return entry_closure(source.module, source.attribute, facets)


def registry_named(name: str) -> Registry | None:
    """A registry that code in reach names an entry of, or that has been imported."""
    return _State.sources.registries.get(name) or Registry.known.get(name)


def whole_digest(target: Any) -> str:
    """The digest of a function with all of the entries that its code names by constants."""
    found = closure(target)
    labels, digests = set(found.entries), {"": found.digest}
    while left := labels - digests.keys():
        for label in left:
            name, _, entry = label.partition("/")
            registry = registry_named(name)
            assert registry is not None, f"no registry {name}"
            one = plugin_closure(registry, entry)
            digests[label] = one.digest
            labels |= one.entries
    return digest(digests)


def facets_of(registry: Registry, name: str, wanted: Mentions) -> tuple[str, ...] | None:
    """The methods of an entry that code may use which mentions `wanted`; None if the entry is no class."""
    source = registry.source(name)
    mark = (source.module, source.attribute)
    if mark not in KEPT.forms:
        KEPT.forms[mark] = ClosureWalk(_State.sources, _State.steps).forms(*mark)
    forms = KEPT.forms[mark]
    if forms is None:
        return None
    named = wanted.heads & forms.keys()
    return tuple(sorted(name for name in named if any(wanted.names(name, one) for one in forms[name])))


def forget() -> None:
    """Read all sources again on next use (after files changed under a running process)."""
    LOADED.forget()
    _State.sources = Sources()
    _State.steps = StepTable(_State.sources)
    _State.passing.clear()
    _State.derived = {}
    KEPT.forget()


def open_memo(folder: Path) -> None:
    """Take over what earlier processes found, as far as it still holds; `save_memo` writes this one's."""
    PICTURES.open(folder / "code.json")
    KEPT.open(folder / "closures.json", _State.sources)


def save_memo() -> None:
    """Let later processes know what this one found: now if it is much, else as the process ends."""
    PICTURES.save()
    KEPT.save(_State.sources)


@atexit.register
def _save_all() -> None:
    KEPT.save_last(_State.sources)


def files_read() -> dict[str, str]:
    """Every source and data file that closures of this process read: path -> digest of its bytes."""
    return _State.sources.read()


def package_file(name: str) -> Path:
    """A data file beside the calling Python file. Written with a constant name, it
    enters the keys of what calls it."""
    caller = sys._getframe(1).f_globals["__file__"]
    return Path(caller).parent / name


def _closure(module: str, name: str | None, facets: tuple[str, ...] | None, entry: bool) -> Closure:
    mark = (module, name, facets, entry)
    found = KEPT.closures.get(mark) or _State.passing.get(mark)
    if found is None:
        walk = ClosureWalk(_State.sources, _State.steps)
        if entry or name is None:
            walk.entry(module, name, facets)
        else:
            walk.definition(module, name)
        found = (KEPT.closures if walk.lasting else _State.passing)[mark] = _sealed(walk)
    return found


def _sealed(walk: ClosureWalk) -> Closure:
    definitions, files = dict(sorted(walk.definitions.items())), dict(sorted(walk.files.items()))
    libraries = dict(sorted(walk.libraries.items()))
    whole = digest({"definitions": definitions, "files": files})
    return Closure(whole, definitions, libraries, files, frozenset(walk.entries), frozenset(walk.mentions))
