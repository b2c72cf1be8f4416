"""What `npuflow inspect` looks at: a model with options, or what a recipe says of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import RecipeError
from npuflow.base.paths import absent
from npuflow.frontends import Bindings, Reading

if TYPE_CHECKING:
    from npuflow.flow.recipe import Recipe
    from npuflow.hw.target import Target
    from npuflow.ir.graph import Graph
    from npuflow.place.place import NodePlacement

DEFAULT = "edge-4t"


@dataclass(frozen=True)
class InspectRequest:
    """A model, what is fixed of it, the rules left out, and the target, read from `recipe`."""

    model: Path
    bindings: Bindings
    skip: tuple[str, ...]
    chip: Target
    target: str
    recipe: Recipe
    batch: int = 0
    loops: bool = True

    def batched(self, reading: Reading) -> Reading:
        """What was read, for the batch that is asked for."""
        from npuflow.stages.model import batched

        return batched(reading, self.batch)

    def place(self, graph: Graph) -> NodePlacement:
        """Who runs each node, by the stage that a build runs, with the tables that it reads."""
        from npuflow.flow.signature import signature
        from npuflow.flow.stage import STAGES
        from npuflow.stages.parse import Parsed

        stage = STAGES["placement"]
        configs: dict[str, Any] = {
            name: _read(self.recipe, [cls])[0] for name, cls in signature(stage).tables.items()
        }
        found: NodePlacement = stage.run({"graph": Parsed(graph), **configs}).placed
        return found


def asked(path: Path, target: str | None, options: Bindings, sets: Sequence[str]) -> InspectRequest:
    """A recipe's own model, target and bindings, with the options over them; a model file is a recipe of the
    options alone.
    """
    from npuflow.base.tables_files import existing_file
    from npuflow.cli import targets
    from npuflow.flow.recipe import load
    from npuflow.hw.target import Target
    from npuflow.input.sources import address
    from npuflow.stages.model import ModelTable
    from npuflow.stages.parse import Parse

    if path.suffix == ".toml":
        chosen = [f'target="{targets.path_of(target).resolve()}"'] if target is not None else []
        recipe = load(path, [*chosen, *sets], lenient=True)
    else:
        text = str(path.resolve())
        if str(path).startswith("python:"):
            made = existing_file(str(path), Path.cwd())
            text = f"python:{made.path}:{made.function}"
        elif not path.is_file() and not path.is_dir():
            raise absent(path, "a model file, or a recipe that ends in .toml")
        name = str(targets.path_of(target or DEFAULT).resolve())
        recipe = load(
            None, sets, tables={"target": name, "model": {"path": text}}, lenient=True
        )
    table, parse, chip = _read(recipe, [ModelTable, Parse, Target])
    own = table.bindings
    bindings = Bindings(
        {**own.inputs, **options.inputs}, {**own.dims, **options.dims}, options.outputs or own.outputs,
        {**own.constants, **options.constants}, own.max_steps, own.largest,
    )
    return InspectRequest(
        address(table.path), bindings, tuple(parse.skip), chip, target or "the recipe's target", recipe,
        table.batch, parse.loops,
    )


def _read(recipe: Recipe, classes: Sequence[type[Any]]) -> list[Any]:
    """The recipe's tables of these classes, or every fault of the recipe."""
    from npuflow.cli._engine import known_tables
    from npuflow.flow.stage import STAGES

    known = [*known_tables(STAGES), *classes]
    faults = recipe.faults(known, classes)
    if faults:
        raise RecipeError(faults)
    return [recipe.read(cls, known)[0] for cls in classes]
