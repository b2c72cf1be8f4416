"""A class narrowed to the methods that are needed, so that editing one of the others changes nothing."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from npuflow.base.code_module import Class, Facts, Form, SourceModule


@functools.cache
def _call(mention: str) -> tuple[str, int | None]:
    """The name that is mentioned, and with how many arguments it is called: -1 for any number, None if it is
    only read."""
    name, call, count = mention.partition("(")
    return name, (-1 if count == "*)" else int(count[:-1])) if call else None


class Mentions:
    """Attributes that code mentions, and which methods it may mean by them.

    A method is meant where its name is called with as many arguments as it takes. One that is only read may
    be passed on to be called elsewhere: it is meant as well, unless some class in reach has a field of that
    name. A property is meant wherever its name is read.
    """

    def __init__(self, mentions: Iterable[str] = ()) -> None:
        self.mentions: set[str] = set()
        self.heads: set[str] = set()
        """The names that are mentioned, called or read."""
        self._calls: dict[str, set[int]] = {}
        self.add(mentions)

    def add(self, mentions: Iterable[str]) -> None:
        """More mentions, without their roots."""
        new = (mentions if isinstance(mentions, Set) else set(mentions)) - self.mentions
        self.mentions |= new
        for name, count in map(_call, new):
            self.heads.add(name)
            if count is not None:
                self._calls.setdefault(name, set()).add(count)

    def names(self, name: str, form: Form) -> bool:
        """Whether a method of that form may be meant."""
        if name in self.mentions and (form.read or f"={name}" not in self.mentions):
            return True
        calls = self._calls.get(name, ())
        return any(count < 0 or form.read or form.least <= count <= form.most for count in calls)


class Narrowed:
    """The parts of a class that have been reached."""

    def __init__(
        self, module: SourceModule, name: str, parts: Class, followed: Collection[int], always: Set[str]
    ) -> None:
        """`always`: methods that are called although the code does not mention them."""
        self.module, self._always = module, always
        self.label = f"{module.name}:{name}"
        self._parts, self._followed = parts, followed
        self._taken: set[str] = set()
        self._asked = (-1, False)
        self.whole = False
        """All methods are needed: the code makes objects of the class, or may do anything with it."""

    @property
    def forms(self) -> Mapping[str, Form]:
        return self._parts.forms

    def start(self) -> tuple[str, Facts]:
        """The class without its methods; bases that are narrowed themselves count in the
        digest, but are not reached whole."""
        references, mentions = set(self._parts.rest.references), set(self._parts.rest.mentions)
        for index, (_, base) in enumerate(self._parts.bases):
            if index not in self._followed:
                references.update(base.references)
                mentions.update(base.mentions)
        return self.label, Facts(self._parts.rest.digest, tuple(references), frozenset(mentions))

    def more(self, wanted: Mentions, facets: Set[str]) -> Iterator[tuple[str, Facts]]:
        """The methods not taken yet that are wanted, or that Python calls by itself."""
        asked = len(wanted.mentions), self.whole
        if asked == self._asked:  # mentions only grow, and the rest is as it was
            return
        self._asked = asked
        for name, found in self._parts.methods.items():
            if name in self._taken:
                continue
            if (
                self.whole
                or name in facets
                or name in self._always
                or (name.startswith("__") and name.endswith("__"))
                or wanted.names(name, self.forms[name])
            ):
                self._taken.add(name)
                for index, facts in enumerate(found):
                    yield f"{self.label}.{name}" + (f"#{index}" if index else ""), facts
