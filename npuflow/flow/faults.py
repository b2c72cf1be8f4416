"""What is wrong with a recipe beside its tables: sources that cannot be listed, what quick stages refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from npuflow.base.errors import AbsentError, InputError, NpuflowError
from npuflow.base.tables import Config
from npuflow.flow.plan import Plan, Step
from npuflow.flow.recipe import Recipe
from npuflow.flow.refs import Ref

if TYPE_CHECKING:
    from npuflow.flow.store import Store


def unlisted(
    steps: Iterable[Step], recipe: Recipe, known: Iterable[type[Config]] = ()
) -> Iterator[NpuflowError]:
    """Faults of the source listings of all steps. Tables with faults of their own are read without the keys
    at fault: of their sources it is told whether they are there, as all else may follow from what was left
    out. Two stages may list one source: its fault is told once."""
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
            if mark not in told and (whole or isinstance(fault, AbsentError)):
                told.add(mark)
                yield fault.at(stage=step.name)
        except OSError:  # reported with its step
            continue


def _list_readable(step: Step, recipe: Recipe, known: Iterable[type[Config]]) -> None:
    classes = step.signature.listing
    tables = {
        name: recipe.readable(classes[name], known) if table is None else table
        for name, table in step.listing_configs.items()
    }
    if step.stage.files is not None and all(table is not None for table in tables.values()):
        step.stage.files(**tables)


def foreseen(plan: Plan, store: Callable[[], Store]) -> list[NpuflowError]:
    """Where a source cannot be listed: that, and what quick stages that need no such source say is wrong. A
    build would end at the first of all these. Nothing else; the store is not opened then."""
    found = list(unlisted(plan, plan.recipe))
    if not found:
        return []
    from npuflow.flow.ahead import Ahead

    ahead, refs = Ahead(store()), dict[str, Ref | None]()
    for step in plan:
        inputs = {name: place.step for name, place in step.inputs.items()}
        if any(source is not None and refs.get(source) is None for source in inputs.values()):
            continue
        given = {name: None if source is None else refs[source] for name, source in inputs.items()}
        try:
            refs[step.name] = ahead.made(step, given)
        except InputError as fault:
            if fault.message not in {one.message for one in found}:  # its own source may be the one
                found += fault.at(stage=step.name).faults()
        except Exception:  # not the user's: a build reports it once the recipe is right
            continue
    return found
