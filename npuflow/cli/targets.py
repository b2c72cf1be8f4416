"""The NPUs that npuflow knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from npuflow.base.errors import NpuflowError, RecipeError, UsageError, suggestion


def targets(
    name: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="A name, or the path of a TOML file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line on standard output.")
    ] = False,
) -> None:
    """List the shipped targets, or check and show one."""
    from npuflow.base.tables import canonical
    from npuflow.cli._events import emit
    from npuflow.program.container import fingerprint, target_meta

    shown = [path_of(name)] if name is not None else sorted(_folder().glob("*.toml"))
    for path in shown:
        target = target_of(path)
        if as_json:
            emit({
                "event": "target",
                "name": path.stem,
                "about": target.about,
                "fingerprint": fingerprint(target),
                **target_meta(target),
                **({"energy": canonical(target.energy)} if target.energy is not None else {}),
            })
        elif name is None:
            typer.echo(f"{path.stem:16s} {target.about}")
        else:
            _show(path, target, fingerprint(target))


def _folder() -> Path:
    from npuflow.flow.recipe_files import library_folders

    return library_folders()["target"]


def path_of(name: str) -> Path:
    found = _folder() / f"{name}.toml"
    if found.is_file():
        return found
    if name.endswith(".toml") and Path(name).is_file():
        return Path(name)
    known = sorted(p.stem for p in _folder().glob("*.toml"))
    raise UsageError(f'there is no target "{name}"', hint=suggestion(name, known), code="NF-USAGE-034")


def target_of(path: Path) -> Any:
    """The target of a file; all of its faults at once."""
    from npuflow.flow.recipe import load
    from npuflow.hw.target import Target

    recipe = load(None, tables={"target": str(path.resolve())}, lenient=True)
    target, faults = recipe.read(Target)
    named = _unknown(recipe.tables["target"].get("limits"), recipe.at.child("target", "limits"))
    faults = [*recipe.lost.values(), *faults, *named]
    if target is None or faults:
        raise RecipeError(faults)
    return target


def _unknown(limits: Any, at: Any) -> list[NpuflowError]:
    """Operators that the file names and npuflow does not have."""
    from npuflow.ir.op import OPS

    table = limits if isinstance(limits, dict) else {}
    rules = [
        r if isinstance(r, dict) else {}
        for r in table.get("rules", [])
        if isinstance(table.get("rules"), list)
    ]
    named = [(at.child("refuse"), table.get("refuse"))]
    named += [(at.child("rules", i, "operators"), rule.get("operators")) for i, rule in enumerate(rules)]
    known, found = sorted(OPS.names()), []
    for place, names in named:
        for name in names if isinstance(names, list) else []:
            if isinstance(name, str) and name.lower() not in known:
                found.append(RecipeError(
                    f'there is no operator "{name}"',
                    where=place.where(), hint=suggestion(name, known), code="NF-TARGET-001",
                ))
    return list(found)


def _show(path: Path, target: Any, fingerprint: str) -> None:
    c, m = target.compute, target.memory
    comment = [line.lstrip("# ").rstrip() for line in path.read_text().splitlines() if line.startswith("#")]
    typer.echo(f"{target.name or path.stem}: {target.about}\n" + "\n".join(comment) + "\n")
    tops = 2 * c.cores * c.macs * c.clock_mhz / 1e6
    balance = c.cores * c.macs / m.external_bandwidth
    rate = m.external_bandwidth * c.clock_mhz / 1e3
    typer.echo(
        f"peak         {tops:.2f} TOPS at 8 bits, {rate:.1f} GB/s; balanced at {balance:.0f} MACs per byte"
    )
    tables = ("compute", "numerics", "memory", "dma", "limits", "host")
    for table in (*tables, *(("energy",) if target.energy is not None else ())):
        for key, value in vars(getattr(target, table)).items():
            if key != "rules":
                shown = ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else value
                typer.echo(f"{table + '.' + key:<32s} {shown}")
    for rule in target.limits.rules:
        about = f"  ({rule.about})" if rule.about else ""
        typer.echo(
            f"{', '.join(rule.operators)}: {rule.need}{f' when {rule.when}' if rule.when else ''}{about}"
        )
    typer.echo(f"fingerprint  {fingerprint}")
