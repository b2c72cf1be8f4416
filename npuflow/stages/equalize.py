"""The float graph in a form that quantises better: channels scaled between layers,
constant parts left to biases."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Numerics
from npuflow.place.islands import PlacementTable
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._candidates import PlacedNetwork, TargetNetwork
from npuflow.stages._targets import WholeTarget
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.tune.correct.assess import QuantisationSetup
from npuflow.tune.correct.config import Equalize
from npuflow.tune.correct.prepare import prepare
from npuflow.tune.ranges.thresholds import Calibrate


def per_tensor(quantize: Quantize, numerics: Numerics) -> bool:
    """Whether weights have one scale a tensor: channels of unlike ranges then lose most."""
    return quantize.weights.per == "tensor" or not numerics.per_channel_weights


@stage(
    refines="parse",
    when="equalize",
    wanted=per_tensor,
    after=("checked", "pixels", "pruned", "ordered"),
    cpu="native",
    memory="1GB",
    floats=True,
    lighter="[equalize] samples = 16",
)
def equalize(
    graph: Parsed,
    samples: TuningSamples,
    equalize: Equalize,
    calibrate: Calibrate,
    quantize: Quantize,
    whole: WholeTarget,
    least: PlacementTable,
) -> Parsed:
    """Change the network without changing its function, and keep that where its
    integers then come closer to it."""
    if set(graph.stated) - set(graph.pixels):
        log(
            "the model states the codes of its weights, which other weights would not fit: nothing is changed"
        )
        return graph
    judge = samples.judge(graph.graph, equalize.samples, equalize.held_out)
    if not judge.held:
        log("one sample cannot both give thresholds and judge them: nothing is changed")
        return graph
    target = whole.target
    placed = Placement(place(graph.graph, target, least, graph.stated))
    network = TargetNetwork(
        PlacedNetwork(graph, placed, quantize, target.numerics), target.memory, target.host, least
    )
    setup = QuantisationSetup(judge, calibrate, network.candidate, target, equalize.corrected)
    done = prepare(graph.graph, equalize, setup)
    log(f"thresholds from {counted(len(judge.fit), 'sample')}, judged on {len(judge.held)} others")
    for trial in done.trials:
        log(trial.line())
    return replace(graph, graph=done.graph, trials=done.trials)
