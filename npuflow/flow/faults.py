"""What is wrong with a recipe beside its tables: sources that cannot be listed, what quick stages refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from npuflow.base.errors import AbsentError, InputError, NpuflowError
from npuflow.base.tables import Config, table_of
from npuflow.base.tables_toml import path_of
from npuflow.flow.keys import Step
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.refs import Ref

if TYPE_CHECKING:
    from npuflow.flow.store import Store

NAMES, UNKNOWN = "NF-RECIPE-023", "NF-RECIPE-008"       # names of no layer; keys that no table has


def unlisted(
    steps: Iterable[Step], recipe: Recipe, known: Iterable[type[Config]] = ()
) -> Iterator[NpuflowError]:
    """Faults of the source listings of all steps. Tables with faults of their own are read without the keys
    at fault: of their sources it is told whether they are there, as all else may follow from what was left
    out, unless it is of a table without faults. Two stages may list one source: report it once."""
    known, told = tuple(known), set[tuple[str | None, str]]()
    for step in steps:
        whole = all(table is not None for table in step.listing_configs.values())
        try:
            if whole:
                _ = step.listing
            else:
                _list_readable(step, recipe, known)
        except NpuflowError as fault:
            mark = (fault.where.key, fault.message)
            if mark not in told and (whole or isinstance(fault, AbsentError) or _of_whole(fault, step)):
                told.add(mark)
                yield fault.at(stage=step.name)
        except OSError:  # reported with its step
            continue


def _of_whole(fault: NpuflowError, step: Step) -> bool:
    """Whether a fault is of a table that has no others."""
    own = path_of(fault.where.key)[0] if fault.where.key else ""
    held = [name for name, cls in step.signature.listing.items() if table_of(cls).split(".")[0] == own]
    return bool(held) and all(step.listing_configs.get(name) is not None for name in held)


def _list_readable(step: Step, recipe: Recipe, known: Iterable[type[Config]]) -> None:
    classes = step.signature.listing
    tables = {
        name: recipe.readable(classes[name], known) if table is None else table
        for name, table in step.listing_configs.items()
    }
    if step.stage.files is not None and all(table is not None for table in tables.values()):
        step.stage.files(**tables)


def foreseen(plan: Plan, store: Callable[[], Store]) -> list[NpuflowError]:
    """Where a source cannot be listed: that, and what quick stages say is wrong. A build would end at the
    first of all these. Nothing else; the store is not opened then."""
    found = list(unlisted(plan, plan.recipe))
    return [*found, *besides(plan, store, found)] if found else []


def besides(
    plan: Plan, store: Callable[[], Store], told: Sequence[NpuflowError]
) -> Iterator[NpuflowError]:
    """What quick stages say is wrong beside faults that are known, and that does not follow from these."""
    from npuflow.flow.ahead import Ahead

    ahead, refs = Ahead(store()), dict[str, Ref | None]()
    known = {(fault.where.key, fault.message) for one in told for fault in one.faults()}
    for step in plan:
        inputs = {name: place.step for name, place in step.inputs.items()}
        if any(source is not None and refs.get(source) is None for source in inputs.values()):
            continue
        given = {name: None if source is None else refs[source] for name, source in inputs.items()}
        try:
            refs[step.name] = ahead.made(step, given, listed=False)
            continue
        except InputError as error:
            for fault in error.at(stage=step.name).faults():
                if (fault.where.key, fault.message) not in known and not _follows(fault, told):
                    known.add((fault.where.key, fault.message))
                    yield fault
        except Exception:  # not the user's: a build reports it once the recipe is right
            pass
        if step.stage.refines is not None:       # what it would have refined stands for what it makes
            base = next((ref for name, ref in given.items() if name == _refined(step)), None)
            refs[step.name] = base


def _refined(step: Step) -> str:
    """The input that a refinement makes better."""
    out = step.signature.output
    return next((name for name, place in step.inputs.items() if place.upstream.kind is out), "")


def _follows(fault: NpuflowError, told: Sequence[NpuflowError]) -> bool:
    """Whether a fault may be there only because keys with faults of their own were left out, or because of
    another fault. Names that nothing answers to depend on the model alone."""
    known = [one for error in told for one in error.faults() if one.where.key]
    paths = [path_of(str(one.where.key)) for one in known]
    tables = {path[0] for path in paths}
    if "model" in tables:
        return True
    if fault.code == NAMES:
        return False
    own = path_of(fault.where.key) if fault.where.key else ()
    if not own or ("target" in tables and own[0] not in ("data", "evaluate")):
        return bool(tables)
    wrong = [path for path, one in zip(paths, known, strict=True) if one.code != UNKNOWN]
    near = [path for path in wrong if path[0] == own[0]]
    return any(path[:2] == own[:2] or len(own) == 1 or own[1] == "overrides" for path in near)
