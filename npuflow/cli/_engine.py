"""What the verbs share of the engine: recipes, stages, plans, the cache's place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.base.tables import Config
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe

if TYPE_CHECKING:
    from npuflow.base.registry import Registry
    from npuflow.cli._gate import Gate
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.store import Store

RecipeArg = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (TOML).", show_default=False)]
RecipeArgs = Annotated[
    list[Path], typer.Argument(metavar="RECIPE...", help="Recipes (TOML).", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key: --set calibrate.method=kl. May be repeated."
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        show_default=False,
        help="Samples that the program computes at once, where the model's file says 1: [model] batch.",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="DIR", help="The cache folder; else NPUFLOW_CACHE, the recipe, or the default."
    ),
]
ProgramArgument = Annotated[Path, typer.Argument(metavar="PROGRAM", help="A .npu file.", show_default=False)]
InputsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT...",
        help="An npz of named arrays, or one npy or picture per input; a folder, a pattern "
        "(frames/%04d.png) or several files are several samples. -: standard input.",
        show_default=False,
    ),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="STAGE=PATH", help="Use this edited artifact as the stage's product."),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--require-key", metavar="KEY",
        help="Refuse a program that is not sealed with this public key: a file, or ed25519:... May be "
        "repeated.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")]


@dataclass(frozen=True)
class GateOptions:
    """What figures are held against, and by how much they may be worse."""

    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Exit with 3 where a figure is worse than here: a file of --record, an earlier build's "
            "report.json, or its output folder.",
        ),
    ] = None
    max_drop: Annotated[
        float,
        typer.Option(
            "--max-drop", min=0.0, help="Allowed drop of the score: percentage points; dB of a score in dB."
        ),
    ] = 0.3
    max_cycles: Annotated[
        float, typer.Option("--max-cycles", min=0.0, help="Per cent more cycles allowed.")
    ] = 1.0
    max_bytes: Annotated[
        float,
        typer.Option("--max-bytes", min=0.0, help="Per cent more external traffic or program size allowed."),
    ] = 1.0
    max_energy: Annotated[
        float, typer.Option("--max-energy", min=0.0, help="Per cent more energy allowed.")
    ] = 1.0
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Keep figures and keys for --baseline and `history`."),
    ] = None

    def gate(self, until: str | None) -> Gate | None:
        """None where nothing is held against a baseline or recorded: nothing of it is imported then."""
        if self.baseline is None and self.record is None:
            return None
        from npuflow.cli._gate import opened
        from npuflow.report.gate.compare import Allowance

        allowed = Allowance(self.max_drop, self.max_cycles, self.max_bytes, self.max_energy)
        return opened(self.baseline, self.record, allowed, until)


def stages() -> Registry:
    """The registry of stages: npuflow's own, or those of the package that NPUFLOW_STAGES names."""
    package = os.environ.get("NPUFLOW_STAGES")
    if not package:
        from npuflow.flow.stage import STAGES

        return STAGES
    from npuflow.base.registry import Registry

    return Registry("stages", package)


def known_tables(registry: Registry) -> list[type[Config]]:
    """Every table of every stage."""
    from npuflow.flow.signature import tables
    from npuflow.flow.stage import steps_of

    return list(dict.fromkeys(cls for stage in steps_of(registry).values() for cls in tables(stage).values()))


def recipe(path: Path, sets: Sequence[str] | None = None) -> Recipe:
    from npuflow.flow.recipe import load

    return load(path, sets or ())


def overrides(pairs: Sequence[str] | None) -> dict[str, Path]:
    """`--override STAGE=PATH` as a mapping; the path must be there."""
    found: dict[str, Path] = {}
    for pair in pairs or ():
        stage, equals, path = pair.partition("=")
        if not equals or not stage or not path:
            raise UsageError(f'--override "{pair}" is not STAGE=PATH', code="NF-USAGE-006")
        if not Path(path).exists():
            raise UsageError(
                f'--override {pair}: no file or folder "{path}"',
                because=f"looked at {Path(path).resolve()}", code="NF-USAGE-007",
            )
        found[stage] = Path(path).resolve()
    return found


def settings(options: object = None, **more: Any) -> Settings:
    """The build settings that a verb's dataclass of options has under the same names, or keywords."""
    names = {field.name for field in fields(Settings)}
    stated = {k: v for k, v in vars(options).items() if k in names} if options is not None else {}
    chosen = replace(Settings(), **stated, **more)
    paths, out = overrides(stated.get("override")), chosen.out
    return replace(
        chosen, force=tuple(chosen.force or ()), override=paths,
        out=Path(out).absolute() if out is not None else None,
    )


def typed(context: typer.Context) -> list[str]:
    """The words after the verb, as the user typed them."""
    words = (context.find_root().obj or {}).get("argv", [])
    return list(words[1:])


def plan(recipe: Recipe, until: str | None = None, override: Sequence[str] | None = None) -> Plan:
    """The wired plan of a recipe."""
    return plan_recipe(recipe, stages(), Settings(until=until, override=overrides(override)))


def store(recipe: Recipe | None, flag: str | Path | None) -> Store:
    """The cache, where the flag, the environment, the recipe or the default puts it."""
    return open_cache(recipe, Settings(cache=flag))


def with_batch(sets: list[str] | None, batch: int | None) -> list[str]:
    """The values that `--set` gives, and that of `--batch`."""
    return [*(sets or []), *([] if batch is None else [f"model.batch={batch}"])]
