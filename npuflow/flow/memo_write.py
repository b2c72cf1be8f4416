"""What a finished build has read and given, gathered for its no-op memo."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npuflow.base import code
from npuflow.base.code_find import CodeError
from npuflow.base.errors import NpuflowError
from npuflow.base.files import DIGESTS
from npuflow.base.foreign import named
from npuflow.base.registry import Registry, folders
from npuflow.base.tables import FilePath, Location
from npuflow.flow.memo import Memo, names
from npuflow.flow.signature import named_paths
from npuflow.flow.store_lease import root_file

if TYPE_CHECKING:
    from npuflow.flow.keys import Step
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.run import Result
    from npuflow.flow.store import Store

_MOST_FOLDERS = 2000
_WILD = frozenset("*?[")


class BuiltRecipe(NamedTuple):
    """A recipe that was built, with everything that took part."""

    recipe: Recipe
    plan: Plan
    store: Store
    result: Result
    lock: Path | None
    """None of a build up to a stage, which neither reads nor writes a lock."""


class Unprovable(Exception):
    """Something took part in the build whose being unchanged cannot be seen from files."""


def remember(
    memo: Memo, begun: int, built: Sequence[BuiltRecipe], payload: Any, more: Iterable[Path] = ()
) -> bool:
    """Write the memo of a build that succeeded; False if it cannot be proved later that nothing changed.
    `more`: files that it wrote beside the products of recipes."""
    files: dict[str, str | None] = {}
    outputs: dict[str, None] = dict.fromkeys(_absolute(more))
    places: dict[str, None] = {}
    try:
        for recipe, plan, store, result, lock in built:
            outputs.update(dict.fromkeys(_absolute([lock] if lock is not None else [])))
            files.update(dict.fromkeys(_absolute(source.path for source in recipe.sources)))
            for step in plan:
                _sources(step, files, places)
            for stage, keys in result.keys.items():
                _stored(plan, store, result, stage, keys, outputs)
            outputs.update(dict.fromkeys(_absolute(result.products.values())))
        for folder in _absolute(lock.parent for *_, lock in built if lock is not None):
            places.pop(folder, None)      # where components find what others made: builds write there
        _code(files, places)
    except (Unprovable, CodeError, OSError):
        return False
    for path, found in DIGESTS.used().items():
        if path in files:
            files[path] = found
    try:
        seen = {path: names(path) for path in places}
        if not all(_listed_still(step) for one in built for step in one.plan):
            return False
    except (NpuflowError, OSError):
        return False
    used_by = ((one.store.root, one.lock.parent.absolute()) for one in built if one.lock is not None)
    roots = [str(root_file(*place)) for place in used_by]
    return memo.write(begun, files, list(outputs), seen, payload, roots)


def _listed_still(step: Step) -> bool:
    """Whether a listing would find the same again, in case a file came or went while the build ran."""
    if step.stage.files is None or step.override is not None:
        return True
    return step.stage.files(**step.listing_configs) == step.listing


def _absolute(paths: Iterable[Path]) -> Iterator[str]:
    return (os.path.abspath(path) for path in paths)  # noqa: PTH100


def _sources(step: Step, files: dict[str, str | None], places: dict[str, None]) -> None:
    """The source files of a step, the files its tables name, and the folders in
    which new ones would appear."""
    if step.override is not None:
        found = [path for path in Path(step.override).rglob("*") if path.is_file()]
        files.update(dict.fromkeys(_absolute(found)))
        return
    for item in (step.listing or {}).values():
        files.update(dict.fromkeys(_absolute(item.files)))
        places.update(dict.fromkeys(os.path.dirname(p) for p in _absolute(item.files)))  # noqa: PTH120
    for config in (*step.configs.values(), *step.listing_configs.values()):
        for value in named_paths(config):
            if isinstance(value, FilePath):
                files[os.path.abspath(value.path)] = None  # noqa: PTH100
            else:
                _location(value, files, places)


def _location(place: Location, files: dict[str, str | None], places: dict[str, None]) -> None:
    """What a listing may have looked at below a path or pattern."""
    if place.text.startswith("python:"):
        module, name, _ = named(place.text, place.base)
        code.definition_closure(module, name)  # its modules are then among those read
        return
    if "://" in place.text:
        raise Unprovable(place.text)
    parts = place.path.parts
    plain = next((i for i, part in enumerate(parts) if _WILD & set(part)), len(parts))
    root = Path(*parts[:plain])
    if root.is_file():
        files[os.path.abspath(root)] = None  # noqa: PTH100
        return
    for folder, _, _ in os.walk(root):
        places[os.path.abspath(folder)] = None  # noqa: PTH100
        if len(places) > _MOST_FOLDERS:
            raise Unprovable(f"{root} has too many folders")


def _stored(
    plan: Plan,
    store: Store,
    result: Result,
    stage: str,
    keys: dict[str | None, str],
    outputs: dict[str, None],
) -> None:
    """Records and object files of a stage."""
    for key in keys.values():
        outputs[str(store.record_path(key))] = None
    ref = result.refs[stage]
    for one in getattr(ref, "items", {None: ref}).values():
        folder = str(store.object_path(one.digest))
        for root, _, found in os.walk(folder):
            outputs.update(dict.fromkeys(f"{root}/{name}" for name in found))


def _code(files: dict[str, str | None], places: dict[str, None]) -> None:
    """Every Python file that took part: those read for keys, and those imported from
    outside the installed packages."""
    for path, found in code.files_read().items():
        files[path] = found
        places[os.path.dirname(path)] = None  # noqa: PTH120
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.endswith(".py") and not _vendor(path) and os.path.exists(path):  # noqa: PTH110
            files.setdefault(os.path.abspath(path), None)  # noqa: PTH100
    for registry in Registry.known.values():
        try:
            places.update(dict.fromkeys(str(folder) for folder in folders(registry.package)))
            fresh = Registry.unlisted(registry.name, registry.package)
            if fresh.sources() != registry.sources():
                raise Unprovable(registry.name)
        except Exception as error:  # a registry of a test or plug-in that is gone
            raise Unprovable(registry.name) from error


def _vendor(path: str) -> bool:
    standard = os.path.dirname(os.__file__)  # noqa: PTH120
    if path.startswith(standard) or "site-packages" in path or "dist-packages" in path:
        return not path.startswith(str(Path(__file__).parents[1]))
    return False
