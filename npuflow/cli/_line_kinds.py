"""The lines that verbs print with --json: every kind with its fields, types and meanings.

A field is "TYPE: meaning". Types: string, integer, number, boolean, null, object, any, a literal in quotes;
"list of TYPE", "map of TYPE" (names to values), and alternatives with "or". A name that ends with "?" may be
absent. Numbers that JSON lacks (infinite, NaN) are text. Every line has `event`, its kind.
"""

from __future__ import annotations

VERSION = 1
"""Version of the JSON lines. Raised when a field changes its meaning or goes away; new
fields may come at any time."""

Fields = dict[str, str]

BUILDS: dict[str, Fields] = {
    "step": {
        "stage": "string: the step's name: a stage, or a part of one such as `statistics.items`",
        "item": "string or null: the item's id in a fan-out",
        "key": "string or null: the step's key; null if an input was never made",
        "status": '"hit" or "ran" or "failed" or "skipped" or "run" or "maybe": the last two of `plan`',
        "seconds": "number: what the step took; for a hit, what it took when it ran",
        "output": "string or null: the digest of the step's product",
        "reason": "string: why it ran, failed or was skipped; may be empty",
        "figures?": "object: what the terminal shows of the step: name -> number or text; of `build` alone",
        "recipe?": "string: of which recipe it is, where there are several",
    },
    "progress": {
        "stage": "string: a fan-out of which a task has finished",
        "done": "integer: items settled so far",
        "total": "integer: its items",
        "hits": "integer: of those settled, how many were in the cache",
        "rate": "number: items that ran, a second",
        "shard": "integer: items of the collection that the largest task so far was given",
        "workers": "integer: processes that have worked on the stage",
        "memory": "integer: bytes: the most that one of them has had in memory at once",
        "recipe?": "string: of which recipe it is, where there are several",
    },
    "profile": {
        "stages": "list of object: rows of what ran, the longest first: stage, ran and hit (steps), seconds "
        "and processor (of its workers), memory (bytes, the most of one worker); of `build --profile` alone",
        "recipe?": "string: of which recipe it is, where there are several",
    },
    "point": {
        "values": "object: the keys of the sweep with their values at this point",
        "status": '"done" or "failed" or "planned": how its build ended; the last one of --dry-run',
        "figures": "object: numbers of its steps' summaries: `stage.name` -> number; or run, maybe, hit",
        "best": "boolean: whether no other point beats it by the goals",
        "seconds": "number: what its build took",
        "products": "map of string: product name -> path of the file in the point's own folder",
        "errors": "list of object: what failed, as in an error's line",
    },
    "sweep": {
        "points": "integer: how many there are",
        "failed": "integer: how many of them failed",
        "goals": "list of string: what decided which are best, in words",
    },
    "row": {
        "network": "string: the name of a recipe of `npuflow zoo`",
        "target": "string: what it was built for",
        "status": '"built" or "failed" or "not installed": the last where a package that it names is absent',
        "score_name": "string: what the metric calls its first figure; empty without one",
        "float": "number or null: the float network's score, where the metric has one",
        "score": "number or null: the program's",
        "seconds": "number: what all steps took when they ran",
        "figures": "object: numbers of its steps' summaries: `stage.name` -> number",
        "notes": "list of string: warnings; of a row that is not built, why",
    },
    "zoo": {
        "rows": "integer: networks times targets",
        "ran": "integer: rows for which a step ran",
        "failed": "integer: rows that failed", "absent": "integer: rows whose package is not installed",
        "files": "list of string: the page, and its picture",
    },
    "gate": {
        "build": "string: the build or the point of the sweep; empty where there is one",
        "figure": '"score" or "sqnr_db" or "cycles" or "external_bytes" or "program_bytes" or "energy_uj": '
        "what is compared",
        "before": "number: the baseline's",
        "now": "number or null: this build's; null where it is not measured any more",
        "worse_by": "number: how much worse it is, in `unit`; negative: better",
        "allowed": "number: how much worse it may be",
        "unit": '"points" or "dB" or "%": points of a hundred, dB, or per cent of the baseline\'s',
        "verdict": '"worse" or "gone" or "better" or "same" or "within": the first two '
        "end the command with 3",
        "keys": "list of string: what changed it, nearest first: keys of the recipe with both values, code, "
        "files",
    },
    "history": {
        "commit": "string: its first ten digits; where no commit is known, the name of the file",
        "made": "string: the date of the commit, else that of the record; empty of reports",
        "build": "string: the name of the build or of the point of a sweep",
        "score": "number or null: and the other figures of a record: score_name, samples, sqnr_db, cycles, "
        "external_bytes, program_bytes, energy_uj",
    },
    "summary": {
        "version": f"integer: the version of these lines, {VERSION}",
        "hit": "integer: steps found in the cache",
        "ran": "integer: steps that ran; in `plan`: `run` and `maybe` count what would",
        "failed": "integer: steps that failed",
        "skipped?": "integer: steps that could not run, as one that failed stands before them; not of `plan`",
        "seconds": "number: wall-clock time",
        "outputs": "map of string: stage -> digest of its product",
        "products": "map of string: product name -> path of the file in the output folder",
        "verdict?": "string or null: one sentence about the accuracy of the outputs, with numbers; null if "
        "the build ended before that",
        "verdict_ok?": "boolean or null: whether they are close to the float model's; null where nothing "
        "could be judged",
        "verdict_hint?": "string or null: what to try; may be empty",
        "recipe?": "string: of which recipe it is, where there are several",
    },
    "warning": {
        "message": "string: something the build survived: a repair, an unreachable remote cache",
        "stage": "string or null: the stage concerned",
        "hint": "string: what to do about it; may be empty",
        "recipe?": "string: of which recipe it is, where there are several",
    },
    "error": {
        "code?": "string: such as NF-DATA-007: `npuflow explain CODE`; [all of them](errors.md)",
        "message": "string: one fault of the user's input, or what failed; it is on standard error as well",
        "where?": "object: file, line, key, stage, item, node, value, as far as known",
        "because?": "string: the reason, if known",
        "hint?": "string: what to try, if known",
        "exit": "integer: the exit code that follows",
    },
}
"""Of `build`, `plan`, `sweep`; `error` is of all verbs."""

ANSWERS: dict[str, Fields] = {
    "why": {
        "step": "string: the step that is asked about, STAGE or STAGE/ITEM",
        "runs": '"yes" or "maybe" or "no": whether a build would run it',
        "reasons": "list of object: what changed: stage, status, and changes, code and items as lists of "
        "{field, old, new}; causes: the same of the stages before it",
        "text": "string: the same in words",
    },
    "ledger": {
        "output": "string: the output whose noise is split",
        "sqnr": "number: its SQNR in dB",
        "samples": "integer: held-out samples behind it",
        "before": "number or null: dB without the correction of biases, where that takes noise away",
        "entries": "list of object: layer, tensor, cause, share of the noise, alone and without (dB), fix, "
        "cycles (of the fix, as a share of all); where known source, as of `layer`",
    },
    "difference": {
        "stage": "string: a stage that differs between two locks",
        "status": '"changed" or "new" or "gone" or "same": same: the same inputs gave another product',
        "output": "object or null: field, old and new digest of its product; null: the same product",
        "changes": "list of object: {field, old, new} of what it depends on",
        "code": "list of object: {field, old, new} of definitions",
        "items": "list of object: {field, old, new} of items",
    },
    "recipe": {
        "name": "string: the recipe's",
        "text": "string: a TOML document that builds the same, with every default",
        "tables": "object: the same as tables",
    },
    "plan": {
        "plan": "string: what proposed it",
        "cycles": "number or null: of the whole network",
        "result": "string: what became of it",
        "taken": "boolean: whether it is the one",
    },
    "stored": {
        "stage": "string: of a step; empty of an artifact",
        "item": "string or null: of a fan-out",
        "key": "string or null: the step's",
        "output": "string: the digest of the product",
        "kind": "string: of the product",
        "folder": "string: where it is; empty of a collection",
        "seconds": "number or null: what the step took",
        "summary": "object: what it says of itself",
        "depends": "object: the key's parts: code, config, inputs, files, libraries",
        "files": "map of integer: files of the artifact with their bytes",
        "log": "string: what the step said",
    },
    "rewrite": {
        "rule": "string: the rule that applied",
        "text": "string: nodes taken, and nodes in their place",
    },
    "statistics": {
        "tensor": "string: its name",
        "low": "number or string: and high, mean, deviation, p99.9, over all calibration samples",
        "zeros": "integer: of `count` values",
        "count": "integer: values",
        "range": "list of number or null: the range that it is quantised in, if that is chosen",
        "method": "string: what chose it; may be empty",
        "suggestions": "list of object: kind and text",
    },
    "verdict": {
        "ok": "boolean or null: whether all outputs are close; null where nothing could be judged",
        "text": "string: one sentence with numbers",
        "hint": "string: what to try; may be empty",
        "outputs": "list of object: name, sqnr (dB), low (dB that four of five samples have), agreement "
        "(share of equal answers), compared (of how many; 0: of the pixels of a map), parts_db, ok",
        "culprit": "object or null: the largest source of error: value, layer, kind, before and after (dB "
        "of the output with it in float); where known source",
        "fixes": "list of object: measured changes, the best first: line, toml, holds (whether it suffices)",
        "clipped": "map of number: tensor -> share of its values outside its range",
    },
    "precision": {
        "holds": "boolean: whether the budget is met",
        "cycles": "number: estimated, in times those of the narrow network",
        "toml": "string: the widths as overrides of a recipe",
        "widened": "list of object: name, layer, kind, became, alone (dB when it alone is narrow)",
        "before": "list of object: outputs at the recipe's widths: name, sqnr, low, agreement",
        "after": "list of object: the same with the chosen widths",
        "points": "list of object: the Pareto front: cycles, bytes, bits, outputs",
    },
}
"""Of `why`, `diff`, `show`."""

MODELS: dict[str, Fields] = {
    "model": {
        "inputs?": "map of string: name -> type and shape",
        "outputs?": "map of string: name -> type and shape",
        "facts?": "map of any: what the file tells of itself",
        "notes?": "list of string: what was read in another way than it is written",
        "places?": "list of object: nodes: who runs each, its work, and the reason where that is the host",
        "macs?": "object: npu, all and share",
        "refusals?": "list of object: rule, node and reason",
    },
    "operator": {
        "name": "string: the file of the operator",
        "onnx": "string: what ONNX calls it",
        "about": "string: what it computes",
    },
    "target": {
        "name": "string: of the target",
        "about": "string: what it is a model of",
        "fingerprint": "string: of what programs depend on",
        "compute": "object: and the other tables of a target",
    },
    "fit": {
        "constants": "map of list of number: constant -> before, after",
        "undetermined": "list of string: constants that no measured layer depends on",
        "layers": "list of object: layer, measured, before, after, held_out",
    },
    "code": {
        "code": "string: the error code",
        "area": "string: what kind of fault it is",
        "messages": "list of string: its messages; <words> are filled in",
        "because": "list of string: causes",
        "hints": "list of string: what to try",
        "explanation?": "string: what its messages have in common",
    },
    "format": {
        "name": "string: a format of calibration tables",
        "suffix": "string: of its files",
        "omits": "string: what it cannot express; may be empty",
    },
    "schema": {
        "schema": "object: a JSON Schema of recipes, or of these lines",
    },
    "text": {
        "text": "string: what the model said",
        "tokens": "list of integer: its tokens",
        "ended": '"stop" or "length" or "full" or null: why it ended',
        "prompt_tokens": "integer: tokens of the prompt; figures of speed and cycles follow",
    },
    "serving": {
        "address": "string: where it listens",
        "name": "string: the model; empty of `view`",
        "exact": "string: what computes it; empty of `view`",
        "text?": "boolean: whether it answers with text too",
    },
}
"""Of models, targets and text, and of what npuflow knows."""

PROGRAMS: dict[str, Fields] = {
    "run": {
        "out": "string: the npz that was written",
        "samples": "integer: how many ran",
        "tensors": "map of list of integer: output -> shape",
    },
    "score": {
        "component?": "string: of a recipe of components, the one whose outputs are scored behind the others",
        "figures": "map of number or string: the metric of the program",
        "baseline": "map of number or string: of the float model",
        "delta": "map of number or string: the difference",
        "sqnr_db": "map of number or string: of every output",
        "samples": "integer: that were scored",
        "agreement": "number or null: share of equal answers",
    },
    "comparison": {
        "name": "string: the tensor",
        "elements": "integer: how many it has",
        "different": "integer: how many differ",
        "max_abs": "number or string: the largest difference",
        "cosine": "number or string: of both",
        "sqnr?": "number or string or null: dB; null: no difference",
        "layer?": "string: what made it",
        "tile?": "object or null: of the first that diverges: the tile and command that made it",
        "loops?": "list of object: of the first that diverges: the steps of loops that this command ran for",
        "accepted?": '"yes" or "no": of `npz compare`',
        "note?": "string: why they cannot be compared element by element; may be empty",
    },
    "tensor": {
        "tensor": "string: its name",
        "type": "string: its element type",
        "shape": "list of integer: its shape",
        "values?": "list of any: of `npz dump`: the values in row-major order, as many as asked for",
    },
    "layer": {
        "name": "string: the layer, or the group with --groups",
        "op": "string: its operator", "cycles": "number: on the simulator's clock",
        "loop?": "string: the loops that it is in, the outer one first",
        "source?": "object: module, file and line of the training code",
    },
    "command": {
        "opcode": "string: of `disasm` and of `profile --commands`",
        "core": "integer: that runs it",
        "queue": "string: it waits in",
        "index?": "integer: its place in the core's stream; of `disasm`",
        "layer?": "string: that it is of",
        "fields?": "object: of `disasm`: operands and constants",
        "waits?": "map of integer: of `disasm`: queue -> commands of it that must have ended",
        "loops?": "list of object: of `disasm`: its loop, step (from 0) and steps (all), outer ones first",
        "iteration?": "string: of `profile --commands`: the same in words",
    },
    "loop": {"loop": "string: of `profile --loops`; the loop around it and its figures follow"},
    "layers": {
        "name": "string: a layer of two programs; cycles and bytes of a and b, and the change, follow",
    },
    "region": {"name?": "string: of `profile --memory`: what lies there; address, bytes and life follow"},
    "network": {
        "name": "string: of a file of several programs, one of them",
        "cycles": "number: on the simulator's clock",
    },
    "total": {"total": "object: of the whole program, or of two beside each other"},
    "slot": {
        "way": '"input" or "output": which it is',
        "name": "string: of the input or output; address, bytes, type and scale follow",
    },
    "verified": {
        "tensors": "integer: dumps that were compared",
        "first": "object or null: the first difference: layer, tile, command, steps of loops, element, cause",
    },
    "written": {
        "file": "string: what was written",
        "kind": "string: what it is: recipe, program, qdq, thresholds, c, tflite, tosa, epcontext, onnx, "
        "explorer, runtime, npz, bytes, picture, golden, schema, artifact",
        "facts": "object: sizes and counts",
        "notes": "list of string: what the user should know of it",
    },
    "key": {
        "private": "string: the file of the private key",
        "public": "string: the file of the public key",
        "key": "string: the public key as text",
    },
    "seal": {
        "file": "string: the program",
        "status": '"sealed" or "trusted" or "intact" or "not sealed": trusted: with a key of --check; '
        "intact: its own key matches",
        "key": "string or null: the public key of the seal",
        "provenance": "object or null: what the program was made of: digests of model, data, code, recipe",
    },
}
"""Of what is about programs, tensors and files."""

CACHES: dict[str, Fields] = {
    "cache": {
        "root": "string: where it is",
        "objects": "integer: artifacts",
        "records": "integer: steps",
        "bytes": "integer: of all artifacts",
        "kinds": "map of list of integer: kind -> artifacts, bytes",
    },
    "checked": {
        "records": "integer: that were read",
        "objects": "integer: that were read",
        "bytes": "integer: of them",
        "orphans": "integer: records without their object",
        "damaged": "list of object: what and reason; set aside, and built again by the next build",
    },
    "rerun": {
        "stage": "string: that was run again",
        "differences": "list of string: products that are others; none: it is deterministic",
    },
    "removed": {
        "dry": "boolean: whether nothing was removed, only counted",
        "records": "integer: steps",
        "objects": "integer: artifacts",
        "bytes": "integer: freed",
        "stopped?": "string: why nothing was removed; may be empty",
        "left?": "integer: bytes that stay, of --max-size",
        "over?": "boolean: whether running builds keep it larger than asked",
    },
    "pushed": {
        "dry": "boolean: whether nothing was sent, only counted",
        "records": "integer: that were sent",
        "objects": "integer: that were sent",
        "bytes": "integer: of them",
        "records_there": "integer: that were there already",
        "left_out": "integer: records whose objects this cache lacks",
    },
}
"""Of `cache`."""

KINDS: dict[str, Fields] = {**BUILDS, **ANSWERS, **MODELS, **PROGRAMS, **CACHES}
