"""npuflow in PyTorch: programs as modules, and training of networks for the integers that will run.

`prepare` takes a network through npuflow's own front end, rewrites and quantiser, and gives a module that
interprets the graph that comes of it. The graph is the one statement of what is fused, which widths and types
layers have, and where values are rounded; a module that inserted observers into the user's code would have to
guess all of that. It works for every model that a front end reads, and the parameters are the user's own
(`named_parameters` keeps their names), read through the batch normalisations that were folded.

In training mode values are real numbers on the grids of the target's integers, with straight-through
gradients. In evaluation mode the weights and scales as they are go through the quantiser again, and the
integer graph itself runs, on the executor that judges builds. So there is no further statement of what
integers mean, and `convert` writes that same graph as QDQ ONNX.
"""

from __future__ import annotations

from npuflow.base.errors import UsageError
from npuflow.base.extras import needs

with needs(
    "npuflow.torch needs the package torch",
    kind=UsageError,
    hint="pip install 'npuflow[torch]'",
    code="NF-USAGE-200",
):
    import torch as torch

from npuflow.gradients.distillation import distillation_loss
from npuflow.torch.module import Module
from npuflow.torch.prepare import convert, prepare
from npuflow.torch.prepared import PreparedNetwork
from npuflow.torch.pruning import Pruner, PruningSchedule
from npuflow.torch.training import Training

__all__ = [
    "Module",
    "PreparedNetwork",
    "Pruner",
    "PruningSchedule",
    "Training",
    "convert",
    "distillation_loss",
    "prepare",
]
