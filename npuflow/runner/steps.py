"""State of what is run: stated by the program or model, or named by the caller."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuflow.base.errors import UsageError
from npuflow.run.state import Pairs
from npuflow.runner.backend import Backend
from npuflow.runner.ports import Array


def state_and_start(backend: Backend, named: Mapping[str, str]) -> tuple[Pairs, dict[str, Array]]:
    """Pairs of an output and the input that it becomes, and what the inputs hold at first. Named pairs must
    be an output and an input of a fixed shape."""
    if not named:
        return backend.state, dict(backend.start)
    inputs = {port.name: port for port in backend.inputs}
    outputs = {port.name for port in backend.outputs}
    for output, name in named.items():
        if output not in outputs or name not in inputs:
            raise UsageError(
                f'there is no output "{output}" or no input "{name}" to keep as state',
                because=f"outputs {', '.join(sorted(outputs))}; inputs {', '.join(inputs)}",
                code="NF-RUN-015",
            )
        if not inputs[name].fixed:
            raise UsageError(
                f'the state "{name}" has no fixed shape', because=f"it is {list(inputs[name].shape)}",
                code="NF-RUN-016",
            )
    ports = {name: inputs[name] for name in named.values()}
    return tuple(named.items()), {name: np.zeros(port.shape, port.dtype) for name, port in ports.items()}
