"""One build of one recipe, from its file to its products: what the command line and
the Python facade share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base import code
from npuflow.base.errors import InputError, NpuflowError, RecipeError, Where
from npuflow.base.files import DIGESTS
from npuflow.base.tables import table_of
from npuflow.flow.recipe_cache import cache_folder, cache_limit

if TYPE_CHECKING:
    from npuflow.base.registry import Registry
    from npuflow.flow.events import Event
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.run import Result
    from npuflow.flow.store import Store


@dataclass(frozen=True)
class Settings:
    """How to build, where it differs from the recipe's [build]; None leaves the recipe's say."""

    cache: str | Path | None = None
    remote: str | None = None
    jobs: int | None = None
    scheduler: str | None = None
    until: str | None = None
    keep_going: bool = False
    force: tuple[str, ...] = ()
    override: Mapping[str, Path] = field(default_factory=dict)
    out: str | Path | None = None
    memory: str | None = None
    publish: bool = True                  # whether products are copied out of the cache


def cache_place(recipe: Recipe | None, settings: Settings) -> Path:
    """The cache folder, which need not exist yet."""
    table = recipe.build if recipe is not None else None
    chosen = table.cache.path if table is not None and table.cache is not None else None
    return cache_folder(settings.cache, chosen, recipe.folder if recipe is not None else Path.cwd())


def open_cache(recipe: Recipe | None, settings: Settings) -> Store:
    """The cache where flag, environment, recipe or default put it, with the shared
    cache behind it if there is one."""
    from npuflow.flow.store import Store

    table = recipe.build if recipe is not None else None
    root = cache_place(recipe, settings)
    remote = settings.remote or (table.remote if table is not None else None)
    DIGESTS.open(root / "memo" / "files.json")
    code.open_memo(root / "memo")
    mode = table.remote_mode if table is not None else "read-write"
    if remote and mode != "off":
        from npuflow.flow.memory import size
        from npuflow.flow.store_remote import connect

        behind = connect(remote, mode)
        found = Store(root, behind)
        if behind is not None and table is not None and table.remote_size is not None:
            behind.limit = size(table.remote_size)
    else:
        found = Store(root)
    found.limit = cache_limit(table.cache_size if table is not None else None)
    return found


def plan_recipe(recipe: Recipe, registry: Registry, settings: Settings) -> Plan:
    """The wired plan; every fault of the recipe and every unknown stage name is an error."""
    from npuflow.base.errors import UsageError, suggestion
    from npuflow.flow.stage import steps_of
    from npuflow.flow.wire import wire

    for name in settings.force:
        if name not in registry and name not in (known := steps_of(registry)):
            raise UsageError(
                f'--force: there is no stage "{name}"',
                hint=suggestion(name, tuple(known)),
                code="NF-USAGE-054",
            )
    try:
        return wire(registry, recipe, until=settings.until, override=settings.override)
    except NpuflowError as error:
        raise located(error, recipe) from error


def plan_build(
    recipe: Recipe, registry: Registry, settings: Settings, others: Sequence[Plan] = ()
) -> Plan:
    """The plan of a build. Faults of tables are an error at once, with all that is known to be wrong besides,
    as is a source that cannot be listed; with `keep_going` its stage fails, and the others run. `others`:
    plans made a moment ago, which may have listed the same sources."""
    from npuflow.flow.faults import foreseen

    try:
        plan = plan_recipe(recipe, registry, settings)
    except RecipeError as error:
        raise RecipeError([*error.faults(), *_beside(error, recipe, registry, settings)]) from None
    plan.share_listings(others)
    faults = [] if settings.keep_going else foreseen(plan, lambda: open_cache(recipe, settings))
    if faults:
        raise located(RecipeError(faults), recipe, plan)
    return plan


def _beside(
    error: RecipeError, recipe: Recipe, registry: Registry, settings: Settings
) -> Sequence[NpuflowError]:
    """What quick stages find in a recipe whose tables have faults."""
    from npuflow.flow.faults import besides
    from npuflow.flow.wire import wire

    try:
        plan = wire(registry, recipe, until=settings.until, override=settings.override, lenient=True)
        found = list(besides(plan, lambda: open_cache(recipe, settings), error.faults()))
    except NpuflowError:  # [build] itself has faults: there is no cache to look into
        return ()
    return [located(one, recipe, plan) for one in found]


def run_plan(
    plan: Plan,
    recipe: Recipe,
    store: Store,
    settings: Settings,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Build a plan; the errors in the result know their place in the recipe. Its output folder is this
    build's alone meanwhile."""
    with claim_output(recipe, settings, on_event):
        try:
            result = _build(plan, recipe, store, settings, on_event)
        finally:
            keep_memos()
        result.errors += _more(plan, store, settings, result.errors)
        for error in result.errors:
            located(error, recipe, plan)
        if result.ok and settings.until is None:
            write_lock(plan, recipe, store, settings, result)
    if recipe.build.remote_push == "used" and store.remote is not None:
        _upload(store, result, on_event)
    return result


def claim_output(
    recipe: Recipe, settings: Settings, on_event: Callable[[Event], None] | None = None
) -> AbstractContextManager[None]:
    """Have the output folder of a build for it alone, where it writes one; it is warned while it waits."""
    from npuflow.flow.events import Warned
    from npuflow.flow.output_claim import claimed

    def waits(text: str, hint: str) -> None:
        if on_event is not None:
            on_event(Warned(text, hint=hint))
        else:
            warnings.warn(f"{text}; {hint}", stacklevel=2)

    return claimed(output_folder(recipe, settings), waits) if settings.publish else nullcontext()


def _more(
    plan: Plan, store: Store, settings: Settings, errors: Sequence[NpuflowError]
) -> list[NpuflowError]:
    """What else is wrong where a build ended at a quick stage that found faults of the recipe."""
    from npuflow.flow.faults import besides

    quick = [one.where.stage in plan and plan[str(one.where.stage)].stage.quick for one in errors]
    if settings.keep_going or not errors or not all(quick):
        return []
    wrong = [one for one in errors if isinstance(one, InputError)]
    return list(besides(plan, lambda: store, wrong)) if len(wrong) == len(errors) else []


def _upload(store: Store, result: Result, on_event: Callable[[Event], None] | None) -> None:
    """Send all that a build used to the remote cache; a remote that fails is a
    warning, as it is during the build."""
    from npuflow.flow.events import Warned
    from npuflow.flow.store_push import push

    if store.remote is None or store.remote.down or store.remote.mode != "read-write":
        return
    try:
        push(store, [key for keys in result.keys.values() for key in keys.values()])
    except NpuflowError as error:
        if on_event is not None:
            on_event(Warned(f"{error.message}: {error.because}", hint=error.hint))


def keep_memos() -> None:
    """Let the next process know what this one read: the digests of files, and what
    the sources of stages are."""
    DIGESTS.save()
    code.save_memo()


def _build(
    plan: Plan, recipe: Recipe, store: Store, settings: Settings, on_event: Callable[[Event], None] | None
) -> Result:
    from npuflow.flow.run import build

    table = recipe.build
    return build(
        plan,
        store,
        jobs=settings.jobs or table.jobs,
        memory=settings.memory or table.memory,
        scheduler=settings.scheduler or table.scheduler,
        dashboard=table.dashboard,
        keep_going=settings.keep_going,
        force=settings.force,
        on_event=on_event,
        out_dir=output_folder(recipe, settings) if settings.publish else None,
        part=settings.until is not None,
    )


def build(recipe: str | Path | Recipe, sets: Sequence[str] = (), **settings: Any) -> Result:
    """Build a recipe from Python, with the fields of `Settings`; the first error of
    a failed build is raised."""
    from npuflow.flow.recipe import Recipe, load
    from npuflow.flow.stage import STAGES

    loaded = recipe if isinstance(recipe, Recipe) else load(recipe, sets, lenient=True)
    chosen = Settings(**settings)
    plan = plan_build(loaded, STAGES, chosen)
    return run_plan(plan, loaded, open_cache(loaded, chosen), chosen).check()


def lock_path(recipe: Recipe, settings: Settings) -> Path:
    """NAME.lock beside the products."""
    return output_folder(recipe, settings) / f"{recipe.name}.lock"


def previous_lock_path(recipe: Recipe, settings: Settings) -> Path:
    """The lock before the last one, so that `why` can still answer after a build."""
    return lock_path(recipe, settings).with_suffix(".previous.lock")


def write_lock(plan: Plan, recipe: Recipe, store: Store, settings: Settings, result: Result) -> None:
    """Say in a file that people can read and compare what was built from what."""
    from npuflow.base.errors import StoreError
    from npuflow.flow.lock import lock_of, text, write

    path = lock_path(recipe, settings)
    lock = lock_of(plan, result.refs, store.load)
    try:
        if path.exists() and path.read_bytes() != text(lock).encode():
            path.replace(previous_lock_path(recipe, settings))
        write(path, lock)
    except OSError as error:
        raise StoreError(
            f"the lock {path} cannot be written", because=error.strerror or str(error), code="NF-STORE-004",
        ) from error


def output_folder(recipe: Recipe, settings: Settings) -> Path:
    """Where products and lock go; with --out, several recipes get a folder each."""
    if settings.out is None:
        return recipe.out_dir
    return Path(settings.out, *([recipe.family.name] if recipe.family is not None else []), recipe.name)


def located(error: NpuflowError, recipe: Recipe, plan: Plan | None = None) -> NpuflowError:
    """The error with the recipe's file, key and line: of the key it names, else of a
    table its stage reads."""
    from npuflow.base.tables_toml import path_of

    for fault in error.faults():
        if fault.where.file is not None:
            continue
        keys: Sequence[str | int] = path_of(fault.where.key) if fault.where.key else ()
        if not keys and plan is not None and fault.where.stage in plan:
            keys = _table_of_stage(recipe, plan, str(fault.where.stage))
        if keys or isinstance(fault, InputError):
            place = recipe.at.child(*keys).where()
            fault.at(Where(file=place.file, line=place.line, key=place.key))
    return error


def _table_of_stage(recipe: Recipe, plan: Plan, stage: str) -> Sequence[str]:
    """The first table the stage reads that the recipe writes down; the target's
    last, by the line that names it."""
    step = plan[stage]
    tables = [table_of(type(config)) for config in (*step.listing_configs.values(), *step.configs.values())]
    written = [table.split(".") for table in tables if recipe.has(table)]
    own = [table for table in written if table[0] != "target"]
    return own[0] if own else ["target"] if written else ()
