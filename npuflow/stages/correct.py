"""The integer graph with corrected biases, where that brings it closer to the float network."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Numerics
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._reference import layers_of
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.tune.bias import biased, correct_biases, originals
from npuflow.tune.correct.config import Correct
from npuflow.tune.improve import Acceptance


@stage(
    refines="quantize", always=True, cpu="native", memory="1GB", floats=True, lighter="[correct] samples = 16"
)
def correct(
    quantized: Quantized,
    graph: Parsed,
    samples: TuningSamples,
    correct: Correct,
    numerics: Numerics,
) -> Quantized:
    """Layer by layer: compare the mean of its outputs with the float network's, and move
    the bias by the difference."""
    if correct.bias == "off":
        return quantized
    if not any(biased(quantized.graph, originals(graph.graph, quantized.graph))):
        log("no layer in integers has a place for a bias: nothing is corrected")
        return quantized
    fit, held = samples.split(graph.graph, correct.samples, correct.held_out)
    if not held:
        log("one sample cannot both fit a correction and judge it: nothing is corrected")
        return quantized
    real, made = with_fixed_outputs(layers_of(graph)), with_fixed_outputs(quantized.graph)
    done = correct_biases(real, made, numerics, fit, held, Acceptance(asked=correct.bias == "on"))
    log(f"biases from {counted(len(fit), 'sample')}, judged on {len(held)} others")
    for trial in done.trials:
        log(trial.line())
    whole = done.graph.replaced(outputs=quantized.graph.outputs, state=quantized.graph.state)
    return replace(quantized, graph=whole, trials=(*quantized.trials, *done.trials))
