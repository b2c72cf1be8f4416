"""How far a network's outputs are from its float model's, as a loss."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as functions


def distillation_loss(outputs: Any, teacher: Any, temperature: float = 1.0, form: str = "classes") -> Any:
    """The loss of one output, or the sum over several.

    `form`: "classes" compares distributions over the last dimension (Kullback-Leibler, times the square of
    the temperature, as gradients shrink by it), "values" the numbers (mean squared error over their mean
    square).

    Source: G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015.
    """
    if isinstance(outputs, list | tuple):
        pairs = zip(outputs, teacher, strict=True)
        return sum(distillation_loss(one, other, temperature, form) for one, other in pairs)
    teacher = teacher.detach()
    if form == "values":
        return functions.mse_loss(outputs, teacher) / teacher.square().mean().clamp(min=1e-12)
    own = functions.log_softmax(outputs / temperature, -1).flatten(0, -2)
    wanted = functions.log_softmax(teacher / temperature, -1).flatten(0, -2)
    loss = functions.kl_div(own, wanted, reduction="batchmean", log_target=True)
    return loss * temperature**2
