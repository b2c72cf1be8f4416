"""What the areas of error codes are, and the codes whose messages alone explain too little."""

from __future__ import annotations

AREAS: dict[str, str] = {
    "RECIPE": (
        "The recipe is wrong: its TOML, a table, a key or a value. Every fault of a recipe is reported at "
        "once, with file and line. `npuflow show recipe RECIPE` prints a recipe with all defaults, "
        "`npuflow schema` its JSON Schema."
    ),
    "USAGE": (
        "A command was called with arguments that name nothing or cannot work together. `npuflow VERB "
        "--help` lists the arguments of a verb."
    ),
    "CODE": (
        "The Python code that a build runs cannot be followed. Keys hold the code of each step, so that "
        "an edit rebuilds what it changes; code that is found only while running cannot be in a key."
    ),
    "MODEL": (
        "The source model is malformed, unreadable, or uses something that cannot be built. `npuflow "
        "inspect MODEL` shows how the model is read."
    ),
    "DATA": (
        "Samples are missing, unreadable, or do not fit the inputs of the model. Check `[data]` in the "
        "recipe: source, arrays, steps."
    ),
    "TABLE": (
        "A calibration table of another tool cannot be read, or does not fit the network. Check "
        "`[ranges]` in the recipe, and the format of the file."
    ),
    "METRIC": (
        "The evaluation cannot be computed: labels are missing, or do not fit the metric and the outputs."
    ),
    "TARGET": (
        "The target file is wrong. `npuflow targets FILE.toml` checks it; the reference page of targets "
        "lists its keys."
    ),
    "QUANT": (
        "The integer arithmetic of the target cannot hold what quantisation asks for: widths, ranges, "
        "multipliers, bias or accumulator."
    ),
    "TILING": "What the recipe pins under `[tiling]` does not exist in the network or cannot be done.",
    "FIT": (
        "The network does not fit the target: it needs more memory or more time than there is. The "
        "message states demand and bound, the suggestions what was tried and fits."
    ),
    "PROGRAM": (
        "A program (`.npu`) is damaged, was built for another target, or does not fit what it is asked "
        "for. Build it again."
    ),
    "RUN": (
        "A program or model cannot be run as it was called: its inputs, outputs, state, or options of the "
        "runner. Of a program, `npuflow inspect` and `Runner.inputs` list what it takes."
    ),
    "DECODE": (
        "A command of a program is malformed. Programs that npuflow writes have none: the file is damaged "
        "or was changed, otherwise it is a bug to report."
    ),
    "SIM": (
        "The simulator stopped: commands that wait for each other, hazards, or an access outside of a "
        "memory. Programs that npuflow writes have none: the file was changed, otherwise it is a bug to "
        "report."
    ),
    "STORE": (
        "The cache cannot be read or written. `npuflow cache verify` checks it; `--cache DIR` chooses "
        "another."
    ),
    "REMOTE": "The remote cache cannot be used. Builds go on without it; commands that are about it stop.",
    "STEP": "A step of the build failed, needs more memory than there is, or did not yield what it must.",
    "CLUSTER": "The dask cluster that runs the steps cannot be reached, or none of its workers can run them.",
    "BUILD": "The build as a whole ended without its products.",
    "INTERNAL": (
        "An invariant of npuflow or of a plug-in is broken. If you have written no stage or plug-in, it "
        "is a bug to report, with the recipe and the command."
    ),
}
"""Area of a code -> what kind of fault it is and what to check."""

EXPLAINED: dict[str, str] = {
    "NF-USAGE-269": (
        "An onnx.ModelProto is compiled as it is in memory: its weights are in it, and it has at most 2 GB. "
        "Give the path of a file for others."
    ),
    "NF-DATA-036": "The file of labels is not there, or is no file.",
    "NF-MODEL-146": "Between the tensors that a network shall begin at and its outputs nothing is left.",
    "NF-MODEL-397": (
        "Layers of a Caffe model have no weights: the .caffemodel is missing, empty, or belongs to another "
        ".prototxt."
    ),
    "NF-MODEL-454": (
        "npuflow has no file for the checkpoint's family. The nearest is found by the names of tensors; "
        "equal names alone do not say that two families compute the same."
    ),
    "NF-MODEL-466": "Text of checkpoints needs the packages of the extra: pip install 'npuflow[llm]'.",
    "NF-MODEL-469": (
        "A byte-level tokenizer splits text by rules that a GGUF file names only. By other rules the same "
        "text has other tokens, and the model answers worse without any sign of it."
    ),
    "NF-DATA-231": "A file of several arrays is read by the names of the inputs, and has others.",
    "NF-RECIPE-001": (
        "A key that selects an entry by name (a stage, an operator, a calibrator, a metric, ...) names "
        "none."
    ),
    "NF-RECIPE-002": "A recipe needs a file here, and the path is a folder.",
    "NF-RECIPE-003": "A path in the recipe does not exist. Paths are relative to the file that writes them.",
    "NF-RECIPE-010": "The value has another type than its key, or an array another length.",
    "NF-RECIPE-023": (
        "A layer, a pattern or an operator in the recipe matches nothing in the network. Names are those "
        "of the source model; `npuflow show parse RECIPE` lists what rewrites made of them."
    ),
    "NF-RECIPE-024": 'The text is not an amount of memory, such as "4GB" or "512MiB".',
    "NF-RECIPE-025": "No stage of npuflow or of a plug-in reads a table of this name.",
    "NF-RECIPE-026": "The name stands for a table, and the recipe gives it a plain value.",
    "NF-RECIPE-031": "The recipe names a library file, such as a target, that does not come with npuflow.",
    "NF-USAGE-010": "A path on the command line does not exist. Paths are relative to the working directory.",
    "NF-USAGE-016": "The stage belongs to a table that the recipe does not have, or that switches it off.",
    "NF-USAGE-017": "No stage of this recipe has the name. `npuflow plan RECIPE` lists the stages.",
    "NF-USAGE-025": "The operating system does not let the command write its result there.",
    "NF-USAGE-030": "The beginning of a digest must stand for exactly one artifact of the cache.",
    "NF-USAGE-034": "No target of this name comes with npuflow. `npuflow targets` lists them.",
    "NF-USAGE-036": "A build writes NAME.lock beside its products; this file is another, or is damaged.",
    "NF-MODEL-001": "The operating system cannot read the model file.",
    "NF-MODEL-002": (
        "The bytes of the file are not an ONNX model: it may be cut short, or a pointer of git-lfs."
    ),
    "NF-MODEL-004": "onnxruntime, which computes the float reference, does not take the model.",
    "NF-MODEL-027": "An ONNX model without its external data must be smaller than 2 GiB.",
    "NF-MODEL-064": "The file is cut short, or its tables contradict each other.",
    "NF-DATA-009": "Samples were found, and none could be read. The reason of the first is given.",
    "NF-DATA-012": "The samples or the file hold no array for this input of the model.",
    "NF-DATA-014": "The array of an input has another shape than the model or the program was built for.",
    "NF-DATA-056": "`normalize` has one number per channel, and no axis of the data has that size.",
    "NF-DATA-060": "The input is quantised and holds codes outside the range of its type.",
    "NF-METRIC-003": "The metric compares with labels, and samples have none.",
    "NF-TARGET-011": "The text of a rule is not an inequality over the listed names.",
    "NF-QUANT-001": (
        "`[quantize]` asks for codes or floats that the arithmetic of the target does not have (more bits, "
        "zero points, a sign, scales by groups, a float type), or for two of them that exclude each other."
    ),
    "NF-QUANT-002": "More bits than the target computes with.",
    "NF-TILING-001": (
        "The tile names an axis that the layer does not have, or a size that its axis cannot be cut into."
    ),
    "NF-TILING-012": (
        "Layers that only move data, or that have the host between them, are never computed as one group."
    ),
    "NF-PROGRAM-009": "The file is not a program, was cut short, or its digests do not match its bytes.",
    "NF-RUN-006": (
        "A program is run on whole tensors (`executor`) or by its commands (`simulator`); ONNX and TFLite "
        "models run on onnxruntime, and have no other way."
    ),
    "NF-RUN-009": "Preprocessing is asked for, and neither the program's recipe nor the caller states steps.",
    "NF-RUN-020": (
        "A part of onnxruntime's interface that is about choosing kernels, devices or graphs while loading; "
        "a program is compiled already."
    ),
    "NF-DECODE-009": "A field of the command is out of range, or a reserved word or flag is set.",
    "NF-SIM-007": "The data cause an index outside of a table.",
    "NF-STEP-002": "The process that ran the step was out of memory, or would be.",
    "NF-STEP-007": "The step ended with an error that npuflow did not expect.",
    "NF-CLUSTER-001": "The scheduler cannot be reached, at the start or any longer. Finished steps are kept.",
}
"""Code -> what its messages have in common, or what they leave open. A code with
several messages needs an entry."""
