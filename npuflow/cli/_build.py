"""The build verb at work: plans first, then builds, shows, and counts."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import Interrupted, NpuflowError
from npuflow.cli._build_profile import BuildProfile
from npuflow.cli._components import packed_of, planned_again, planned_of
from npuflow.cli._disk import warn_where_short
from npuflow.cli._engine import stages
from npuflow.cli._errors import show
from npuflow.cli._events import as_json as line
from npuflow.cli._events import emit
from npuflow.cli._kernels import compile_beside
from npuflow.cli._noop import MARK, memo_folder
from npuflow.cli._progress import Plain, ProgressView, Silent, duration, judged, warn, warn_text, warned_once
from npuflow.flow.recipe_build import (
    Settings,
    claim_output,
    located,
    lock_path,
    open_cache,
    output_folder,
    plan_build,
    run_plan,
)

if TYPE_CHECKING:
    from npuflow.cli._gate import Gate
    from npuflow.flow.events import Event
    from npuflow.flow.memo_write import BuiltRecipe
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.run import Result
    from npuflow.flow.store import Store


@dataclass(frozen=True)
class OutputOptions:
    """What a build prints and how it ends, as options of `npuflow build` say. `strict`: it ends with status 1
    where outputs are too far from the float network's. `profile`: it says where its time went. `gate`: what
    its figures are held against."""

    as_json: bool = False
    quiet: bool = False
    strict: bool = False
    verbose: bool = False
    profile: bool = False
    gate: Gate | None = None


def run(
    paths: Sequence[Path], sets: Sequence[str], settings: Settings, how: OutputOptions,
    command: Sequence[str] = (),
) -> int:
    """Build every recipe in turn; the worst exit code. No recipe is built before all
    of them are known to be right.

    `command` are the words that the user typed, for the memo that lets the same
    command end at once next time.
    """
    begun = time.time_ns()
    planned: list[tuple[Recipe, Plan]] = []
    worst = 0
    for path in paths:
        try:
            planned += planned_of(path, sets, settings)
        except NpuflowError as error:
            worst = max(worst, show(error, as_json=how.as_json))
    if worst:
        return worst
    if how.gate is not None:
        how.gate.check([recipe.name for recipe, _ in planned])
    with ExitStack() as claims:
        # all before the first, and in one order: two commands never wait for each other
        for recipe, _ in sorted(planned, key=lambda one: str(output_folder(one[0], settings).absolute())):
            claims.enter_context(claim_output(recipe, settings, _waiting if how.as_json else warn))
        return _all(planned, settings, begun, command, how)


def _waiting(event: Event) -> None:
    """Say that another build is waited for, in both ways."""
    warn(event)
    emit(line(event) or {})


def _all(
    planned: Sequence[tuple[Recipe, Plan]], settings: Settings, begun: int, command: Sequence[str],
    how: OutputOptions,
) -> int:
    """Build them in turn, their output folders for this command alone."""
    built: list[BuiltRecipe] = []
    said: list[str] = []
    files: list[Path] = []
    worst = 0
    for recipe, plan in planned:
        code, whole, reported = _one(recipe, plan, settings, how, len(planned) == 1)
        worst = max(worst, code)
        said.append(reported)
        built += [whole] if whole is not None else []
        if recipe.family is not None and not worst:
            code, reported, more = packed_of(built, recipe, as_json=how.as_json)
            worst, files = max(worst, code), [*files, *more]
            said.append(reported)
        if worst and not settings.keep_going:
            break
    if how.gate is not None and len(how.gate.built) == len(planned):
        worst = max(worst, how.gate.close(as_json=how.as_json))
    folder = memo_folder(command)
    if folder is not None and not worst and not settings.force:
        from npuflow.flow.memo import Memo
        from npuflow.flow.memo_write import remember

        remember(Memo(folder, command), begun, built, "".join(said), files)
    return worst


def prepare(path: Path, sets: Sequence[str], settings: Settings) -> tuple[Recipe, Plan]:
    """A recipe and its plan, or every fault."""
    from npuflow.flow.recipe import load

    recipe = load(path, sets, lenient=True)
    return recipe, plan_build(recipe, stages(), settings)


def _one(
    recipe: Recipe, plan: Plan, settings: Settings, how: OutputOptions, alone: bool
) -> tuple[int, BuiltRecipe | None, str]:
    """Build one recipe: exit code, what was built, and what a build that finds all of it again would say."""
    from npuflow.flow.events import Opened, StepEvent, Summary, Warned
    from npuflow.flow.memo_write import BuiltRecipe

    asked = (*settings.force, *([settings.until] if settings.until is not None else []))
    shown = view(plan, quiet=how.quiet or how.as_json, verbose=how.verbose, asked=asked)
    again: list[str] = []
    warnings: list[Warned] = []
    verdict: dict[str, Any] = {}
    spent = BuildProfile()

    def tell(event: Event) -> None:
        if isinstance(event, Opened):         # the build is no short one
            compile_beside()
        event, warning = warned_once(event, warnings) if isinstance(event, StepEvent) else (event, None)
        verdict.update(judged(event))
        if how.profile:
            spent.add(event)
        if how.profile and how.as_json and isinstance(event, Summary):
            emit({"event": "profile", "stages": spent.rows(), **({} if alone else {"recipe": recipe.name})})
        for one in (event, warning) if how.as_json else ():
            body = line(one, None if alone else recipe.name, verdict) if one is not None else None
            if body is not None:
                emit(body)
            if body is not None and body["event"] != "progress":  # of what ran, which then is nothing
                text = json.dumps(unchanged(body), ensure_ascii=False, default=str)
                again.append(text.replace(json.dumps(MARK), MARK))
        shown.show(event)

    try:
        plan, store = planned_again(recipe, plan, settings), open_cache(recipe, settings)
        warn_where_short(recipe, store)
        result = run_plan(plan, recipe, store, settings, tell)
    except NpuflowError as error:
        shown.close()
        if isinstance(error, Interrupted):
            raise
        return show(located(error, recipe, plan), as_json=how.as_json), None, ""
    shown.close()
    if settings.publish and settings.until is None and result.ok:
        _draw(plan, result, output_folder(recipe, settings))
    for fault in distinct(result.errors):
        show(fault)
    if not how.as_json:
        number, said = len(warnings) + (verdict.get("verdict_ok") is False), _accuracy(verdict)
        took = duration(result.seconds)
        sys.stdout.write(_conclusion(recipe, result, result.ran, result.hit, took, number) + said)
        sys.stdout.write(_page(store, recipe, settings) if result.ok else "")
        again = [(_conclusion(recipe, result, 0, result.hit + result.ran, MARK, number) + said)[:-1]]
    if how.profile and not how.as_json:
        sys.stdout.write("".join(f"{text}\n" for text in spent.text(result.seconds)))
    poor = int(how.strict and verdict.get("verdict_ok") is False)
    code = max((fault.exit_code for fault in result.errors), default=poor)
    lock = lock_path(recipe, settings) if settings.until is None else None
    if how.gate is not None and lock is not None and result.ok:
        how.gate.add(recipe.name, result.products, plan)
    return code, BuiltRecipe(recipe, plan, store, result, lock), "".join(f"{text}\n" for text in again)


def _draw(plan: Plan, result: Result, folder: Path) -> None:
    """The task graph beside the products: the report shows it. A build does not fail for want of it."""
    from npuflow.cli._graph import SCRIPT, task_graph, write_script

    tasks = [(name, how, "") for name, found in result.status.items() for how in found.values()]
    try:
        write_script(folder / SCRIPT, task_graph(plan, tasks))
    except NpuflowError as fault:
        warn_text(f"{fault.message}: {fault.because}")


def distinct(errors: Sequence[NpuflowError]) -> list[NpuflowError]:
    """Errors without those that another stage tells alike: two stages that list the
    same data find the same fault."""
    first: dict[object, NpuflowError] = {}
    for error in errors:
        first.setdefault(
            (error.message, error.because, error.hint, error.where.item, error.where.node, error.where.line),
            error,
        )
    return list(first.values())


def unchanged(body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON line of an event in a build that finds everything again."""
    if body["event"] == "step":
        return {**body, "status": "hit", "reason": body["reason"] if body["key"] is None else ""}
    if body["event"] == "summary":
        return {**body, "hit": body["hit"] + body["ran"], "ran": 0, "seconds": MARK}
    return dict(body)


def _page(store: Store, recipe: Recipe, settings: Settings) -> str:
    """A link to the build where `npuflow view` serves a page over this cache."""
    from npuflow.apps.view.address import address
    from npuflow.flow.store_lease import root_file

    where = address(store.root)
    root = root_file(store.root, output_folder(recipe, settings).absolute())
    return f"  {where}#{root.stem}\n" if where and root.exists() else ""


def _conclusion(recipe: Recipe, result: Result, ran: int, hit: int, took: str, warnings: int) -> str:
    """The last lines of a build: what was done, and where the products are."""
    counts = [f"{ran} ran", f"{hit} hit"]
    counts += [
        f"{number} {what}"
        for number, what in ((result.failed, "failed"), (result.skipped, "skipped"))
        if number
    ]
    counts += [f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []
    word = "failed" if result.errors else "done" if ran else "nothing to do"
    lines = [f"{recipe.name}: {word} ({', '.join(counts)}, {took})"]
    width = max((len(name) for name in result.products), default=0)
    lines += [f"  {name:<{width}}  {_near(path)}" for name, path in sorted(result.products.items())]
    return "\n".join(lines) + "\n"


def _accuracy(verdict: Mapping[str, Any]) -> str:
    """The last line of a build: what a step found of the outputs, once and in full."""
    if not verdict:
        return ""
    word = "warning" if verdict["verdict_ok"] is False else "accuracy"
    hint = f"; try {verdict['verdict_hint']}" if verdict["verdict_hint"] else ""
    return f"{word}: {verdict['verdict']}{hint}\n"


def _near(path: Path) -> str:
    from npuflow.flow.recipe_files import shown_path

    return shown_path(path)


def view(
    plan: Plan, *, quiet: bool = False, verbose: bool = False, asked: Collection[str] = ()
) -> ProgressView:
    """The view that suits where standard error goes."""
    if quiet:
        return Silent()
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return Plain(plan, verbose, asked)
    from npuflow.cli._progress_live import Live

    return Live(plan, verbose, asked)
