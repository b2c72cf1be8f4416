"""npuflow in ExecuTorch's backend test suite: a tester whose stages quantise, lower and run for a target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from executorch.backends.test.harness import Tester
from executorch.backends.test.harness.stages import Quantize, StageType, ToEdgeTransformAndLower

from npuflow.apps.executorch import runtime
from npuflow.apps.executorch.partitioner import NpuflowPartitioner
from npuflow.apps.executorch.quantizer import NpuflowQuantizer


class NpuflowTester(Tester):  # type: ignore[misc]
    """A tester for a target, to be given to a `TestFlow` of `executorch.backends.test.suite` as its
    `tester_factory` (a `functools.partial` that states the target). The example inputs calibrate.
    `partitioner` is that of the last lowering."""

    def __init__(
        self,
        module: Any,
        example_inputs: tuple[Any, ...],
        target: str | Path | Mapping[str, Any],
        cache: str | Path | None = None,
    ) -> None:
        quantizer = NpuflowQuantizer(target)
        self.partitioner = NpuflowPartitioner(quantizer, samples=[example_inputs], cache=cache)
        stages = {
            **Tester.default_stage_classes(),
            StageType.QUANTIZE: lambda: Quantize(quantizer),
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: lambda: ToEdgeTransformAndLower(lambda: self.partitioner),
        }
        super().__init__(module=module, example_inputs=example_inputs, stage_classes=stages)
        runtime.register()
