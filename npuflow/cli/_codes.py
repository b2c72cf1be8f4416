"""What the areas of error codes are, and the codes whose messages alone explain too little."""

from __future__ import annotations

AREAS: dict[str, str] = {
    "RECIPE": "The recipe is wrong: its TOML, a table, a key or a value. Every fault of a recipe is reported at once, with "
    "file and line. `npuflow show recipe RECIPE` prints a recipe with all defaults, `npuflow schema` its JSON Schema.",
    "USAGE": "A command was called with arguments that name nothing or cannot work together. `npuflow VERB --help` "
    "lists the arguments of a verb.",
    "CODE": "The Python code that a build runs cannot be followed. Keys hold the code of each step, so that an edit "
    "rebuilds what it changes; code that is found only while running cannot be in a key.",
    "MODEL": "The source model is malformed, unreadable, or uses something that cannot be built. `npuflow inspect MODEL` "
    "shows how the model is read.",
    "DATA": "Samples are missing, unreadable, or do not fit the inputs of the model. Check `[data]` in the recipe: "
    "source, arrays, steps.",
    "TABLE": "A calibration table of another tool cannot be read, or does not fit the network. Check `[ranges]` in the "
    "recipe, and the format of the file.",
    "METRIC": "The evaluation cannot be computed: labels are missing, or do not fit the metric and the outputs.",
    "TARGET": "The target file is wrong. `npuflow targets FILE.toml` checks it; the reference page of targets lists "
    "its keys.",
    "QUANT": "The integer arithmetic of the target cannot hold what quantisation asks for: widths, ranges, multipliers, "
    "bias or accumulator.",
    "TILING": "What the recipe pins under `[tiling]` does not exist in the network or cannot be done.",
    "FIT": "The network does not fit the target: it needs more memory or more time than there is. The message states "
    "demand and bound, the suggestions what was tried and fits.",
    "PROGRAM": "A program (`.npu`) is damaged, was built for another target, or does not fit what it is asked for. "
    "Build it again.",
    "DECODE": "A command of a program is malformed. Programs that npuflow writes have none: the file is damaged or was "
    "changed, otherwise it is a bug to report.",
    "SIM": "The simulator stopped: commands that wait for each other, hazards, or an access outside of a memory. Programs "
    "that npuflow writes have none: the file was changed, otherwise it is a bug to report.",
    "STORE": "The cache cannot be read or written. `npuflow cache verify` checks it; `--cache DIR` chooses another.",
    "REMOTE": "The remote cache cannot be used. Builds go on without it; commands that are about it stop.",
    "STEP": "A step of the build failed, needs more memory than there is, or did not yield what it must.",
    "CLUSTER": "The dask cluster that runs the steps cannot be reached, or none of its workers can run them.",
    "BUILD": "The build as a whole ended without its products.",
    "INTERNAL": "An invariant of npuflow or of a plug-in is broken. If you have written no stage or plug-in, it is a bug "
    "to report, with the recipe and the command.",
}
"""Area of a code -> what kind of fault it is and what to check."""

EXPLAINED: dict[str, str] = {}
"""Code -> what its messages have in common, or what they leave open. A code with several messages needs an entry."""
