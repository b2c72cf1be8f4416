"""Programs and models as modules of PyTorch: tensors in, tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from npuflow.base.errors import DataError
from npuflow.runner.opening import Source
from npuflow.runner.ports import Array
from npuflow.runner.runner import Runner


class Module(torch.nn.Module):  # type: ignore[misc]
    """A runner in the place of the network that it was built from; `options` are the runner's.

    Inputs are given by place or by name. Where the first axis of all of them is a batch of one, any number of
    samples may lie along it. One output is a tensor, several are a tuple in the runner's order. Tensors on
    the CPU are read in place; others are copied, and outputs are put where the first input is. There are no
    gradients.
    """

    def __init__(self, model: Source, **options: Any) -> None:
        super().__init__()
        self.runner = Runner(model, **options)

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """The outputs of one sample or of several."""
        given = self._named(inputs, named)
        device = next((tensor.device for tensor in given.values()), torch.device("cpu"))
        arrays = {name: _array(tensor) for name, tensor in given.items()}
        several = self._batched() and any(len(array) != 1 for array in arrays.values())
        found = self.runner.run_batch(arrays) if several else self.runner.run(arrays)
        made = tuple(torch.from_numpy(np.array(found[p.name])).to(device) for p in self.runner.outputs)
        return made[0] if len(made) == 1 else made

    def _batched(self) -> bool:
        """Whether samples lie along the first axis: it is a batch of one in every input and output."""
        ports = (*self.runner.inputs, *self.runner.outputs)
        return not self.runner.state and all(port.shape[:1] == (1,) for port in ports)

    def _named(
        self, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        names = [port.name for port in self.runner.inputs if port.name not in named]
        if len(inputs) > len(names):
            raise DataError(
                f"{len(inputs)} inputs are given by place, {len(names)} are left",
                because=f"inputs: {', '.join(port.name for port in self.runner.inputs)}",
                code="NF-RUN-027",
            )
        return {**dict(zip(names, inputs, strict=False)), **named}


def _array(tensor: Any) -> Array:
    """A tensor as an array: of the CPU in place."""
    return tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
