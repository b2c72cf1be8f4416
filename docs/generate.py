"""Writes reference pages and pages of rooms from the code: `python docs/generate.py`. `--check` compares
those that the tree holds."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS), str(ROOT)]  # the pages' own code, and the tests, which are not installed
NOTE = "<!-- Written by docs/generate.py from the code; do not edit. -->\n\n"


def room_page(room: str) -> str:
    """A folder of the package: its noun, public names, imports and files."""
    import rooms

    return f"# {room}\n\n{NOTE}{rooms.page(room)}"


def caption(path: Path) -> str:
    from npuflow.base import registry

    return registry.caption(ast.get_docstring(ast.parse(path.read_text())))


def recipe_page() -> str:
    """Every table and key that a recipe may have."""
    from npuflow.base.tables import table_of
    from npuflow.cli._template import in_order
    from npuflow.flow.recipe import SETTINGS
    from npuflow.flow.stage import STAGES

    text = "# Keys of a recipe\n\n" + NOTE
    text += (
        "A recipe is a TOML file. Tables belong to the stages that read them; unknown tables and keys are "
        "errors.\n"
        "In addition to the tables below a recipe may have:\n\n"
        "- `extends = \"base.toml\"` (or an array): the recipes whose keys this one overrides, relative to "
        "it.\n"
        "- `target = \"NAME\"`: a file of `npuflow/targets/`, or a path that ends in `.toml`; its keys are "
        "the `target.*`\n"
        "  tables. To override some of them: `[target]` with `extends = \"NAME\"`, and the keys in "
        "`[target.numerics]` etc.\n"
        "- `[sweep]`: keys, dotted, each with a list of values, for `npuflow sweep`; `build` passes over "
        "it.\n\n"
        "Paths are relative to the file that writes them; `pkg:NAME/FILE` is a file inside an installed "
        "package, `pkg:DISTRIBUTION==VERSION:NAME/FILE` the same, with what to install.\n"
    )
    tables = [(cls, on) for cls, on in in_order(STAGES) if table_of(cls) != "target"]
    tables.sort(key=lambda table: table_of(table[0]).startswith("target."))     # a library has them
    for cls, on in [*tables, *((cls, True) for cls in SETTINGS)]:
        text += f"\n## [{table_of(cls)}]\n\n"
        about = inspect.cleandoc(cls.__doc__ or "")
        text += f"{about}\n\n" if about and not about.startswith(f"{cls.__name__}(") else ""
        text += "" if on else "Optional: without the table its stages do not run.\n\n"
        text += "\n".join(keys(cls)) + "\n"
    return text


def keys(cls: Any, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """A table's keys as rows; nested tables with dotted names."""
    from npuflow.base.tables import Config, hints, options_class, registry_fields
    from npuflow.base.tables_read import wanted
    from npuflow.base.tables_schema import field_docs
    from npuflow.base.tables_write import sketch

    if depth == 0:
        yield "| key | value | default | meaning |"
        yield "| --- | --- | --- | --- |"
    docs = field_docs(cls)
    for name, default in sketch(cls):
        kind = hints(cls)[name]
        shown = (
            f"`{default}`"
            if default is not None and len(default) <= 40
            else ""
            if default is None
            else "a table"
        )
        meaning = " ".join(docs.get(name, "").split()).replace("|", "\\|")
        yield f"| `{prefix}{name}` | {wanted(kind)} | {shown} | {meaning} |".replace("|  |", "| |")
        inner = [
            k for k in (kind, *getattr(kind, "__args__", ())) if isinstance(k, type) and issubclass(k, Config)
        ]
        if inner and depth < 2:
            yield from keys(inner[0], f"{prefix}{name}.", depth + 1)
    for registry in registry_fields(cls).values():
        for entry in sorted(registry.names()):
            options = options_class(registry, entry)
            if options is not None and hints(options) and depth < 2:
                yield from keys(options, f"{prefix}{entry}.", depth + 1)


def cli_page() -> str:
    """Every verb with its arguments and options."""
    import typer

    from npuflow.cli._app import application

    text = "# The command line\n\n" + NOTE
    text += (
        "Exit codes: 0 done, 1 the build failed, 2 the user's input is wrong, 3 worse than the "
        "baseline allows, 130 interrupted.\n\n"
        "The cache is, in this order: `--cache DIR`, the environment's `NPUFLOW_CACHE`, the recipe's "
        "`[build] cache`,\n"
        "the nearest folder `cache/` with a `CACHEDIR.TAG` at or above the recipe, and `~/.cache/npuflow`.\n"
        "`NO_COLOR` turns colours off; where standard error is not a terminal, progress is plain lines.\n"
    )
    group: Any = typer.main.get_command(application())
    for name, command in sorted(group.commands.items()):
        text += verb(f"npuflow {name}", command)
    return text


def verb(name: str, command: Any) -> str:
    if hasattr(command, "commands"):
        return "".join(verb(f"{name} {inner}", sub) for inner, sub in sorted(command.commands.items()))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    usage = " ".join(
        [name, *(p.metavar or p.name.upper() for p in arguments), *(["[OPTIONS]"] if options else [])]
    )
    text = f"\n## {name}\n\n{inspect.cleandoc(command.help or '').strip()}\n\n```text\n{usage}\n```\n\n"
    if options:
        text += "| option | meaning |\n| --- | --- |\n"
        for option in options:
            value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
            text += f"| `{', '.join(option.opts)}{value}` | {option.help or ''} |\n"
    return text


def json_page() -> str:
    """The JSON lines of every verb."""
    from npuflow.cli._line_kinds import KINDS, VERSION
    from npuflow.cli._line_schema import VERBS, parts_of
    from npuflow.report.accuracy import FIELDS as OUTPUT_FIELDS

    text = "# JSON lines\n\n" + NOTE
    text += (
        "With `--json` every verb prints one JSON object per line on standard output, version "
        f"{VERSION}; what a person\n"
        "should see besides is on standard error. A line's kind is its `event`. Readers should pass over "
        "kinds and fields they do\n"
        "not know: new ones may come at any time; the version changes when a field changes its meaning or "
        "goes away. Numbers that\n"
        "JSON lacks (infinite, NaN) are text. `npuflow schema --lines` prints all of this as JSON Schema. An "
        "error is a line of the\n"
        "kind `error`, of every verb. The last line of a recipe that is built is its `summary`; with several "
        "recipes every line has a\n"
        "field `recipe` as well. How to use them in a loop: [automate](../how-to/automate.md).\n"
        "\n| verb | kinds of lines |\n| --- | --- |\n"
    )
    for name, kinds in VERBS.items():
        text += f"| `{name}` | {', '.join(f'[{kind}](#{kind})' for kind in kinds)} |\n"
    text += "\n`npuflow show strategy --json` prints one document, a part of a recipe.\n"
    for kind, fields in KINDS.items():
        text += f"\n## {kind}\n\n| field | type | meaning |\n| --- | --- | --- |\n"
        for field_name, said in fields.items():
            kind_of, meaning = parts_of(said)
            text += f"| `{field_name}` | {kind_of} | {meaning} |\n"
    text += (
        "\n# report.json\n\nBeside the page, `report.json` holds its data. `accuracy` has the build's "
        "sentence: "
        "`text`,\n`hint`, and `ok` (null where nothing could be judged); `noisy` names outputs that have "
        "more noise\nthan is asked for and no other fault; each of `warnings` beside the sentence has a "
        "`text` and a `hint`;\neach row of `accuracy.outputs` is one output as it was judged:\n\n"
        "| field | meaning |\n| --- | --- |\n"
    )
    return text + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OUTPUT_FIELDS.items())


def operators_page() -> str:
    """The operators with integers of their own, from their files."""
    from npuflow.ir.op import OPS, Op

    text = "# Operators\n\n" + NOTE
    text += (
        "ONNX operators with an integer form. Whether a target runs a node depends on its attributes, "
        "shapes and the\n"
        "target's limits: `npuflow inspect MODEL --target T` says so node by node, with the reason. The "
        "second table lists\n"
        "operators that rewrite rules spell in those of the first. Every other operator of a valid model "
        "runs on the host.\n\n"
        "| file | ONNX | what it computes | one scale in and out | takes a clip |\n| --- | --- | --- | --- "
        "| --- |\n"
    )
    for name in OPS.names():
        op = OPS[name]
        if op.accepts is Op.accepts:      # read as another operator, or a part of the host
            continue
        shares, clips = ("yes" if flag else "" for flag in (op.shares_scale, op.fuses_clip))
        about = caption(ROOT / "npuflow" / "ops" / f"{name}.py").replace("|", "\\|")
        text += f"| `{name}` | {op.onnx} | {about} | {shares} | {clips} |\n".replace("|  |", "| |").replace(
            "|  |", "| |"
        )
    return text + _spelled()


def lang_page() -> str:
    """The functions of `npuflow.lang`, from the operator registry."""
    import inspect

    from npuflow import lang
    from npuflow.lang.functions import names

    text = "# Functions of npuflow.lang\n\n" + NOTE
    text += (
        "One for every operator file ([how to write a network](../how-to/write-a-network.md)). Operands come "
        "first, attributes by\nname; `help(lang.conv)` describes them. `lang.onnx(NAME, ...)` applies any "
        "other operator of ONNX.\n\n| function | what it computes |\n| --- | --- |\n"
    )
    for name in names():
        made = getattr(lang, name)
        about = (made.__doc__ or "").splitlines()[0].replace("|", "\\|")
        text += f"| `{name}{inspect.signature(made)}` | {about} |\n"
    return text


def _spelled() -> str:
    """Operators without integers of their own that a rule puts into others."""
    import onnx

    from npuflow.rules import RULES

    # onnxruntime's
    own = ("MultiHeadAttention", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
    names = {name.lower(): name for name in (*(s.name for s in onnx.defs.get_all_schemas()), *own)}
    found: dict[str, list[str]] = {}
    for rule in RULES.names():
        for kind in RULES[rule].triggers:
            if kind.startswith("host:") and rule.startswith(("spell_", "unroll_", "batchnorm")):
                found.setdefault(names.get(kind[5:], kind[5:]), []).append(rule)
    text = "\n## Spelled in others\n\n"
    text += (
        "Rules keep the float results. What a rule leaves alone, and why, is the reason of its placement.\n\n"
    )
    text += "| ONNX | rule | how |\n| --- | --- | --- |\n"
    for name, rules in sorted(found.items()):
        for rule in rules:
            text += f"| {name} | `{rule}` | {caption(ROOT / 'npuflow' / 'rules' / f'{rule}.py')} |\n"
    text += (
        "\nA Loop or Scan of a known number of steps is written out when the model is read, and an If whose "
        "condition is\n"
    )
    text += (
        "known. Operators over more than four dimensions work on a view of four (`fit_rank`), windows of "
        "three dimensions\n"
    )
    text += (
        "on planes (`fit_window`), transposed convolutions with strides on one phase at a time where that "
        "pays\n"
    )
    return text + "(`split_deconv`).\n"


def isa_page() -> str:
    """The instruction set, from the files of its opcodes and the table of element types."""
    from npuflow.hw import isa
    from npuflow.hw.elements import TABLE

    text = "# The instruction set\n\n" + NOTE
    text += "\n\n".join(inspect.cleandoc(isa.__doc__ or "").split("\n\n")[1:]) + "\n\n"
    text += f"Rounding modes: {', '.join(isa.ROUNDINGS)}.\n\n## Element types\n\n"
    text += (
        "Packed elements follow each other bit by bit, the first in the lowest bits of the first byte; "
        "strides of packed\n"
    )
    text += "operands count elements. A type without a number is in no command yet.\n\n"
    text += "| type | number | bits | least and largest | operands |\n| --- | --- | --- | --- | --- |\n"
    for row in TABLE:
        span = "{} .. {}".format(*row.range) if row.kind == "int" else f"{row.exponent} bits of exponent"
        packed, code = " packed" if row.packed else "", "" if row.code is None else row.code
        text += f"| `{row.name}` | {code} | {row.bits}{packed} | {span} | {', '.join(row.roles)} |\n".replace(
            "|  |", "| |"
        )
    for name, opcode in isa.opcodes().items():
        about = caption(ROOT / "npuflow" / "isa" / f"{name.lower()}.py")
        text += (
            f"\n## {opcode.code} {name}\n\n{about} Queue "
            f"{opcode.queue}.\n\n{inspect.cleandoc(opcode.__doc__ or '')}\n\n"
        )
        text += "Fields: " + ", ".join(map(_field, opcode.fields)) + ".\n"
    return text


def _field(field: Any) -> str:
    more = (
        [f"x{field.width}"] * (field.width > 1)
        + ["signed"] * field.signed
        + ["may be absent"] * field.optional
    )
    return " ".join([f"`{field.name}`", *more])


def targets_page() -> str:
    """The keys of target files, the variables of their rules, and the shipped targets."""
    from npuflow.base.tables import table_of
    from npuflow.hw.energy import Energy
    from npuflow.hw.limits import VARIABLES
    from npuflow.hw.target import Compute, Dma, HostProcessor, LimitRule, Limits, Memory, Numerics
    from npuflow.testing.target import load

    text = "# Targets\n\n" + NOTE
    text += (
        "A target is a TOML file: `name`, `about`, and the tables below, each key with a default. All "
        "faults of a file are\n"
        "reported at once (`npuflow targets FILE.toml`). How to write one: [add a "
        "target](../how-to/add-a-target.md).\n"
    )
    for cls in (Compute, Numerics, Memory, Dma, Limits, LimitRule, HostProcessor, Energy):
        name = "[limits.rules]" if cls is LimitRule else table_of(cls).removeprefix("target.")
        text += f"\n## [{name}]\n\n{inspect.cleandoc(cls.__doc__ or '')}\n\n"
        text += "\n".join(keys(cls, depth=0)) + "\n"
    text += "\n## Variables of rules\n\nA rule holds for nodes that have all of its variables. "
    text += "Functions: `ceil`, `floor`, `min`, `max`, `abs`.\n\n"
    text += "| name | meaning |\n| --- | --- |\n" + "".join(
        f"| `{n}` | {meaning} |\n" for n, meaning in VARIABLES.items()
    )
    text += "\n## Shipped targets\n\nModels of NPUs, not vendors' products.\n"
    for path in sorted((ROOT / "npuflow" / "targets").glob("*.toml")):
        target = load(path)
        comment = " ".join(
            line.lstrip("# ").rstrip() for line in path.read_text().splitlines() if line.startswith("#")
        )
        text += f"\n### {path.stem}\n\n{target.about}\n\n{comment}\n\n| key | value |\n| --- | --- |\n"
        tables = ("compute", "numerics", "memory", "dma", "limits")
        for table in (*tables, *(("energy",) if target.energy is not None else ())):
            rows = {
                k: v for k, v in vars(getattr(target, table)).items() if k != "rules" and v not in (0, ())
            }
            text += "".join(f"| `{table}.{k}` | {_shown(v)} |\n" for k, v in rows.items())
        if target.limits.rules:
            text += "\n" + "".join(f"- {', '.join(r.operators)}: {_rule(r)}\n" for r in target.limits.rules)
    return text


def _rule(rule: Any) -> str:
    return (
        f"`{rule.need}`"
        + (f" when `{rule.when}`" if rule.when else "")
        + (f" ({rule.about})" if rule.about else "")
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def mutations_page() -> str:
    """The proofs that tests accept for a changed command that no run shows."""
    from tests.sim.equivalence import RULES

    text = "# Changed commands\n\n" + NOTE
    text += (
        "Tests flip single bits in every word of every opcode's commands, with the digests ignored. A flip "
        "must\n"
    )
    text += (
        "give a difference in memory, a hazard, or an error that names the command; or one of these proofs "
        "that it does not\n"
    )
    text += "matter.\n"
    text += (
        "None may be left over. Where memories at random show nothing, operands that must show it are "
        "computed: a result\n"
    )
    text += (
        "that is scaled, rounded and clamped goes from code to code at known numbers; two commands differ "
        "where these do.\n\n"
    )
    text += "| proof | why nothing changes |\n| --- | --- |\n"
    text += "| order | Only the waits or the node index differ, and the program has no hazards: "
    text += "whatever order the waits allow, every read finds the same bytes. |\n"
    text += (
        "| all codes | An element-wise command with operands of at most 16 bits was run on each code, or "
        "each pair; "
    )
    text += "an operand whose every code gives the same result may lie anywhere. |\n"
    text += (
        "| steps | The results go from each code to the next at the same numbers, or no operands make one "
        "of the numbers "
    )
    text += "between. |\n"
    for rule in RULES:
        text += f"| {rule.__name__.replace('_', ' ')} | {' '.join((rule.__doc__ or '').split())} |\n"
    return text


def errors_page() -> str:
    """Every error code, from the places that raise it."""
    from npuflow.cli._catalogue import catalogue
    from npuflow.cli._codes import AREAS, EXPLAINED

    text = "# Error codes\n\n" + NOTE
    text += (
        "Every error has a code, on the terminal and in the JSON lines. `npuflow explain CODE` prints the "
        "text of this page.\n"
        "Words in `<...>` are filled in when the error is reported. Codes keep their meaning; new ones may "
        "come at any time.\n"
    )
    entries = catalogue().values()
    for area, about in AREAS.items():
        text += f"\n## {area}\n\n{about}\n"
        for entry in (e for e in entries if e.area == area):
            text += f"\n### {entry.code}\n\n" + "".join(
                f"    {line}\n" for m in entry.messages for line in m.splitlines()
            )
            text += f"\n{EXPLAINED[entry.code]}\n" if entry.code in EXPLAINED else ""
            rows = [
                (label, part)
                for label, parts in (("because", entry.because), ("try", entry.hints))
                for part in parts
            ]
            text += "\n" if rows else ""
            text += "".join(f"- {label}: {_verbatim(part)}\n" for label, part in rows)
    return text


def _verbatim(text: str) -> str:
    """A text in which <names> are no HTML."""
    return " ".join(text.split()).replace("<", "\\<")


def caffe_page() -> str:
    """Every kind of layer that Caffe files may have."""
    from npuflow.frontends.caffe.convert import GONE
    from npuflow.frontends.caffe.layers import LAYERS

    text = "# Caffe layers\n\n" + NOTE
    text += f"The {len(LAYERS)} kinds of layers that are read ([how to](../how-to/model-files.md#caffe)). "
    text += f"Left out, as they have no part in inference: {', '.join(GONE)}, all data and loss layers.\n\n"
    text += "| layer | forms |\n| --- | --- |\n"
    for kind in sorted(LAYERS, key=str.lower):
        made = LAYERS[kind]
        text += f"| `{kind}` | {caption_of(made.func if isinstance(made, partial) else made)} |\n"
    return text


def caption_of(function: Any) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def promises_page() -> str:
    """Every sentence that promises behaviour, with the tests that prove it."""
    import promises

    text = "# Promises\n\n" + NOTE
    text += (
        "Sentences of the README and the how-to pages that promise behaviour, and the tests that prove them, "
        "most of them on\nthe installed wheel (`tests/acceptance`). A sentence gets its id from the comment "
        "`<!-- promise: ID -->` behind it, a\ntest from `@pytest.mark.promise(\"ID\")`; an id without a test "
        "fails the tests.\n\n"
    )
    return text + promises.page()


def studies_page() -> str:
    """Every study, with the commit that its figures were made at."""
    text = "# Studies\n\n" + NOTE
    text += (
        "What was measured once, each with the commit it was made at; `benchmarks/NAME.py` makes it again. "
        "Figures that\nare held to a bar are in [the results](../../benchmarks/results.md).\n\n"
        "| study | made at |\n| --- | --- |\n"
    )
    for path in sorted((DOCS / "studies").glob("[0-9]*.md")):
        title, _, made, *_ = path.read_text().splitlines()
        commit, day = re.fullmatch(r"Made at commit (\w+) on ([\d-]+)(?: by `\S+`)?\.", made).groups()
        text += f"| {path.name[:4]} [{title.removeprefix('# ')}]({path.name}) | {commit}, {day} |\n"
    return text


# Pages of the tree, whose diffs a reader of a change wants to see.
KEPT = {
    "promises.md": promises_page,
    "studies/README.md": studies_page,
    **{f"rooms/{p.name}.md": partial(room_page, p.name) for p in sorted((ROOT / "npuflow").iterdir())
       if (p / "__init__.py").exists() and p.name != "targets"},
}
# Pages that repeat docstrings: written where someone reads them, and not kept in the tree.
BUILT = {
    "reference/caffe.md": caffe_page,
    "reference/errors.md": errors_page,
    "reference/operators.md": operators_page,
    "reference/lang.md": lang_page,
    "reference/isa.md": isa_page,
    "reference/mutations.md": mutations_page,
    "reference/targets.md": targets_page,
    "reference/recipe.md": recipe_page,
    "reference/cli.md": cli_page,
    "reference/json.md": json_page,
}


def main(check: bool) -> int:
    changed = []
    for name, make in {**KEPT, **({} if check else BUILT)}.items():
        path, text = DOCS / name, make()
        if path.exists() and path.read_text() == text:
            continue
        changed.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if changed:
        sys.stdout.write(("stale: " if check else "wrote ") + ", ".join(changed) + "\n")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
