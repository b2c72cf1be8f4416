"""Where a module's source is, found without importing anything; and which modules are not followed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from npuflow.base.errors import InputError

Kind = Literal["source", "binary", "standard", "library", "contract", "absent", "namespace"]

_CONTRACT = ("npuflow.flow", "npuflow.base")
"""These enter keys by one hand-bumped version (`flow.keys.CONTRACT`); `npuflow`
itself is a lazy facade of them."""


class CodeError(InputError):
    """Code whose effect on a result cannot be seen: a dynamic import, an undeclared
    data file, a syntax error."""


@dataclass(frozen=True)
class Place:
    """What a module name leads to. A library's `detail` is its distribution and version."""

    name: str
    kind: Kind
    path: Path | None = None
    package: bool = False
    search: tuple[str, ...] = ()
    detail: tuple[tuple[str, str], ...] = ()


class Finder:
    """Places of modules, looked up once; `own` are top-level packages to follow
    wherever they are installed."""

    def __init__(self) -> None:
        self.own: set[str] = {"npuflow"}
        self.places: dict[str, Place] = {}

    def find(self, name: str) -> Place:
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = self._find(name)
        return place

    def _find(self, name: str) -> Place:
        parent, _, _ = name.rpartition(".")
        top = name.partition(".")[0]
        if name == "npuflow" or any(name == c or name.startswith(c + ".") for c in _CONTRACT):
            return Place(name, "contract", package=name in ("npuflow", *_CONTRACT), search=_search(name))
        if top in sys.stdlib_module_names:
            return Place(name, "standard")
        if name == "__main__":
            return _main()
        search: tuple[str, ...] | None = None
        if parent:
            above = self.find(parent)
            if above.kind in ("library", "absent"):
                return Place(name, above.kind, detail=above.detail)
            if not above.package:
                return Place(name, "absent")
            search = above.search
        spec = _spec(name, search)
        if spec is None:
            return Place(name, "absent")
        return self._place(name, top, spec)

    def _place(self, name: str, top: str, spec: Any) -> Place:
        places = tuple(spec.submodule_search_locations or ())
        origin = Path(spec.origin) if spec.has_location and spec.origin else None
        if top not in self.own and _installed(origin or Path(places[0])):
            detail = self._versions(top)
            if detail:
                return Place(name, "library", detail=detail)
        if origin is None:
            return Place(name, "namespace", package=True, search=places)
        kind: Kind = "source" if origin.suffix == ".py" else "binary"
        return Place(name, kind, origin, bool(places), places)

    def _versions(self, top: str) -> tuple[tuple[str, str], ...]:
        """(distribution, version) of an import name; without one, the package is followed as source."""
        from importlib import metadata  # slow to import

        try:
            return ((top, metadata.version(top)),)
        except metadata.PackageNotFoundError:
            found = {
                dist.metadata["Name"]: dist.version for dist in metadata.distributions() if _brings(dist, top)
            }
            return tuple(sorted(found.items()))


def _brings(distribution: Any, top: str) -> bool:
    """Whether an installed distribution has a top-level module of that name (read as
    text: there are many of them)."""
    names = distribution.read_text("top_level.txt")
    if names:
        return top in names.split()
    record = "\n" + (distribution.read_text("RECORD") or "")
    return any(f"\n{top}{end}" in record for end in ("/", ".py,", ".cpython-", ".abi3.", ".so,", ".pyd,"))


def _search(name: str) -> tuple[str, ...]:
    """The folders of a contract package (npuflow's other packages are searched below it)."""
    root = Path(__file__).parents[1]
    return (str(root.joinpath(*name.split(".")[1:])),)


def _spec(name: str, search: tuple[str, ...] | None) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, search) if find is not None else None
        if spec is not None:
            return spec
    return None


def _installed(path: Path) -> bool:
    return "site-packages" in path.parts or "dist-packages" in path.parts


def _main() -> Place:
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Place("__main__", "source", Path(file)) if file else Place("__main__", "absent")
